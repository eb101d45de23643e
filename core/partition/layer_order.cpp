// SPDX-License-Identifier: Apache-2.0
#include "core/partition/layer_order.h"

#include <algorithm>
#include <string>
#include <utility>

#include "core/base/as_index.h"
#include "core/base/error.h"
#include "core/model/model.h"
#include "core/partition/graph.h"
#include "core/partition/partition.h"

namespace pipetwin {

namespace {

Duration largest_stage(const std::vector<Duration>& work, const Partition& partition) {
    Duration largest{};
    for (int stage = 0; stage < partition.stage_count(); ++stage) {
        Duration sum{};
        for (int i = 0; i < partition.layers_in(stage); ++i) {
            sum += work[as_index(partition.first_layer(stage) + i)];
        }
        largest = std::max(largest, sum);
    }
    return largest;
}

}  // namespace

Profile in_order(const Profile& profile, const Model& model, const std::vector<int>& order) {
    PIPETWIN_EXPECT(order.size() == profile.layers.size(), "every layer has a place");
    Profile result = profile;
    result.layers.clear();
    for (const int index : order) {
        LayerCost layer = profile.layers[as_index(index)];
        layer.inputs.clear();
        for (const int input : model.inputs_of(index)) {
            layer.inputs.push_back(profile.layers[as_index(input)].name);
        }
        const bool reads_the_one_before =
            !result.layers.empty() && layer.inputs == std::vector{result.layers.back().name};
        if (reads_the_one_before) {
            layer.inputs.clear();
        }
        result.layers.push_back(std::move(layer));
    }
    return result;
}

std::optional<BetterOrder> better_order(const Profile& profile,
                                        const Model& model,
                                        int stages,
                                        int micro_batch_size) {
    if (stages < 2 || model.is_chain()) {
        return std::nullopt;
    }
    std::vector<Duration> work;
    for (const LayerSample& sample : samples_at(profile, micro_batch_size)) {
        work.push_back(sample.forward + sample.backward());
    }
    const GraphSplit split = graph_partition(model, work, stages);
    const Duration before = largest_stage(work, balanced_partition(work, stages));
    if (!split.is_exact || before - split.largest < before / 1'000 + Duration{1}) {
        return std::nullopt;
    }
    return BetterOrder{.profile = in_order(profile, model, split.order),
                       .largest = split.largest,
                       .largest_before = before};
}

}  // namespace pipetwin
