// SPDX-License-Identifier: Apache-2.0
#include "sim/calibration/step_range.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "core/costs/devices/shipped_profiles.h"
#include "core/costs/devices/stack.h"
#include "core/plan/plan.h"
#include "core/scenario/choices.h"
#include "core/scenario/settled_scenario.h"

namespace pipetwin::sim {

namespace {

bool is_estimated(const Plan& plan) {
    const std::optional<CostSource>& source = plan->cost_source;
    return source == CostSource::Estimated || source == CostSource::Datasheet;
}

/// Names of the devices that the plan's costs are for.
std::vector<std::string> devices_of(const SettledScenario& scenario, const Profile& profile) {
    const auto& cluster = scenario.cluster;
    std::vector<std::string> names = cluster.devices;
    if (names.empty()) {
        names.push_back(cluster.device == this_machine ? profile.device : cluster.device);
    }
    return names;
}

}  // namespace

namespace {

/// The share of a device's rate of products that a stack says is sustained; 0: it does not say.
double sustained_share(const Profile& profile, const std::string& device) {
    const Stack::Sustained* const row =
        find_stack(profile.stack)->sustained_of(device, profile.precision);
    return row == nullptr ? 0 : row->share.value;
}

/// The range of costs that a stack estimated: where there are several kinds of devices, the
/// widest.
ErrorRange range_with_stack(RunKind kind,
                            const std::vector<std::string>& devices,
                            const Profile& profile,
                            const std::function<double(double sustained)>& least) {
    ErrorRange widest;
    double sustained = 1;
    for (const std::string& device : devices) {
        kind.device = device;
        sustained = std::min(sustained, sustained_share(profile, device));
        ErrorRange range = estimate_error(kind);
        if (widest.of.empty() || range.high / range.low > widest.high / widest.low) {
            widest = std::move(range);
        }
    }
    widest.low = std::max(widest.low, std::min(1.0, least(sustained)));
    return widest;
}

}  // namespace

namespace {

/// "optimizer, of a node"
std::string shard_text(const SettledScenario::PipelinePart& pipeline) {
    const ShardGroup& group = pipeline.shard_group;
    std::string text(to_string(pipeline.shard));
    if (pipeline.shard != Shard::None && !group.is_all()) {
        text += group.of_node ? ", of a node" : fmt::format(", of {} replicas", group.replicas);
    }
    return text;
}

}  // namespace

MeasuredLayout layout_of_run(const SettledScenario& scenario, const Profile& profile) {
    const SettledScenario::PipelinePart& pipeline = scenario.pipeline;
    const bool of_layers = pipeline.layer_recompute != LayerRecompute::None;
    const int parts = pipeline.data_parallel * pipeline.micro_batches;
    return {.parameters = all_parameters(profile),
            .sequence = profile.tokens_per_sample,
            .device = devices_of(scenario, profile).front(),
            .precision = profile.precision,
            .devices = pipeline.stages * pipeline.data_parallel * pipeline.rank_devices(),
            .stages = pipeline.stages,
            .chunks = pipeline.chunks,
            .tensor_parallel = pipeline.tensor_parallel,
            .context_parallel = pipeline.context_parallel,
            .expert_parallel = pipeline.expert_parallel,
            .micro_batch_size = std::max(1, scenario.training.batch / std::max(1, parts)),
            .recompute = of_layers ? std::string(to_string(pipeline.layer_recompute))
                                   : to_string(pipeline.recompute),
            .shard = shard_text(pipeline),
            .schedule = pipeline.schedule};
}

bool lacks_runs(const Plan& plan, const Profile& profile) {
    return is_estimated(plan) && has_routed_experts(profile) && profile.stack.empty() &&
           profile.run_calibrations.empty();
}

Duration time_of_kernels(const Plan& plan, double sustained) {
    const auto shorter = [sustained](Duration time) { return scaled(time, sustained); };
    Duration most{};
    for (const auto& row : plan->schedule.ranks) {
        Duration sum{};
        for (const Action& action : row) {
            if (is_compute(action.op) && has_micro_batch(action.op)) {
                const Duration messages =
                    plan.with_computation(action, [](Duration) { return Duration{}; });
                sum += shorter(plan.duration(action) - messages);
            }
        }
        most = std::max(most, sum);
    }
    return most;
}

namespace {

/// The runs that corrected the costs, or the stack that these were estimated with.
std::vector<MeasuredLayout> runs_behind(const Profile& profile) {
    std::vector<MeasuredLayout> runs;
    if (!profile.stack.empty()) {
        runs = find_stack(profile.stack, "the profile's stack")->measured;
    }
    for (const RunCalibration& by : profile.run_calibrations) {
        runs.insert(runs.end(), by.layouts.begin(), by.layouts.end());
    }
    return runs;
}

/// None where no run corrected the costs.
std::optional<ErrorRange> range_by_runs(const SettledScenario& scenario, const Profile& profile) {
    const std::vector<MeasuredLayout> runs = runs_behind(profile);
    return runs.empty() ? std::nullopt
                        : std::optional(range_of_measured(runs, layout_of_run(scenario, profile)));
}

}  // namespace

std::optional<ErrorRange> step_range(const Plan& plan,
                                     const SettledScenario& scenario,
                                     const Profile& profile,
                                     Duration step) {
    if (!is_estimated(plan) || lacks_runs(plan, profile)) {
        return std::nullopt;
    }
    const bool experts = has_routed_experts(profile);
    if (experts && profile.stack.empty()) {
        return corrected_error();
    }
    const RunKind kind{.shards_weights = scenario.pipeline.shard == Shard::Weights,
                       .tensor_parallel = scenario.pipeline.tensor_parallel,
                       .calibrated = !profile.run_calibrations.empty(),
                       .stack = profile.stack,
                       .devices = plan.rank_count() * plan->replicas * plan->rank_devices(),
                       .experts = experts};
    if (const auto by_runs = range_by_runs(scenario, profile)) {
        return by_runs;
    }
    if (!kind.stack.empty()) {
        return range_with_stack(
            kind, devices_of(scenario, profile), profile, [&](double sustained) {
                return to_seconds(time_of_kernels(plan, sustained)) / to_seconds(step);
            });
    }
    ErrorRange range = estimate_error(kind);
    if (kind.calibrated) {
        return range;  // a measured run was on the devices
    }
    const std::span<const std::string_view> known = devices_of_runs(kind);
    for (const std::string& device : devices_of(scenario, profile)) {
        if (std::ranges::find(known, device) == known.end()) {
            range.unseen_device = device;
        }
    }
    return range;
}

namespace {

struct Unit {
    std::int64_t nanoseconds;
    std::string_view name;
};

/// The largest unit that a duration has one of.
Unit unit_of(Duration duration) {
    constexpr std::array<Unit, 4> units{
        {{1'000'000'000, "s"}, {1'000'000, "ms"}, {1'000, "us"}, {1, "ns"}}};
    for (const Unit& unit : units) {
        if (duration.count() >= unit.nanoseconds) {
            return unit;
        }
    }
    return units.back();
}

/// Three digits, or all in front of the point.
std::string short_number(double value) {
    return fmt::format("{:.{}f}", value, value < 10 ? 2 : value < 100 ? 1 : 0);
}

}  // namespace

std::string range_text(Duration step, const ErrorRange& range) {
    const Unit unit = unit_of(step);
    const double in_unit =
        static_cast<double>(step.count()) / static_cast<double>(unit.nanoseconds);
    return fmt::format("{} to {} {}",
                       short_number(range.low * in_unit),
                       short_number(range.high * in_unit),
                       unit.name);
}

}  // namespace pipetwin::sim
