// SPDX-License-Identifier: Apache-2.0
#include "core/plan/action_messages.h"

namespace pipetwin {

namespace {

Duration wait_beside(const LayerOverlap& layer) {
    return added(layer.computation, layer.messages, layer.lane);
}

LayerOverlap with_computation(LayerOverlap layer, const OtherTime& other) {
    layer.computation = layer.sums + other(layer.computation - layer.sums);
    return layer;
}

}  // namespace

Duration shards_with(const ActionMessages& messages, const OtherTime& other) {
    Duration shards = messages.shards;
    for (const LayerOverlap& layer : messages.overlaps) {
        shards += wait_beside(with_computation(layer, other)) - wait_beside(layer);
    }
    return shards;
}

Duration with_computation(Duration time,
                          const std::vector<const ActionMessages*>& parts,
                          const OtherTime& other) {
    Duration computation = time;
    Duration rest{};
    for (const ActionMessages* const part : parts) {
        computation -= part->shards + part->tensor;
        rest += shards_with(*part, other) + part->tensor;
    }
    return other(computation) + rest;
}

ActionMessages with_computation(ActionMessages messages, const OtherTime& other) {
    messages.shards = shards_with(messages, other);
    for (LayerOverlap& layer : messages.overlaps) {
        layer = with_computation(layer, other);
    }
    return messages;
}

}  // namespace pipetwin
