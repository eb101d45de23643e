// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/units.h"
#include "core/schedule/schedule.h"
#include "core/timeline/compare.h"
#include "gui/view/run/group_table.h"
#include "gui/view/run/memory_row.h"
#include "gui/view/run/translations.h"
#include "gui/view/run/twin.h"

namespace pipetwin {

class Plan;
struct Trace;

}  // namespace pipetwin

namespace pipetwin::gui {

struct PlannedRun;

/// Figures of one rank of one side.
struct RankSummary {
    Duration busy{};         ///< F, B, I, W and R
    double utilisation = 0;  ///< busy / pipeline time of that side; 0 without any time
};

/// Figures of one side beside its timelines.
struct SideData {
    Origin origin{};
    int steps = 0;                    ///< in the file
    int median_step = 0;              ///< the one nearest the median of all
    std::vector<int> step_numbers{};  ///< in the training; empty: not known
    Duration step{};                  ///< of the median step
    Duration pipeline{};              ///< of the median step
    std::vector<RankSummary> ranks{};
    std::vector<MemoryRow> memory{};  ///< [rank]; empty where bytes are not known
    /// The schedule of its rows, without the rows: which rank has which stage. None where no file
    /// says it.
    std::optional<Schedule> form{};
    std::optional<int> channel_capacity{};  ///< none: not known, or unbounded
    Noise noise{};                          ///< of the measuring; without steps: not known
    /// Host time that each compute action includes; none where no plan says it.
    std::optional<Duration> dispatch{};

    /// Steps of the run that something disturbed, or that warmed it up: the file does not have
    /// them.
    int left_out() const { return noise.dropped_steps; }
};

/// A run as the window shows it: read, aligned and compared once, then never changed.
struct RunData {
    std::filesystem::path path;
    std::vector<std::filesystem::path> over;  ///< what was laid over it
    /// Several of its files have the same side, so nothing of them is here: each is a run of its
    /// own, to be shown beside the others.
    bool hide_each_other = false;
    std::string schedule_name;
    std::string title{};      ///< names what no file holds: a plan, a playground's step; else ""
    bool is_what_if = false;  ///< predicted only, not a run
    int micro_batches = 0;
    int replicas = 1;  ///< pipelines of the measured run, each with rows of its own
    int replica = 0;   ///< the one of them that is shown and spoken of
    Twin twin;
    std::optional<SideData> predicted;  ///< there exactly if the twin's side is
    std::optional<SideData> measured;
    std::optional<Comparison> comparison;  ///< where both sides are there and have the same rows
    std::shared_ptr<const PlannedRun> planned;  ///< null where the folder does not say
    /// The plan of a what-if of such a run, and of a schedule file; else null.
    std::shared_ptr<const Plan> own_plan;
    GroupTable groups{};                ///< of devices of the plan; empty where that is not known
    Translations translations{};        ///< of a translation model's held-out texts
    std::vector<std::string> problems;  ///< what could not be read or compared, in sentences
    std::filesystem::path scenario{};   ///< that it was simulated from; empty for any other run
    std::vector<std::string> notes{};   ///< what a reader of the run has to know, in sentences

    bool empty() const { return twin.rank_count() == 0; }

    /// The plan that its rules follow from; null where it is not known.
    const Plan* plan() const;
    /// The figures of a side; none where it is missing.
    const std::optional<SideData>& side(Side side) const;

    /// The number of a step for readers: that of its training, or where no file says it the step's
    /// place in the file.
    int step_number(int step) const;

    /// The step that is shown first, and that sentences are about where no step is selected: the
    /// measured one nearest the median.
    int main_step() const { return measured ? measured->median_step : 0; }
};

/// Reads a run folder (`predicted.trace.json`, `measured.trace.json`, and what they were planned
/// from), a folder of traces of PyTorch's profiler (a file per rank), or one file: a trace of ours
/// or of PyTorch's profiler, plain or gzip, a schedule CSV, which is simulated at unit costs (F 1
/// ms, B 2 ms), a scenario or a profile, which are simulated (gui/view/run/scenario_run.h), or
/// plan.json, which stands for its folder. What a file is, its content tells. What can be read is
/// there - of a trace that is damaged, cut short or still being written the steps before that byte
/// - and what cannot stands in `problems`; never throws for what lies in the files. Takes as long
/// as the files are large: call it on a worker.
///
/// A measured run of several replicas has the rows of `replica`, or those of replica 0 where there
/// is no such replica; then a problem says so, as of a prediction for another than replica 0.
RunData load_run(const std::filesystem::path& path, int replica = 0);

/// Reads several runs, laid over each other: what is predicted becomes the predicted side, what is
/// measured the measured one. Two of the same side would hide each other: then the run is empty and
/// says so. Traces of PyTorch's profiler are merged by rank and brought into the rows of the
/// prediction.
RunData load_runs(const std::vector<std::filesystem::path>& paths, int replica = 0);

/// The run of a plan that no file holds: `predicted` is its step, and `title` names it.
RunData run_of_trace(std::shared_ptr<const PlannedRun> planned,
                     const Trace& predicted,
                     std::string title);

/// The schedule without its rows: which rank has which stage, and which stages share weights.
Schedule form_of(const Schedule& schedule);

/// Host time that each compute action of a side includes, and that comparisons of actions leave
/// out: on a real device a measured action begins after its dispatch, and a predicted one includes
/// it. Zero where no plan says it of both sides.
Duration compared_dispatch(const RunData& run, Side side);

/// Length of an action without its wait, and of a compute action without `compared_dispatch`.
Duration compared_length(const RunData& run, const SpanRef& ref);

/// How much of its work a step does in a second.
struct Throughput {
    double per_second = 0;        ///< 0 where the step takes no time
    bool counts_samples = false;  ///< else it counts micro-batches, as no samples are known

    /// "samples/s" or "micro-batches/s".
    std::string_view unit() const { return counts_samples ? "samples/s" : "micro-batches/s"; }
};
/// Throughput of a plan with a step of this length.
Throughput throughput_of(const Plan& plan, Duration step);
/// Throughput of a side of a run; none where the side is missing.
std::optional<Throughput> throughput_of(const RunData& run, Side side);

/// Why the errors of the prediction say nothing about it, in a sentence; "" where they say
/// something, or the noise of the measuring is not known.
std::string says_nothing(const RunData& run);

/// Whether both runs have the same model, as far as the files say it: true where one of them is not
/// known (null). A profile does not say its model, but the number of parameters.
bool have_same_model(const PlannedRun* a, const PlannedRun* b);

/// What the shown times of a run come from, where that is neither measured nor the costs of a
/// profile that was measured: "unit costs", "costs estimated for a100-sxm-80"; else "".
std::string cost_source(const RunData& run);

/// Name of a side: "measured", "emulated" or "predicted"; "" where it is missing.
std::string side_name(const RunData& run, Side side);

/// The rows of all steps of a side, and its figures. At least one step.
struct DrawnSide {
    std::vector<StepRows> steps;
    SideData data;
};
/// The rows and figures of a side; `memory` is [rank], empty where it is not known.
DrawnSide drawn_side(const TimelineSet& timelines, const std::vector<MemoryCurve>& memory = {});

/// The rows and figures of a side with one step.
DrawnSide drawn_side(StepRows step);

}  // namespace pipetwin::gui
