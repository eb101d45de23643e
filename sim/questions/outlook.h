// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/artifacts/model_flops.h"
#include "core/costs/devices/evidence.h"
#include "core/costs/devices/scale_series.h"
#include "core/costs/estimate_error.h"
#include "core/costs/profile.h"
#include "core/timeline/metrics.h"

namespace pipetwin {

class Plan;
struct SettledScenario;

}  // namespace pipetwin

namespace pipetwin::sim {

/// What the number of devices adds to a step beside its messages: an assumption, and published runs
/// to judge it by.
struct ScaleAssumption {
    int devices = 1;
    /// Computation takes so many times as long as on the mean device: `slowest_device`.
    double slowest = 1;
    double deviation = 0;  ///< standard deviation of the devices' speeds, of which that follows
    std::string source{};  ///< of the deviation: keys of the stack's [sources]; empty: a scenario
    std::optional<ScaleSeries> nearest{};      ///< to the plan, of all series
    std::optional<double> unexplained_loss{};  ///< the median of all series
    int series = 0;                            ///< their number
};

/// What follows from a predicted step beside its times.
struct Outlook {
    /// Tokens of the mini-batch over the step and the devices; none where samples are no sequences,
    /// or their length is not known.
    std::optional<double> tokens_per_second_per_device;
    /// The operations of a step by each count that is known, as a share of what the devices compute
    /// in it at their dense rates. Empty where a device's rate is not known.
    std::map<FlopsCount, double> utilisations;
    FlopsCount flops_count = default_flops_count;  ///< the one that is shown
    /// Why the one that is shown is not known where another is; none otherwise.
    std::optional<UnknownFlops> no_utilisation;
    /// Between what times a measured step is to be expected; none for measured costs.
    std::optional<ErrorRange> error;
    /// True if the range is missing because no published run of a model with experts was compared.
    bool lacks_runs = false;
    std::string stack;  ///< of the costs, else of the cluster; empty: none
    /// Published runs with a stack that are nearest to the plan; empty without a stack.
    std::vector<NearRun> nearest;
    /// None for costs without a stack.
    std::optional<ScaleAssumption> scale;

    /// Model FLOPs utilisation by the count that is shown.
    std::optional<double> utilisation() const;
};

/// The outlook of a scenario's predicted step.
Outlook outlook(const Plan& plan,
                const Metrics& metrics,
                const SettledScenario& scenario,
                const Profile& profile,
                FlopsCount flops_count = default_flops_count);

}  // namespace pipetwin::sim
