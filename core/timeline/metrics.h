// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <optional>
#include <string_view>
#include <vector>

#include "core/timeline/footprint.h"
#include "core/timeline/span_times.h"
#include "core/timeline/timeline.h"

namespace pipetwin {

class Plan;

/// Three definitions of the bubble, and one of them without recompute. T = pipeline time, p =
/// ranks, work = all F, I, W, B and R of all ranks, ideal = the largest over ranks of the rank's
/// own work.
struct Bubble {
    double total = 0;                    ///< 1 - work / (p T). GPipe, section 2.3
    double total_without_recompute = 0;  ///< 1 - (work without R) / (p T)
    double ideal = 0;                    ///< T / ideal - 1. Megatron's "(p - 1) / m"
    double span = 0;  ///< 1 - ideal / (largest over ranks of last end - first start). Zero-bubble
};

/// Compute times of one rank in one timeline.
struct RankWork {
    Duration busy{};  ///< F, B, I, W and R, without what they waited for
    Duration recompute{};
    Duration first_begin = Duration::max();  ///< of its compute
    Duration last_end = Duration::min();
};

/// Times and peak memory of one rank in one timeline.
struct DeviceMetrics {
    int rank = 0;
    Duration busy{};  ///< F, B, I, W and R
    Duration idle{};  ///< pipeline time - busy
    int peak_live_activations = 0;
    MemoryPeak peak;
    Duration peak_time{};  ///< when it is reached
};

/// The action that reaches the device's peak; none where it is there before the first.
std::optional<Action> peak_action(const Plan& plan, const DeviceMetrics& device);

/// Metrics that follow from the times of a step alone.
struct TimeMetrics {
    Duration makespan{};                       ///< pipeline time
    Duration step{};                           ///< step time
    std::optional<double> samples_per_second;  ///< from the step time
    Bubble bubble;
};

/// All metrics of a timeline: those of the times, and those of each rank.
struct Metrics : TimeMetrics {
    std::vector<DeviceMetrics> devices;  ///< [rank]
};

/// Computes all metrics of a timeline. Pipeline time ends at compute spans: T runs from the first
/// begin to the last end of the pipeline's actions (NORM, OPT and REDUCE_GRAD excluded).
Metrics measure(const Plan& plan, const Timeline& timeline);

/// Computes the metrics that need times only, without those of single ranks and their memory.
TimeMetrics measure_times(const Plan& plan, const Timeline& timeline);
TimeMetrics measure_times(const Plan& plan, const StepTimes& times);

/// Computes the metrics of the times from the work of the ranks, where that is known. `makespan` is
/// the pipeline time, `step` the step time.
TimeMetrics measure_times(const Plan& plan,
                          const std::vector<RankWork>& ranks,
                          Duration makespan,
                          Duration step);

/// Where a step's time went: the mean over ranks; the parts sum to the step time exactly (in
/// nanoseconds, the remainder of the division by the number of ranks goes to `overhead`). Words of
/// the command line's `breakdown_ms`; filled by sim/explain/breakdown.h.
struct Breakdown {
    Duration forward{};
    Duration backward{};  ///< merged B only
    Duration backward_input{};
    Duration backward_weight{};
    Duration recompute{};
    Duration communication_wait{};  ///< idle that vanishes when every link is free and instant
    Duration imbalance{};           ///< idle that then vanishes when every piece costs the mean
    Duration fill_and_drain{};      ///< the idle left
    Duration reduction{};
    Duration optimizer{};
    Duration overhead{};  ///< dispatch, set-up

    /// Sum of all parts: the step time.
    Duration sum() const;
};

/// One part of a breakdown: its name for a reader, its key in JSON, and its value.
struct BreakdownPart {
    std::string_view words;
    std::string_view key;
    Duration Breakdown::*value;
};
/// All parts of a breakdown, in the order in which they are listed.
inline constexpr std::array breakdown_parts{
    BreakdownPart{"forward", "forward", &Breakdown::forward},
    BreakdownPart{"backward", "backward", &Breakdown::backward},
    BreakdownPart{"input gradient", "backward_input", &Breakdown::backward_input},
    BreakdownPart{"weight gradient", "backward_weight", &Breakdown::backward_weight},
    BreakdownPart{"recompute", "recompute", &Breakdown::recompute},
    BreakdownPart{"communication wait", "communication_wait", &Breakdown::communication_wait},
    BreakdownPart{"imbalance", "imbalance", &Breakdown::imbalance},
    BreakdownPart{"fill and drain", "fill_and_drain", &Breakdown::fill_and_drain},
    BreakdownPart{"reduction", "reduction", &Breakdown::reduction},
    BreakdownPart{"optimizer", "optimizer", &Breakdown::optimizer},
    BreakdownPart{"overhead", "overhead", &Breakdown::overhead}};

/// Idle time of a step by its place in the row, mean over ranks.
struct IdleTime {
    Duration warm_up{};        ///< before the rank's first compute
    Duration steady{};         ///< between its first and its last compute, back-pressure apart
    Duration drain{};          ///< after its last compute
    Duration back_pressure{};  ///< sends that waited for room
};

/// Computes the idle time of a timeline by its place in the row.
IdleTime idle_time(const Plan& plan, const Timeline& timeline);

}  // namespace pipetwin
