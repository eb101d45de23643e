// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "core/plan/plain_plan.h"
#include "core/plan/plan.h"
#include "core/timeline/metrics.h"
#include "gui/view/run/run_data.h"
#include "gui/view/what_if/what_if_settings.h"
#include "sim/engine/record_links.h"
#include "sim/simulate/settled_capacity.h"
#include "sim/simulate/simulate.h"

namespace pipetwin {

struct SettledScenario;

}  // namespace pipetwin

/// Runs as they would be if they were planned otherwise.
namespace pipetwin::gui {

/// A simulated plan in figures.
struct WhatIfStep {
    Plan plan;
    TimeMetrics metrics;
    std::vector<Bytes> peaks;  ///< [rank]; empty where bytes are not known
    std::string over_limit;    ///< which rank needs more memory than it has; "" where none does
};

/// A simulated step, and what is drawn of it.
struct WhatIfSimulation {
    WhatIfOutcome outcome;
    StepRows rows;                  ///< empty where there is no step
    std::vector<MemoryRow> memory;  ///< [rank]; empty where bytes are not known
};

/// The part of a what-if that follows from the order of the actions alone: while a slider of links
/// or costs is dragged, each what-if takes it over from the one before.
struct WhatIfRows {
    WhatIf settings;
    Plan plan;
    std::vector<std::shared_ptr<const RowActions>> actions;  ///< [rank]
    std::vector<MemoryRow> memory;  ///< [rank], with the plan's capacity of channels
};

/// The source of a run's what-ifs: its scenario, model and profile, or, of a trace alone, the
/// median durations of its own stages, its order and its links' median time.
///
/// Any thread may call it: its answers never change, and what it keeps only saves time.
class WhatIfSource {
  public:
    /// Prepares what-ifs of a run. Never throws for what a run holds: see `why_not`.
    explicit WhatIfSource(std::shared_ptr<const RunData> run);

    /// The reason why there are no what-ifs, in one sentence; "" where there are.
    const std::string& why_not() const { return why_not_; }

    /// Note that a reader needs for all of its results; "" if there is none.
    const std::string& note() const { return note_; }

    /// Whether the memory of a what-if is known.
    bool knows_bytes() const;

    const RunData& run() const { return *run_; }
    const std::shared_ptr<const RunData>& share_run() const { return run_; }

    /// The settings of the run itself.
    const WhatIf& settings() const { return settings_; }

    /// The slowest link of the run's plan; none where it has no links.
    const std::optional<LinkCost>& link() const { return link_; }

    /// Most stages of a pipeline that the run's machine has devices for: those of the cluster by
    /// the number of devices that a stage takes; where the scenario states no number of devices, as
    /// many as the run has, or as its ranks have processors. 1 where there are no what-ifs.
    int stages_of_machine() const;

    /// Values that can be chosen, given the other settings.
    WhatIfRanges ranges(const WhatIf& settings) const;

    /// Plans the settings: settled and validated; for unchanged settings the run's own plan. Throws
    /// what `make_plan` throws. `same_rows` is a plan whose rows are taken over, if they are the
    /// same.
    sim::SettledStep step(const WhatIf& settings,
                          sim::RecordLinks links,
                          const Plan* same_rows = nullptr) const;

    /// The latest what-if that was kept, if these settings give its rows: they differ in no more
    /// than links and costs. Null where there is none; the latest is then forgotten, so that its
    /// memory is used again.
    std::shared_ptr<const WhatIfRows> same_rows(const WhatIf& settings) const;
    /// Keeps the latest what-if for `same_rows`.
    void keep(std::shared_ptr<const WhatIfRows> latest) const;

    /// The scenario, model and profile that the plan of `settings` was made from; null for a trace
    /// alone.
    std::shared_ptr<const PlannedRun> planned(const WhatIf& settings, const Plan& plan) const;

    /// [layer]: its time at the size of the largest micro-batch, on the run's first kind of device.
    /// Empty for a trace alone, and where the profile does not know the size.
    std::vector<LayerTime> layer_times(const WhatIf& settings) const;

  private:
    void take_planned();
    void take_trace();
    bool has_pieces_of_run(const WhatIf& settings) const;
    void require_shape_of_file(const WhatIf& settings) const;
    SettledScenario scenario(const WhatIf& settings) const;
    PlainCosts costs(const WhatIf& settings) const;

    std::shared_ptr<const RunData> run_;
    std::optional<PlainCosts> plain_;
    WhatIf settings_;
    std::optional<LinkCost> link_;
    std::string why_not_;
    std::string note_;

    mutable std::mutex latest_mutex_;
    mutable std::shared_ptr<const WhatIfRows> latest_;
};

/// The settings of the run's scenario. A partition that it leaves open is that of the run's plan
/// wherever a what-if has as many pieces, and else the balanced one.
WhatIf settings_of(const PlannedRun& planned);

/// "own.csv has its own numbers of ranks and micro-batches": why a schedule file has no others.
std::string own_numbers_words(const std::string& schedule_file);

/// Plans and simulates the settings, and computes their metrics. Never throws: what cannot be
/// planned is a reason.
WhatIfSimulation apply(const WhatIfSource& source,
                       const WhatIf& settings,
                       sim::RecordLinks links = sim::RecordLinks::No);

/// The run with the simulated step as its predicted side, for a simulation that has a step. What
/// was measured stays, and is compared, where the rows are those of the step.
std::shared_ptr<const RunData> what_if_run(const WhatIfSource& source,
                                           const WhatIf& settings,
                                           WhatIfSimulation simulation);

/// The schedules to choose from, in the order of the command line.
std::vector<std::string> schedule_choices(const WhatIfSource& source);

/// Text that names the rank that needs more than its limit, and how much; "" where none does.
std::string over_limit(const Plan& plan, const std::vector<Bytes>& peaks);

}  // namespace pipetwin::gui
