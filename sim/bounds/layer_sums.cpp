// SPDX-License-Identifier: Apache-2.0
#include "sim/bounds/layer_sums.h"

#include <algorithm>
#include <cstdint>
#include <limits>

#include "core/partition/partition.h"
#include "core/plan/plan.h"
#include "core/plan/stage_costs.h"
#include "core/scenario/cost_table.h"
#include "core/scenario/division.h"
#include "core/scenario/layer_costs.h"
#include "core/scenario/rank_device.h"
#include "core/scenario/settled_scenario.h"

namespace pipetwin::sim {

namespace {

/// The fastest device for each layer; every device for a machine of one kind.
LayerSamples fastest(const std::vector<LayerSamples>& of_kind) {
    LayerSamples result = of_kind.front();
    for (const LayerSamples& samples : of_kind) {
        for (std::size_t layer = 0; layer < result.size(); ++layer) {
            for (const auto time : {&LayerSample::forward,
                                    &LayerSample::backward_input,
                                    &LayerSample::backward_weight}) {
                result[layer].*time = std::min(result[layer].*time, samples[layer].*time);
            }
        }
    }
    return result;
}

Bytes least_boundary(const LayerSamples& samples) {
    if (samples.size() < 2) {
        return {};
    }
    Bytes least{std::numeric_limits<std::int64_t>::max()};
    for (std::size_t layer = 0; layer + 1 < samples.size(); ++layer) {
        least = std::min(least, samples[layer].output);
    }
    return least;
}

/// Rounded down: the time of a stage is rounded once, and must not be below the sum over its
/// layers.
Duration scaled_down(Duration time, double factor) {
    return Duration(static_cast<std::int64_t>(static_cast<double>(time.count()) * factor));
}

/// What rounding adds to the update of each layer by itself beyond that of a stage, at most: a
/// nanosecond for the parts of experts, and one for each kind of weights whose state has a width of
/// its own.
Duration rounding_of_update(const OptimizerState& state, bool has_experts) {
    const int kinds = has_experts ? 2 : 1;
    return Duration{(has_experts ? 1 : 0) + (state.bytes ? kinds : 0)};
}

/// Modules of all pieces, in all of their blocks.
ModuleRules all_modules(const ModuleRules& rules) {
    OffloadModules away;
    for (std::size_t module = 0; module < offload_module_words.size(); ++module) {
        away.add(static_cast<OffloadModule>(module));
    }
    ModuleRules all;
    if (rules.recompute.as_needed || !rules.recompute.empty()) {
        all.recompute.of_piece = {every_module()};
    }
    if (!rules.offload.empty()) {
        all.offload = {away};
    }
    return all;
}

/// How routed experts are divided, without shares of them among replicas.
std::optional<ExpertRules> whole_experts(const SettledScenario& scenario, const Profile& profile) {
    std::optional<ExpertRules> experts = expert_rules(scenario, profile);
    if (experts) {
        experts->shards = {};
    }
    return experts;
}

/// Replicas that have a state between them, of experts and of other weights, as one: the most or
/// the fewest, as `pick` of two numbers says.
template <class Pick>
StateShards shards_of_both(const SettledScenario& scenario, const Profile& profile, Pick pick) {
    StateShards shards = state_shards(scenario, profile);
    if (const std::optional<ExpertRules> experts = expert_rules(scenario, profile)) {
        for (const auto of :
             {&StateShards::weights, &StateShards::gradients, &StateShards::optimizer}) {
            shards.*of = pick(shards.*of, experts->shards.*of);
        }
    }
    return shards;
}

/// What a stage of one layer keeps free for gathered weights and gradients before their sums.
Bytes room_of(const StageState& layer, const Profile& profile, const WeightRules& rules) {
    StageState shared{.weights = layer.weights};
    DividedWeights weights(profile.precision, rules);
    weights.add(layer.weights);
    share_out(shared, weights, profile.precision, rules);
    return shared.gathered;
}

}  // namespace

RecomputeModules every_module() {
    RecomputeModules all;
    for (std::size_t module = 0; module < recompute_module_words.size(); ++module) {
        all.add(static_cast<RecomputeModule>(module));
    }
    return all;
}

LayerSums layer_sums(const SettledScenario& scenario,
                     const Model& model,
                     const Profile& profile,
                     const Cluster& cluster,
                     int micro_batch_size) {
    const DeviceKinds kinds = device_kinds(cluster);
    const LayerRules rules = cluster.layer_rules();
    return layer_sums(scenario,
                      model,
                      profile,
                      kinds,
                      rules,
                      costs_of_whole_layers(model, profile, {micro_batch_size}, kinds, rules));
}

LayerSums layer_sums(const SettledScenario& scenario,
                     const Model& model,
                     const Profile& profile,
                     const DeviceKinds& kinds,
                     LayerRules rules,
                     const CostTable& whole) {
    const LayerSamples samples = fastest(under_rules(model, profile, whole, rules).front());
    LayerSamples smallest;  // of what pieces may keep
    if (rules.modules.depend_on_pieces()) {
        rules.modules = all_modules(rules.modules);
        smallest = under_rules(model, profile, {{whole.front().front()}}, rules).front().front();
    }
    const auto layers = static_cast<int>(samples.size());
    // On one stage the ends have the tied weights once; a bound must not be above that.
    const std::vector<StageState> states =
        stage_states(tied_counted_once(model, profile),
                     {samples},
                     Partition(std::vector<int>(samples.size(), 1), layers),
                     {.optimizer = optimizer_state(scenario),
                      .devices = rules.tensor.devices,
                      .fp32_gradients = has_fp32_gradients(scenario, profile),
                      .experts = whole_experts(scenario, profile)});
    const Duration rounding =
        rounding_of_update(optimizer_state(scenario), expert_rules(scenario, profile).has_value());
    const double speed = std::ranges::min_element(kinds.speeds, {}, &DeviceSpeed::factor)->factor;
    constexpr auto most = [](int a, int b) { return std::max(a, b); };
    constexpr auto fewest = [](int a, int b) { return std::min(a, b); };
    const StateShards shards = shards_of_both(scenario, profile, most);
    const WeightRules sharing{.fp32_gradients = has_fp32_gradients(scenario, profile),
                              .shards = shards_of_both(scenario, profile, fewest)};
    LayerSums sums{.forward = {{}},
                   .backward_input = {{}},
                   .backward_weight = {{}},
                   .update = {{}},
                   .state = {{}},
                   .weights = {{}},
                   .saved = {{}},
                   .split = {{}},
                   .room = {},
                   .input_gradient = {{}},
                   .input = samples.front().input,
                   .least_boundary = least_boundary(samples),
                   .dispatch = profile.dispatch};
    for (std::size_t layer = 0; layer < samples.size(); ++layer) {
        const LayerSample& sample = samples[layer];
        const StageState& state = states[layer];
        sums.forward.push_back(sums.forward.back() + sample.forward);
        sums.backward_input.push_back(sums.backward_input.back() + sample.backward_input);
        sums.backward_weight.push_back(sums.backward_weight.back() + sample.backward_weight);
        const Duration update = std::max(Duration{}, state.optimizer - rounding);
        sums.update.push_back(sums.update.back() + scaled_down(update, speed) / shards.optimizer);
        sums.state.push_back(sums.state.back() + least_share(state, shards));
        sums.weights.push_back(sums.weights.back() + state.weights);
        const LayerSample& kept = smallest.empty() ? sample : smallest[layer];
        sums.saved.push_back(sums.saved.back() + kept.saved);
        sums.split.push_back(sums.split.back() + kept.split - kept.input_saved);
        sums.room.push_back(room_of(state, profile, sharing));
        sums.input_gradient.push_back(sums.input_gradient.back() +
                                      input_gradient(model, samples, static_cast<int>(layer)));
    }
    return sums;
}

}  // namespace pipetwin::sim
