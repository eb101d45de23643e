// SPDX-License-Identifier: Apache-2.0
#include "core/scenario/cost_table.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <optional>
#include <tuple>
#include <utility>

#include <fmt/format.h>

#include "core/base/as_index.h"
#include "core/base/error.h"
#include "core/base/number_text.h"
#include "core/costs/estimate_source.h"
#include "core/model/model.h"
#include "core/partition/partition_search.h"
#include "core/plan/layer_recompute.h"
#include "core/plan/offloaded_blocks.h"
#include "core/plan/plan.h"

namespace pipetwin {

DeviceKinds device_kinds(const Cluster& cluster) {
    DeviceKinds kinds;
    for (const RankDevice& device : cluster.devices()) {
        const auto found = std::ranges::find(kinds.speeds, device.speed);
        kinds.of_rank.push_back(static_cast<int>(found - kinds.speeds.begin()));
        if (found == kinds.speeds.end()) {
            kinds.speeds.push_back(device.speed);
        }
    }
    return kinds;
}

namespace {

LayerSamples on_device(const LayerSamples& samples, const DeviceSpeed& speed) {
    LayerSamples result;
    result.reserve(samples.size());
    double seconds = 0;
    for (const LayerSample& sample : samples) {
        result.push_back(on_device(sample, speed));
        seconds += to_seconds(result.back().forward) + to_seconds(result.back().backward_input) +
                   to_seconds(result.back().backward_weight);
    }
    require_bounded_step(seconds, "profile");
    return result;
}

/// A kernel reads the gradients of a micro-batch, which are as wide as the weights, reads their
/// sums and writes them.
void add_accumulation(LayerSamples& samples, std::string_view precision, bool fp32_gradients) {
    const double width = is_half_precision(precision) ? 2 : 4;
    const double sum = fp32_gradients ? 4 : width;
    const double share = (width + 2 * sum) / 8;
    for (LayerSample& sample : samples) {
        const bool is_split = sample.backward_weight > Duration{};
        (is_split ? sample.backward_weight : sample.backward_input) +=
            scaled(sample.accumulation, share);
    }
}

/// What a micro-batch takes of the device's time, layer by layer.
std::vector<Duration> layer_times(const LayerSamples& samples, Recompute recompute) {
    std::vector<Duration> times;
    times.reserve(samples.size());
    for (const LayerSample& layer : samples) {
        const Duration again = recompute == Recompute::None ? Duration{} : layer.forward;
        times.push_back(layer.forward + again + layer.backward());
    }
    return times;
}

}  // namespace

CostTable costs_of_whole_layers(const Model& model,
                                const Profile& profile,
                                const std::vector<int>& micro_batch_sizes,
                                const DeviceKinds& kinds,
                                const LayerRules& rules) {
    require_same_layers(model, profile);
    CostTable table;
    const TensorParallel& tensor = rules.tensor;
    const bool divides = rules.division.needs_estimate();
    const std::optional<Profile> divided =
        divides ? std::optional(divided_profile(profile, rules.division)) : std::nullopt;
    const Profile& costs = divided ? *divided : profile;
    const bool knows = knows_shares(costs, tensor.devices);
    const SharesKnown known = knows && tensor.devices > 1 ? SharesKnown::Yes : SharesKnown::No;
    for (const int size : micro_batch_sizes) {
        const LayerSamples samples = samples_at(costs, size, knows ? tensor.devices : 1);
        std::vector<LayerSamples>& of_kind = table.emplace_back();
        for (DeviceSpeed speed : kinds.speeds) {
            if (known == SharesKnown::Yes) {
                speed.factor *= tensor.devices;  // the samples are of a part already
            }
            LayerSamples of_one =
                with_tensor_parallel(model, costs, on_device(samples, speed), tensor, known);
            of_one = with_context_messages(std::move(of_one), rules.context);
            if (rules.experts) {
                of_one = with_expert_messages(std::move(of_one), *rules.experts);
            }
            of_kind.push_back(std::move(of_one));
        }
    }
    return table;
}

LayerSamples under_rules(const Model& model,
                         const Profile& profile,
                         LayerSamples samples,
                         const LayerRules& rules,
                         const std::vector<ModulesOfLayer>& modules) {
    if (!modules.empty()) {
        samples = with_modules(
            std::move(samples), blocks_of_layers(model), modules, rules.modules.host_link);
    }
    std::vector<bool> keeps;
    std::ranges::transform(modules, std::back_inserter(keeps), &ModulesOfLayer::keeps);
    samples = with_layer_recompute(model, std::move(samples), rules.recompute, keeps);
    samples = with_offloaded_blocks(
        model, std::move(samples), rules.offloaded_blocks, rules.modules.host_link);
    if (rules.accumulates) {
        add_accumulation(samples, profile.precision, rules.fp32_gradients);
    }
    return with_gathered_weights(profile, std::move(samples), rules.gathered, rules.tensor.devices);
}

CostTable cost_table(const Model& model,
                     const Profile& profile,
                     const std::vector<int>& micro_batch_sizes,
                     const DeviceKinds& kinds,
                     const LayerRules& rules) {
    return under_rules(model,
                       profile,
                       costs_of_whole_layers(model, profile, micro_batch_sizes, kinds, rules),
                       rules);
}

CostTable under_rules(const Model& model,
                      const Profile& profile,
                      CostTable table,
                      const LayerRules& rules) {
    const bool are_alike = rules.modules.are_any() && !rules.modules.depend_on_pieces();
    const int layers = model.layer_count();
    LayerRules of_all = rules;
    if (rules.modules.recompute_only > 0) {
        of_all.recompute.mode = LayerRecompute::None;
    }
    for (std::vector<LayerSamples>& of_kind : table) {
        for (LayerSamples& samples : of_kind) {
            std::vector<ModulesOfLayer> modules;
            if (are_alike) {
                modules =
                    modules_of_layers(model, samples, Partition({layers}, layers), rules.modules);
            }
            samples = under_rules(model, profile, std::move(samples), of_all, modules);
        }
    }
    return table;
}

RankChain rank_chain(const std::vector<LayerSamples>& samples_of_kind,
                     const DeviceKinds& kinds,
                     const Schedule& grid,
                     const RecomputeRules& recompute) {
    RankChain chain{.layers = static_cast<int>(samples_of_kind.front().size()),
                    .rank_of_piece = {},
                    .quantities = {}};
    RankQuantity& work = chain.quantities.emplace_back();
    std::map<std::tuple<int, int, bool>, int> known;  // both kinds of device, and whether with R
    std::map<std::pair<int, int>, int> groups;        // the ranks that have a piece
    for (int piece = 0; piece < model_stage_count(grid); ++piece) {
        const int twin = weight_sharing_stage(grid, piece).value_or(piece);
        const auto rank_of = [&](int stage) { return grid.rank_of_stage.at(as_index(stage)); };
        const std::pair<int, int> ranks = std::minmax({rank_of(piece), rank_of(twin)});
        const auto group = groups.try_emplace(ranks, static_cast<int>(groups.size())).first;
        chain.rank_of_piece.push_back(group->second);
        const auto kind_of = [&](int rank) { return static_cast<int>(kinds.of(rank)); };
        const auto [one, other] = std::minmax({kind_of(ranks.first), kind_of(ranks.second)});
        const Recompute mode = recompute.of(piece);
        const auto [entry, is_new] = known.try_emplace(
            std::tuple(one, other, mode != Recompute::None), static_cast<int>(work.before.size()));
        if (is_new) {
            std::vector<Duration> slower = layer_times(samples_of_kind[as_index(one)], mode);
            const std::vector<Duration> times = layer_times(samples_of_kind[as_index(other)], mode);
            std::ranges::transform(slower, times, slower.begin(), [](Duration a, Duration b) {
                return std::max(a, b);
            });
            work.before.push_back(prefix_sums(slower));
        }
        work.kind_of_piece.push_back(entry->second);
    }
    return chain;
}

Partition partition_for(const RankChain& chain) {
    // Without limits there is always a split.
    return {rank_partition(chain).value().sizes, chain.layers};
}

void require_same_layers(const Model& model, const Profile& profile) {
    const auto profiled = static_cast<int>(profile.layers.size());
    if (profiled != model.layer_count()) {
        throw Error(ErrorKind::BadInput,
                    "profile",
                    fmt::format("it has the costs of {}, but the model has {}",
                                counted(profiled, "layer"),
                                model.layer_count()),
                    "profile this model, or name the profile that belongs to it");
    }
    for (int layer = 0; layer < profiled; ++layer) {
        const std::string& expected = model.layer(layer).spec.name;
        const std::string& found = profile.layers[as_index(layer)].name;
        if (found != expected) {
            throw Error(
                ErrorKind::BadInput,
                "profile",
                fmt::format("layer {} is '{}', but '{}' in the model", layer, found, expected),
                "profile this model, or name the profile that belongs to it");
        }
    }
}

}  // namespace pipetwin
