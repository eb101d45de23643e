// SPDX-License-Identifier: Apache-2.0
#include "sim/questions/outlook.h"

#include <algorithm>

#include "core/costs/devices/evidence.h"
#include "core/costs/devices/number_type.h"
#include "core/costs/devices/shipped_profiles.h"
#include "core/costs/devices/stack.h"
#include "core/plan/plan.h"
#include "core/scenario/division.h"
#include "core/scenario/rank_device.h"
#include "core/scenario/settled_scenario.h"
#include "sim/calibration/step_range.h"

namespace pipetwin::sim {

namespace {

double device_count(const Plan& plan) {
    return static_cast<double>(plan.rank_count()) * plan->replicas * plan->rank_devices();
}

/// Tokens of a sample: as the profile says, else those of the model's own sequences.
double tokens_per_sample(const SettledScenario& scenario, const Profile& profile) {
    if (profile.tokens_per_sample > 0) {
        return static_cast<double>(profile.tokens_per_sample);
    }
    return scenario.model.tokens_per_sample();
}

/// The device that a rank computes on; null where nothing is known of it.
std::shared_ptr<const DeviceProfile> known_device(const RankDevice& device,
                                                  const Profile& profile) {
    const std::vector<std::string> known = device_names();
    if (device.profile || std::ranges::find(known, profile.device) == known.end()) {
        return device.profile;
    }
    return shared_device(profile.device);
}

/// Operations per second of all devices at their dense rates; none where one is not known.
std::optional<double> dense_rate(const Plan& plan,
                                 const SettledScenario& scenario,
                                 const Profile& profile) {
    double sum = 0;
    for (const RankDevice& device : rank_devices(scenario, profile, plan.rank_count())) {
        const std::shared_ptr<const DeviceProfile> known = known_device(device, profile);
        const auto rate = known ? known->matrix_rates.find(rate_precision(profile.precision))
                                : decltype(known->matrix_rates.end()){};
        if (!known || rate == known->matrix_rates.end()) {
            return std::nullopt;
        }
        sum += rate->second.value;
    }
    return sum * plan->replicas * plan->rank_devices();
}

RunLike run_like(const Plan& plan, const SettledScenario& scenario, const Profile& profile) {
    double parameters = 0;
    for (const LayerCost& layer : profile.layers) {
        parameters += static_cast<double>(layer.parameter_count);
    }
    const std::string& device = scenario.cluster.device;
    return {.stack = profile.stack,
            .device = device.empty() || device == this_machine ? profile.device : device,
            .precision = profile.precision,
            .parameters = std::max(1.0, parameters),
            .experts = routes_experts(profile),
            .devices = static_cast<int>(device_count(plan))};
}

ScaleAssumption scale_assumption(const Plan& plan,
                                 const SettledScenario& scenario,
                                 const Profile& profile,
                                 const RunLike& like,
                                 const Stack& stack) {
    const std::vector<ScaleSeries> series = scale_series(*shipped_evidence());
    const std::optional<double>& of_scenario = scenario.cluster.device_spread;
    const Fact<double>& of_stack = stack.collectives.straggler;
    return {.devices = like.devices,
            .slowest = slowest_device(scenario, profile, plan.rank_count()),
            .deviation = of_scenario.value_or(of_stack.value),
            .source = of_scenario ? std::string() : of_stack.source,
            .nearest = nearest_series(series, like),
            .unexplained_loss = median_unexplained_loss(series),
            .series = static_cast<int>(series.size())};
}

}  // namespace

std::optional<double> Outlook::utilisation() const {
    const auto found = utilisations.find(flops_count);
    return found == utilisations.end() ? std::nullopt : std::optional(found->second);
}

Outlook outlook(const Plan& plan,
                const Metrics& metrics,
                const SettledScenario& scenario,
                const Profile& profile,
                FlopsCount flops_count) {
    Outlook outlook;
    outlook.flops_count = flops_count;
    if (!metrics.samples_per_second) {
        return outlook;
    }
    if (const double tokens = tokens_per_sample(scenario, profile); tokens > 0) {
        outlook.tokens_per_second_per_device =
            *metrics.samples_per_second * tokens / device_count(plan);
    }
    if (const std::optional<double> rate = dense_rate(plan, scenario, profile)) {
        for (const FlopsCount count : flops_counts) {
            if (const auto operations = model_flops(count, scenario, profile)) {
                outlook.utilisations[count] = *operations * *metrics.samples_per_second / *rate;
            }
        }
        if (!outlook.utilisations.empty() && !outlook.utilisation()) {
            outlook.no_utilisation = why_unknown(flops_count, profile);
        }
    }
    outlook.error = step_range(plan, scenario, profile, metrics.step);
    outlook.lacks_runs = lacks_runs(plan, profile);
    const std::shared_ptr<const Stack> stack = stack_of(scenario, profile);
    outlook.stack = stack ? stack->name : std::string();
    if (!profile.stack.empty()) {
        const RunLike like = run_like(plan, scenario, profile);
        outlook.nearest = nearest_runs(*shipped_evidence(), like);
        if (stack) {
            outlook.scale = scale_assumption(plan, scenario, profile, like, *stack);
        }
    }
    return outlook;
}

}  // namespace pipetwin::sim
