// SPDX-License-Identifier: Apache-2.0
#include "core/plan/gathered_weights.h"

#include "core/base/as_index.h"
#include "core/plan/stage_costs.h"
#include "core/plan/tensor_parallel.h"

namespace pipetwin {

namespace {

constexpr MessageLane one_after_the_other{.share = 0, .chunks = 1};

/// Devices that have a copy between them, and one of each copy.
struct Sharers {
    const DeviceGroup& replicas;
    const DeviceGroup& between;
};

/// Times of the messages of a layer's shares.
struct ShareMessages {
    Duration gather{};  ///< of the weights
    Duration sums{};    ///< of the gradients

    ShareMessages& operator+=(const ShareMessages& more) {
        gather += more.gather;
        sums += more.sums;
        return *this;
    }
};

ShareMessages share_messages(const GatheredWeights& gathered,
                             const Sharers& sharers,
                             Bytes weights,
                             int gradient) {
    const auto half = [&](Bytes bytes) {
        return all_reduce_time(gathered.all_reduce, sharers.replicas, bytes) / 2;
    };
    const Bytes gradients = weights * gradient;
    return {
        .gather = gathered.weights ? half(weights) : Duration{},
        .sums = half(gradients) + all_reduce_time(gathered.all_reduce,
                                                  sharers.between,
                                                  part_of(gradients, sharers.replicas.members))};
}

/// Makes the layer longer by what its messages beside the computation add.
void add_waits(LayerSample& sample) {
    LayerMessages& messages = sample.messages;
    messages.forward_wait = added(sample.forward, messages.beside_forward, messages.forward_lane);
    messages.backward_wait =
        added(sample.backward(), messages.beside_backward, messages.backward_lane);
    sample.forward += messages.forward_wait;
    (sample.backward_weight > Duration{} ? sample.backward_weight : sample.backward_input) +=
        messages.backward_wait;
}

}  // namespace

LayerSamples with_gathered_weights(const Profile& profile,
                                   LayerSamples samples,
                                   const GatheredWeights& gathered,
                                   int devices) {
    const int experts_on = gathered.experts ? gathered.experts->replicas.members : 1;
    if (gathered.replicas.members == 1 && experts_on == 1) {
        return samples;
    }
    const int gradient = gradient_bytes_per_byte(profile.precision, gathered.fp32_gradients);
    for (std::size_t layer = 0; layer < samples.size(); ++layer) {
        LayerSample& sample = samples[layer];
        if (gathered.is_measured) {
            sample.messages.beside_forward = sample.replicas_forward;
            sample.messages.beside_backward = sample.replicas_backward;
            sample.messages.forward_lane = sample.messages.backward_lane = one_after_the_other;
            add_waits(sample);
            continue;
        }
        const LayerCost& cost = profile.layers[layer];
        const Bytes experts = gathered.experts ? cost.expert_bytes : Bytes{};
        ShareMessages messages_of =
            share_messages(gathered,
                           {.replicas = gathered.replicas, .between = gathered.between},
                           part_of(cost.parameter_bytes - experts, devices),
                           gradient);
        if (experts > Bytes{}) {
            messages_of += share_messages(
                gathered,
                {.replicas = gathered.experts->replicas, .between = gathered.experts->between},
                part_of(experts, gathered.experts->devices),
                gradient);
        }
        const auto& [gather, sums] = messages_of;
        const Duration gather_beside = gathered.prefetch ? gather : Duration{};
        const Duration before = gather - gather_beside;
        const bool is_alone = gathered.lanes && layer == 0;
        LayerMessages& messages = sample.messages;
        messages.gather = before;
        messages.beside_forward = gather_beside;
        messages.beside_backward = (is_alone ? Duration{} : gather_beside) + sums;
        if (is_alone) {
            messages.forward_lane = messages.backward_lane = one_after_the_other;
        } else if (gathered.lanes) {
            messages.forward_lane = gathered.lanes->weights;
            messages.backward_lane = gathered.lanes->gradients;
        }
        add_waits(sample);
        sample.forward += before;
        sample.backward_input += before;
    }
    return samples;
}

}  // namespace pipetwin
