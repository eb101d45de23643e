// SPDX-License-Identifier: Apache-2.0
#include "exec/layers/make_layer.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include <fmt/format.h>

#include "core/base/error.h"
#include "core/model/inner_layers.h"
#include "core/model/model.h"
#include "exec/layers/makers.h"
#include "exec/layers/sequence.h"

namespace pipetwin::exec {

LayerBytes layer_bytes(const Model& model, int index, int samples, NumberFormat format) {
    const Layer& layer = model.layer(index);
    const std::unique_ptr<ExecutableLayer> made = make_layer(model, index, format);
    LayerBytes bytes{
        .input = made->input_bytes(samples),
        .output = made->output_bytes(samples),
        .saved = made->kept_bytes(samples),
        .workspace = made->workspace_bytes(samples),
        .split = made->split_bytes(samples),
        .input_saved = made->unread_bytes(samples),
        .unread_gradient = made->weight_reads_gradient() ? Bytes{} : made->output_bytes(samples),
        .core = made->core_bytes(samples)};
    const auto* const joining = dynamic_cast<const JoiningLayer*>(made.get());
    if (joining == nullptr || layer.inputs.size() == 1) {
        if (layer.keeps_input.front()) {
            bytes.saved += bytes.input;
            bytes.input_saved += made->weight_reads_input() ? Bytes{} : bytes.input;
        }
        return bytes;
    }
    // The inputs are outputs of other layers, of which it keeps some.
    bytes.input = {};
    for (std::size_t input = 0; input < layer.inputs.size(); ++input) {
        const SampleShape& shape = layer.inputs[input];
        const Bytes read{std::int64_t{samples} * shape.positions * shape.width *
                         static_cast<std::int64_t>(size_of(format.real))};
        bytes.saved += layer.keeps_input[input] ? read : Bytes{};
        bytes.input_saved +=
            layer.keeps_input[input] && !joining->weight_reads(input) ? read : Bytes{};
    }
    return bytes;
}

LayerSample with_bytes(LayerSample sample, const LayerBytes& bytes) {
    sample.input = bytes.input;
    sample.output = bytes.output;
    sample.saved = bytes.saved;
    sample.workspace = bytes.workspace;
    sample.split = bytes.split;
    sample.input_saved = bytes.input_saved;
    sample.unread_gradient = bytes.unread_gradient;
    return sample;
}

Bytes running_bytes(const Layer& layer, NumberFormat format) {
    return make_layer(layer.spec, layer.inputs, format)->state_bytes();
}

namespace {

/// What makes the layers of a type; types that cannot be executed are not among them.
LayerMaker maker_of(LayerType type) {
    static const std::pair<LayerType, LayerMaker> makers[] = {
        {LayerType::Embedding, make_embedding},
        {LayerType::LayerNorm, make_row_norm},
        {LayerType::RmsNorm, make_row_norm},
        {LayerType::SwiGlu, make_swiglu},
        {LayerType::Linear, make_linear},
        {LayerType::Experts, make_experts},
        {LayerType::Gelu, make_gelu},
        {LayerType::Dropout, make_dropout},
        {LayerType::Attention, make_attention},
        {LayerType::Positions, make_positions},
        {LayerType::CrossEntropy, make_cross_entropy},
        {LayerType::BinaryCrossEntropy, make_binary_cross_entropy},
        {LayerType::Sequence, make_sequence},
        {LayerType::Residual, make_residual},
        {LayerType::BatchNorm, make_batch_norm},
        {LayerType::InstanceNorm, make_sample_norm},
        {LayerType::GroupNorm, make_sample_norm},
        {LayerType::Relu, make_rectifier},
        {LayerType::LeakyRelu, make_rectifier},
        {LayerType::ChannelDropout, make_dropout_of_whole},
        {LayerType::DropPath, make_dropout_of_whole},
        {LayerType::Identity, make_reshape},
        {LayerType::Flatten, make_reshape},
        {LayerType::PadChannels, make_channel_padding},
        {LayerType::Conv2d, make_convolution},
        {LayerType::MaxPool, make_max_pool},
        {LayerType::AvgPool, make_average_pool},
        {LayerType::GlobalAvgPool, make_average_pool},
        {LayerType::Upsample, make_upsampling},
        {LayerType::Pad, make_image_padding},
    };
    const auto* const found =
        std::ranges::find(makers, type, &std::pair<LayerType, LayerMaker>::first);
    return found != std::end(makers) ? found->second : nullptr;
}

/// What makes the layers of a type that read several outputs.
JoiningMaker joining_maker_of(LayerType type) {
    switch (type) {
        case LayerType::Sequence:
            return make_graph;
        case LayerType::CrossEntropy:
            return make_cross_entropy_of_two;
        case LayerType::CrossAttention:
            return make_cross_attention;
        default:
            return make_join;
    }
}

}  // namespace

std::unique_ptr<ExecutableLayer> make_layer(const LayerSpec& spec,
                                            const SampleShape& input,
                                            NumberFormat format) {
    if (const LayerMaker maker = maker_of(spec.type)) {
        return maker(spec, input, format);
    }
    PIPETWIN_EXPECT(spec.type == LayerType::Opaque, "a type of layer that is executed");
    throw Error(ErrorKind::Unavailable,
                fmt::format("layer \"{}\"", spec.name),
                "is known by its costs only and cannot be executed",
                "simulate it, or describe the model by layers that are executed");
}

std::unique_ptr<ExecutableLayer> make_layer(const LayerSpec& spec,
                                            const std::vector<SampleShape>& inputs,
                                            NumberFormat format) {
    if (spec.type == LayerType::Opaque || !takes_several(spec, inputs.size())) {
        return make_layer(spec, inputs.empty() ? SampleShape{} : inputs.front(), format);
    }
    return joining_maker_of(spec.type)(spec, inputs, format);
}

std::unique_ptr<ExecutableLayer> make_layer(const Model& model, int index, NumberFormat format) {
    const Layer& layer = model.layer(index);
    if (ends_with_rectifier(layer.spec) && layer.inputs.size() == 1) {
        return std::make_unique<Sequence>(
            layer.spec.inner, layer.input, format, reads_output(model, index));
    }
    return make_layer(layer.spec, layer.inputs, format);
}

}  // namespace pipetwin::exec
