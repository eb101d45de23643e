// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <optional>

#include <QFutureWatcher>
#include <QObject>

#include "gui/view/what_if/what_if_settings.h"
#include "sim/engine/record_links.h"

namespace pipetwin::gui {

struct RunData;

/// A what-if and its result.
struct WhatIfResult {
    WhatIf settings;
    WhatIfOutcome outcome;
    std::shared_ptr<const RunData> run;  ///< to be drawn; null where there is no step
    Duration took{};                     ///< from the settings to the run
};

/// Simulates a what-if; for unchanged settings the run is the one that the source has.
WhatIfResult simulate_what_if(const WhatIfSource& source,
                              const WhatIf& settings,
                              sim::RecordLinks links = sim::RecordLinks::No);

/// Simulates again when settings change: at once where that is expected to take less than 5 ms,
/// else on a worker. Only the last request is answered; nothing comes after the end of the
/// controller.
class SimulationController : public QObject {
    Q_OBJECT

  public:
    explicit SimulationController(QObject* parent = nullptr);

    /// Makes what-ifs of this run from now on; `source_changed` follows. Null: there is none.
    void show_run(std::shared_ptr<const RunData> run);

    /// The source of the run's what-ifs; null before it is there.
    const std::shared_ptr<const WhatIfSource>& source() const { return source_; }

    /// Sets whether the runs of later requests know when messages are on their links.
    void keep_link_rows(bool kept) { links_ = kept ? sim::RecordLinks::Yes : sim::RecordLinks::No; }

    /// Requests a simulation; `simulated` follows, at once or later. There is a source.
    void want(const WhatIf& settings);

    bool is_working() const { return worker_.isRunning() || pending_.has_value(); }

  signals:
    void source_changed();
    void simulated(const pipetwin::gui::WhatIfResult& result);

  private:
    using SourcePointer = std::shared_ptr<const WhatIfSource>;
    struct Answer {
        SourcePointer source;
        WhatIfResult result;
    };
    using AnswerPointer = std::shared_ptr<const Answer>;

    bool is_fast(const WhatIf& settings) const;
    void start(const WhatIf& settings);
    void finish();
    void take(const WhatIfResult& result);
    void take_source(SourcePointer source);

    SourcePointer source_;
    QFutureWatcher<SourcePointer> reader_;
    bool reading_ = false;
    QFutureWatcher<AnswerPointer> worker_;
    std::optional<WhatIf> pending_;  ///< wanted after the one that the worker has
    bool outdated_ = false;          ///< what the worker has is no longer wanted
    std::optional<double> seconds_per_action_;
    sim::RecordLinks links_ = sim::RecordLinks::No;
};

}  // namespace pipetwin::gui
