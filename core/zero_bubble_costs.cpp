#include <algorithm>

#include "core/plan.h"

namespace pipetwin {

namespace {

/// From the end of the action that made a message to the moment when the next rank can use it.
Duration message_time(const LinkCost& link, Bytes message) {
    if (message.count <= 0) {
        return link.latency;
    }
    // A longer one is refused later.
    return link.latency +
           std::min(longest_step,
                    transfer_time(message + link.half_bandwidth, link.bytes_per_second));
}

}  // namespace

ZeroBubbleCosts zero_bubble_costs(const PlanParts& parts) {
    const std::vector<StageCost>& stages = parts.costs.front();
    ZeroBubbleCosts result;
    for (const StageCost& stage : stages) {
        const Duration again =
            parts.recompute == Recompute::None ? Duration{} : parts.dispatch + stage.recompute;
        result.forward.push_back(parts.dispatch + stage.forward);
        result.backward_input.push_back(again + parts.dispatch + stage.backward_input);
        result.backward_weight.push_back(parts.dispatch + stage.backward_weight);
    }
    for (std::size_t boundary = 0; boundary < parts.links.size(); ++boundary) {
        result.latency.push_back(message_time(parts.links[boundary], stages[boundary].output));
    }
    return result;
}

}  // namespace pipetwin
