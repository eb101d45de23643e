// SPDX-License-Identifier: Apache-2.0
#include "core/model/image_specs.h"

#include <utility>
#include <vector>

#include <fmt/format.h>

#include "core/base/error.h"
#include "core/model/layer_spec.h"
#include "core/model/pixels.h"

namespace pipetwin {

LayerSpec image_convolution(std::string name, int outputs, Pixels kernel, int stride) {
    const Margins half{.top = kernel.height / 2,
                       .left = kernel.width / 2,
                       .bottom = kernel.height / 2,
                       .right = kernel.width / 2};
    return {.name = std::move(name),
            .type = LayerType::Conv2d,
            .outputs = outputs,
            .bias = false,
            .kernel = kernel,
            .stride = {stride, stride},
            .padding = half};
}

LayerSpec image_pool(std::string name, LayerType type, int kernel, int stride, int padding) {
    return {.name = std::move(name),
            .type = type,
            .kernel = {kernel, kernel},
            .stride = {stride, stride},
            .padding = {padding, padding, padding, padding}};
}

LayerSpec plain_layer(std::string name, LayerType type) {
    return {.name = std::move(name), .type = type};
}

LayerSpec reading(LayerSpec layer, std::vector<std::string> inputs) {
    layer.inputs = std::move(inputs);
    return layer;
}

LayerSpec layer_sequence(std::string name, std::vector<LayerSpec> inner) {
    return {.name = std::move(name), .type = LayerType::Sequence, .inner = std::move(inner)};
}

void refuse_model_key(std::string_view key, std::string text, std::string hint) {
    throw Error(ErrorKind::BadInput,
                KeyValue{fmt::format("model.{}", key)},
                std::move(text),
                std::move(hint));
}

}  // namespace pipetwin
