// SPDX-License-Identifier: Apache-2.0
#include "core/plan/gathered_weights.h"

#include <algorithm>

#include "core/base/as_index.h"
#include "core/plan/stage_costs.h"
#include "core/plan/tensor_parallel.h"

namespace pipetwin {

LayerSamples with_gathered_weights(const Profile& profile,
                                   LayerSamples samples,
                                   const GatheredWeights& gathered,
                                   int devices) {
    if (gathered.replicas.replicas == 1) {
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
                                              part_of(gradients, gathered.replicas.replicas));
        const Duration beside = gathered.prefetch ? gather : Duration{};
        const Duration before = gather - beside;
        LayerMessages& messages = sample.messages;
        messages.gather = before;
        messages.beside_forward = beside;
        messages.beside_backward = beside + sums;
        messages.forward_wait = std::max(Duration{}, beside - sample.forward);
        messages.backward_wait = std::max(Duration{}, beside + sums - sample.backward());
        sample.forward += before + messages.forward_wait;
        sample.backward_input += before;
        (sample.backward_weight > Duration{} ? sample.backward_weight : sample.backward_input) +=
            messages.backward_wait;
    }
    return samples;
}

}  // namespace pipetwin
