#include "core/cost_table.h"

#include <algorithm>
#include <map>
#include <utility>

#include "core/unequal_partition.h"

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

CostTable cost_table(const Model& model,
                     const Profile& profile,
                     const std::vector<int>& micro_batch_sizes,
                     const DeviceKinds& kinds,
                     const TensorParallel& tensor) {
    CostTable table;
    for (const int size : micro_batch_sizes) {
        const LayerSamples samples = samples_at(profile, size);
        std::vector<LayerSamples>& of_kind = table.emplace_back();
        for (const DeviceSpeed& speed : kinds.speeds) {
            of_kind.push_back(with_tensor_parallel(model, on_device(samples, speed), tensor));
        }
    }
    return table;
}

Partition partition_for(const std::vector<LayerSamples>& samples_of_kind,
                        const DeviceKinds& kinds,
                        const Schedule& grid,
                        Recompute recompute) {
    UnequalCosts costs;
    for (const LayerSamples& samples : samples_of_kind) {
        costs.of_layer.push_back(layer_times(samples, recompute));
    }
    if (costs.of_layer.size() == 1) {
        return balanced_partition(costs.of_layer.front(), piece_count(grid));
    }
    std::map<std::pair<int, int>, int>
        shared;  // kinds of both ranks: the kind that stands for both
    for (int piece = 0; piece < piece_count(grid); ++piece) {
        const int twin = twin_of(grid, piece).value_or(piece);
        const auto kind_of = [&](int stage) {
            return static_cast<int>(
                kinds.of(grid.rank_of_stage.at(static_cast<std::size_t>(stage))));
        };
        const std::pair<int, int> pair = std::minmax({kind_of(piece), kind_of(twin)});
        const auto [entry, is_new] =
            shared.try_emplace(pair, static_cast<int>(costs.of_layer.size()));
        if (is_new) {
            std::vector<Duration> slower = costs.of_layer[static_cast<std::size_t>(pair.first)];
            std::ranges::transform(slower,
                                   costs.of_layer[static_cast<std::size_t>(pair.second)],
                                   slower.begin(),
                                   [](Duration a, Duration b) { return std::max(a, b); });
            costs.of_layer.push_back(std::move(slower));
        }
        costs.kind_of_stage.push_back(entry->second);
    }
    return unequal_partition(costs);
}

}  // namespace pipetwin
