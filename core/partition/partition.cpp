// SPDX-License-Identifier: Apache-2.0
#include "core/partition/partition.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include <fmt/format.h>

#include "core/base/as_index.h"
#include "core/base/error.h"
#include "core/base/number_text.h"
#include "core/partition/partition_search.h"

namespace pipetwin {

Partition::Partition(std::vector<int> layers_per_stage, int layer_count)
    : layers_per_stage_(std::move(layers_per_stage)), layer_count_(layer_count) {
    const std::string hint = "write one number of layers per stage, or partition = \"auto\"";
    first_layers_.reserve(layers_per_stage_.size());
    std::int64_t sum = 0;
    for (std::size_t stage = 0; stage < layers_per_stage_.size(); ++stage) {
        const int layers = layers_per_stage_[stage];
        if (layers < 1) {
            throw Error(ErrorKind::BadInput,
                        "partition",
                        fmt::format("stage {} has {} layers, expected at least 1", stage, layers),
                        hint);
        }
        first_layers_.push_back(static_cast<int>(std::min<std::int64_t>(sum, layer_count)));
        sum += layers;
    }
    if (sum != layer_count) {
        throw Error(ErrorKind::BadInput,
                    "partition",
                    fmt::format("{} {} {} together, but the model has {}",
                                counted(layers_per_stage_.size(), "stage"),
                                verb_for(layers_per_stage_.size(), "holds", "hold"),
                                counted(sum, "layer"),
                                layer_count),
                    hint);
    }
}

int Partition::layers_in(int stage) const {
    PIPETWIN_EXPECT(stage >= 0 && stage < stage_count(), "stage out of range");
    return layers_per_stage_[as_index(stage)];
}

int Partition::first_layer(int stage) const {
    PIPETWIN_EXPECT(stage >= 0 && stage < stage_count(), "stage out of range");
    return first_layers_[as_index(stage)];
}

int Partition::stage_of_layer(int layer) const {
    PIPETWIN_EXPECT(layer >= 0 && layer < layer_count_, "layer out of range");
    const auto after = std::upper_bound(first_layers_.begin(), first_layers_.end(), layer);
    return static_cast<int>(after - first_layers_.begin()) - 1;
}

namespace {

/// Filling every stage up to `limit` before opening the next uses the fewest stages that there can
/// be.
bool fits(const std::vector<std::int64_t>& prefix, std::int64_t limit, int stage_count) {
    auto first = prefix.begin();
    for (int stage = 0; stage < stage_count && first + 1 != prefix.end(); ++stage) {
        // The last boundary that is at most `limit` away; stays in place if one layer is too large.
        const bool all_the_rest = prefix.back() - *first <= limit;
        first = all_the_rest ? prefix.end() - 1
                             : std::upper_bound(first, prefix.end(), *first + limit) - 1;
    }
    return first + 1 == prefix.end();
}

/// needed[i]: fewest stages that hold the layers from i on, none of them above `limit`.
///
///     needed[n] = 0,   needed[i] = 1 + needed[r(i)],   r(i) = the furthest boundary within `limit`
std::vector<int> stages_needed(const std::vector<std::int64_t>& prefix, std::int64_t limit) {
    const std::size_t layers = prefix.size() - 1;
    std::vector<int> needed(prefix.size(), 0);
    std::size_t reach = layers;
    for (std::size_t i = layers; i-- > 0;) {
        while (prefix[reach] - prefix[i] > limit) {
            --reach;
        }
        needed[i] = 1 + needed[reach];
    }
    return needed;
}

}  // namespace

Partition balanced_partition(std::span<const Duration> layer_costs, int stage_count) {
    const auto layers = static_cast<int>(layer_costs.size());
    check_stage_count(stage_count, layers);
    const std::vector<std::int64_t> prefix = prefix_sums(layer_costs);
    const std::int64_t least = smallest_limit(
        prefix.back(), [&](std::int64_t limit) { return fits(prefix, limit, stage_count); });
    const std::vector<int> needed = stages_needed(prefix, least);

    // Each stage in turn takes as few layers as it may: the rest must still fit into the stages
    // left. It then also has a layer for each of them, since a rest that fits can always be split
    // further.
    std::vector<int> sizes;
    sizes.reserve(as_index(stage_count));
    std::size_t first = 0;
    for (int left = stage_count - 1; left > 0; --left) {
        std::size_t next = first + 1;
        while (needed[next] > left) {
            ++next;
        }
        sizes.push_back(static_cast<int>(next - first));
        first = next;
    }
    sizes.push_back(layers - static_cast<int>(first));
    return {std::move(sizes), layers};
}

}  // namespace pipetwin
