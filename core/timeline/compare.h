// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/timeline/metrics.h"
#include "core/timeline/timeline.h"

namespace pipetwin {

/// Noise of the machine while it measured.
struct Noise {
    double stolen_percent =
        0;  ///< 1 - thread CPU time / wall time of the compute spans, of the kept steps
    double p90_over_p10 = 1;  ///< of the times of all steps after the warm-up
    int dropped_steps = 0;    ///< warm-up, and steps that something disturbed
    int steps = 0;            ///< the others

    /// Longest step of the pipeline in which layers were measured while the run went on, over the
    /// shortest, of one round to another; 1 where they were not measured, none where the record
    /// does not say.
    std::optional<double> costs_apart{};

    /// Ranks that had to share cores, as there were more of them, and the cores; 0: each rank had a
    /// core of its own, or shared them in the prediction, too.
    int sharing_ranks = 0;
    int shared_cores = 0;

    /// Fewest steps of a measurement that says something about the error of a prediction.
    static constexpr int fewest_steps = 11;
    /// Costs of rounds that lie further apart say nothing about a step.
    static constexpr double most_costs_apart = 1.25;

    /// Whether the measurement says how quiet its steps were: a trace of another program does not.
    bool is_known() const { return steps > 0 || dropped_steps > 0; }
    /// Why an error of the prediction says nothing; none where it does say something, or where the
    /// noise is not known.
    std::optional<std::string> not_measurable() const;
    /// True if the error says nothing because something else used the machine, and not because
    /// ranks shared cores or the run had few steps.
    bool machine_was_busy() const;
    /// The cause in a few words, where the error says nothing: "The machine was busy".
    std::string_view verdict() const;

    bool operator==(const Noise&) const = default;
};

/// Verdict and cause in a sentence: "The machine was busy: the errors say nothing about the
/// prediction, as none of the 40 steps was quiet."; empty where the errors say something, or the
/// noise is not known.
std::string noise_sentence(const Noise& noise);

/// One side of a comparison: the timelines of one step or several of the same rows, and what only
/// the plan's owner can know.
struct TimelineSet {
    std::vector<Timeline> steps;         ///< at least one
    std::vector<int> numbers{};          ///< of the steps in their training; empty: not known
    std::vector<Bytes> peak_bytes;       ///< per rank; empty if not known
    std::optional<Breakdown> breakdown;  ///< of the median step
    std::optional<Duration>
        replayed_step{};  ///< its own durations, simulated (sim/simulate/replay_error.h)
    Noise noise;
};

/// A duration on both sides, and the error of the prediction.
struct Pair {
    Duration predicted{};
    Duration measured{};
    /// 100 (predicted - measured) / measured, in percent; 0 when both are 0.
    double error_percent() const;
};

/// What `Comparison::in_groups` is for a reader, below the parts that have it.
inline constexpr std::string_view in_groups_words = "of these, messages of groups";

/// One action on both sides, joined by its place in the row.
struct ActionDelta {
    int rank = 0;
    int cell = 0;
    Action action;
    Pair duration;  ///< medians over the steps, of end - ready: without the wait
    Pair begin;
};

/// Peak memory of a rank on both sides.
struct PeakDelta {
    int rank = 0;
    Bytes predicted;
    Bytes measured;
    /// 100 (predicted - measured) / measured, in percent; 0 when both are 0.
    double error_percent() const;
};

/// The predicted step beside the measured one: times, bubbles, memory, and every action.
struct Comparison {
    Origin origin = Origin::Measured;  ///< of the measured side: Emulated on a paced device
    Pair makespan;
    Pair step;
    double predicted_bubble_total = 0;  ///< `bubble_beside` of both sides
    double measured_bubble_total = 0;
    std::vector<PeakDelta> peaks;  ///< empty unless both sides know theirs
    /// Total time of one kind of compute action on both sides.
    struct ByOp {
        Op op{};
        Pair total;  ///< sum over ranks of the op's durations
    };
    std::vector<ByOp> by_op;  ///< F, B, I, W, R in this order, those that occur
    /// Part of the actions' time in messages of groups (Timeline::in_groups), mean over ranks; none
    /// unless both sides know theirs.
    std::optional<Pair> in_groups;
    std::vector<ActionDelta> actions;
    std::optional<Breakdown> predicted_breakdown;
    std::optional<Breakdown> measured_breakdown;
    /// The measured step as the simulator replays it from its own durations, and as it was: the
    /// error of the simulator without that of the costs.
    std::optional<Pair> replay;
    Noise noise;
};

/// The idle share of all ranks' pipeline time, as `Bubble::total`: host time counts as work. A
/// predicted or emulated span begins with the host time before its action; a measured one begins
/// after it, so there the predicted one is added. `overhead`: the mean over ranks of the host time
/// in predicted spans (`Breakdown::overhead`).
double bubble_beside(const Timeline& timeline, Duration overhead);

/// Host time of a mean rank that `bubble_beside` adds to the work of a step.
Duration overhead_beside(const Timeline& timeline, Duration overhead);

/// Joins by position with equality of the action as a check. The step time of a side is that of its
/// median step, so that a breakdown of that sums to it; all else are medians of their own. Throws
/// Error(BadInput), naming rank, cell and both actions, if the rows differ.
Comparison compare(const TimelineSet& predicted, const TimelineSet& measured);

/// The step whose time is nearest the median of all, the first of two; it is the one that pictures
/// show.
const Timeline& median_step(const TimelineSet& set);

}  // namespace pipetwin
