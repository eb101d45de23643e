// SPDX-License-Identifier: Apache-2.0
#include "core/plan/gathered_weights.h"

#include "core/base/as_index.h"
#include "core/plan/stage_costs.h"
#include "core/plan/tensor_parallel.h"

namespace pipetwin {

namespace {

constexpr MessageLane one_after_the_other{.share = 0, .chunks = 1};

}  // namespace

LayerSamples with_gathered_weights(const Profile& profile,
                                   LayerSamples samples,
                                   const GatheredWeights& gathered,
                                   int devices) {
    if (gathered.replicas.members == 1) {
        return samples;
    }
    const int gradient = gradient_bytes_per_byte(profile.precision, gathered.fp32_gradients);
    for (std::size_t layer = 0; layer < samples.size(); ++layer) {
        LayerSample& sample = samples[layer];
        const Bytes weights = part_of(profile.layers[layer].parameter_bytes, devices);
        const auto half = [&gathered](Bytes bytes) {
            return all_reduce_time(gathered.all_reduce, gathered.replicas, bytes) / 2;
        };
        const Duration gather = gathered.weights ? half(weights) : Duration{};
        const Bytes gradients = weights * gradient;
        const Duration sums =
            half(gradients) + all_reduce_time(gathered.all_reduce,
                                              gathered.between,
                                              part_of(gradients, gathered.replicas.members));
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
            messages.forward_lane.share = gathered.lanes->weights.share;
            messages.backward_lane.share = gathered.lanes->gradients.share;
        }
        messages.forward_wait =
            added(sample.forward, messages.beside_forward, messages.forward_lane);
        messages.backward_wait =
            added(sample.backward(), messages.beside_backward, messages.backward_lane);
        sample.forward += before + messages.forward_wait;
        sample.backward_input += before;
        (sample.backward_weight > Duration{} ? sample.backward_weight : sample.backward_input) +=
            messages.backward_wait;
    }
    return samples;
}

}  // namespace pipetwin
