// SPDX-License-Identifier: Apache-2.0
#include "core/plan/divided_layers.h"

#include <algorithm>

namespace pipetwin {

namespace {

/// Makes forward and backward longer by messages that nothing goes on beside.
void add_messages(LayerSample& sample, Duration forward, Duration backward) {
    sample.forward += forward;
    sample.messages.forward_sums += forward;
    sample.backward_input += backward;
    sample.messages.backward_sums += backward;
}

Duration gather_time(const DeviceGroup& group, Bytes bytes) {
    return collective_time(Collective::AllGather, CollectiveAlgorithm::Auto, group, bytes);
}

Duration exchange_time(const DeviceGroup& group, Bytes bytes) {
    return collective_time(Collective::AllToAll, CollectiveAlgorithm::Auto, group, bytes);
}

/// By how much hops last longer than the steps of attention beside which they go on.
Duration beyond(Duration hop, Duration attention, int steps) {
    return (steps - 1) * std::max(Duration{}, hop - attention / steps);
}

void add_ring(LayerSample& sample, const ContextParallel& context) {
    const int steps = context.ring.members;
    const LayerTraffic& traffic = sample.traffic;
    const Duration keys = gather_time(context.ring, traffic.keys);
    const Duration gradients = gather_time(context.ring, traffic.key_gradients) / (steps - 1);
    if (context.in_steps) {
        add_messages(sample, keys, keys + steps * gradients);
        return;
    }
    const Duration hop = keys / (steps - 1);
    add_messages(sample,
                 beyond(hop, traffic.attention_forward, steps),
                 beyond(hop + gradients, traffic.attention_backward, steps) + gradients);
}

}  // namespace

LayerSamples with_context_messages(LayerSamples samples, const ContextParallel& context) {
    if (context.devices == 1) {
        return samples;
    }
    for (LayerSample& sample : samples) {
        const LayerTraffic& traffic = sample.traffic;
        if (traffic.heads > Bytes{}) {
            const Duration exchanged = exchange_time(context.heads, traffic.heads) +
                                       exchange_time(context.heads, traffic.outputs);
            add_messages(sample, exchanged, exchanged);
        }
        if (traffic.keys == Bytes{}) {
            continue;
        }
        if (context.method == ContextMethod::AllGather && !context.in_steps) {
            const Duration gathered = gather_time(context.ring, traffic.keys);
            const Duration summed = collective_time(
                Collective::ReduceScatter, CollectiveAlgorithm::Auto, context.ring, traffic.keys);
            add_messages(sample, gathered, gathered + summed);
        } else {
            add_ring(sample, context);
        }
    }
    return samples;
}

LayerSamples with_expert_messages(LayerSamples samples, const ExpertParallel& experts) {
    // Counts of rows come to the host, which then launches the exchange: 10 to 50 us
    // (Megatron-LM, core/transformer/moe/token_dispatcher.py).
    constexpr Duration counts = std::chrono::microseconds(30);
    const Collective exchange = experts.dispatch == ExpertDispatch::Nccl
                                    ? Collective::AllToAll
                                    : Collective::AllToAllDeduplicated;
    for (LayerSample& sample : samples) {
        const LayerTraffic& traffic = sample.traffic;
        if (traffic.dispatch == Bytes{}) {
            continue;
        }
        const auto exchanged = [&](Bytes bytes) {
            return collective_time(
                exchange, CollectiveAlgorithm::Auto, experts.parts, bytes, experts.tokens);
        };
        Duration both = exchanged(traffic.dispatch) + exchanged(traffic.combine);
        if (traffic.expert_rows > Bytes{}) {
            both += gather_time(experts.sharing, traffic.expert_rows) +
                    collective_time(Collective::ReduceScatter,
                                    CollectiveAlgorithm::Auto,
                                    experts.sharing,
                                    traffic.expert_rows);
        }
        const bool waits = experts.waits_for_counts && experts.parts.members > 1;
        add_messages(sample, both + (waits ? counts : Duration{}), both);
    }
    return samples;
}

}  // namespace pipetwin
