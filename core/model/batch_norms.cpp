// SPDX-License-Identifier: Apache-2.0
#include "core/model/batch_norms.h"

#include "core/model/inner_layers.h"
#include "core/model/layer_spec.h"
#include "core/model/model.h"

namespace pipetwin {

namespace {

void collect(const LayerSpec& spec,
             const std::string& name,
             const std::vector<SampleShape>& inputs,
             std::vector<PlacedBatchNorm>& found) {
    if (spec.type == LayerType::BatchNorm) {
        found.push_back({.name = name, .spec = spec, .input = inputs.front()});
        return;
    }
    if (spec.type == LayerType::Sequence && takes_several(spec, inputs.size())) {
        for (const InnerLayer& inner : inner_layers(spec, inputs)) {
            collect(inner.spec, name + "." + inner.spec.name, inner.inputs, found);
        }
        return;
    }
    SampleShape shape = inputs.empty() ? SampleShape{} : inputs.front();
    for (const LayerSpec& inner : spec.inner) {
        collect(inner, name + "." + inner.name, {shape}, found);
        if (&inner != &spec.inner.back()) {
            shape = output_shape(inner, shape);
        }
    }
}

}  // namespace

std::vector<PlacedBatchNorm> batch_norms_of(const Layer& layer) {
    std::vector<PlacedBatchNorm> found;
    collect(layer.spec, layer.spec.name, layer.inputs, found);
    return found;
}

namespace {

/// Experts whose choice has biases that move, inside a layer.
std::int64_t biased_experts_of(const LayerSpec& layer) {
    std::int64_t count = layer.type == LayerType::Experts && layer.routing.bias_update > 0
                             ? layer.routing.experts
                             : 0;
    for (const LayerSpec& inner : layer.inner) {
        count += biased_experts_of(inner);
    }
    return count;
}

}  // namespace

std::int64_t running_bytes_of(const Layer& layer, std::int64_t number_bytes) {
    constexpr std::int64_t counter = 4;
    constexpr std::int64_t moment = 8;
    std::int64_t bytes = biased_experts_of(layer.spec) * (number_bytes + 2 * moment);
    for (const PlacedBatchNorm& norm : batch_norms_of(layer)) {
        const std::int64_t channels = norm.input.width;
        const std::int64_t running = 2 * channels * number_bytes + counter;
        bytes += running + (norm.spec.deferred ? 2 * channels * moment : running);
    }
    return bytes;
}

}  // namespace pipetwin
