// SPDX-License-Identifier: Apache-2.0
#include "exec/layers/make_layer.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "core/base/error.h"
#include "core/model/inner_layers.h"
#include "core/model/model.h"
#include "exec/layers/activations.h"
#include "exec/layers/attention.h"
#include "exec/layers/cross_entropy.h"
#include "exec/layers/dropout.h"
#include "exec/layers/embedding.h"
#include "exec/layers/graph.h"
#include "exec/layers/image/conv2d.h"
#include "exec/layers/image/norms.h"
#include "exec/layers/image/pools.h"
#include "exec/layers/image/rearrangement.h"
#include "exec/layers/image/rectifier.h"
#include "exec/layers/image/resample.h"
#include "exec/layers/join.h"
#include "exec/layers/layer_norm.h"
#include "exec/layers/linear.h"
#include "exec/layers/padded_attention.h"
#include "exec/layers/residual.h"
#include "exec/layers/rms_norm.h"
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
        .unread_gradient = made->weight_reads_gradient() ? Bytes{} : made->output_bytes(samples)};
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

Bytes running_bytes(const Layer& layer, NumberFormat format) {
    return make_layer(layer.spec, layer.inputs, format)->state_bytes();
}

namespace {

using Made = std::unique_ptr<ExecutableLayer>;

/// How a layer of a type is made; types that cannot be executed are not among them.
struct LayerMaker {
    LayerType type;
    Made (*make)(const LayerSpec& spec, const SampleShape& input, NumberFormat format);
};

constexpr std::array layer_makers{
    LayerMaker{LayerType::Embedding,
               [](const LayerSpec& spec, const SampleShape& input, NumberFormat format) -> Made {
                   return std::make_unique<Embedding>(spec, input, format);
               }},
    LayerMaker{LayerType::LayerNorm,
               [](const LayerSpec&, const SampleShape& input, NumberFormat format) -> Made {
                   return std::make_unique<LayerNorm>(input, format);
               }},
    LayerMaker{LayerType::RmsNorm,
               [](const LayerSpec& spec, const SampleShape& input, NumberFormat format) -> Made {
                   return std::make_unique<RmsNorm>(input, spec.epsilon, format);
               }},
    LayerMaker{LayerType::SwiGlu,
               [](const LayerSpec& spec, const SampleShape& input, NumberFormat format) -> Made {
                   return std::make_unique<SwiGlu>(input, output_shape(spec, input), format);
               }},
    LayerMaker{LayerType::Linear,
               [](const LayerSpec& spec, const SampleShape& input, NumberFormat format) -> Made {
                   return std::make_unique<Linear>(input,
                                                   LinearOptions{.outputs = spec.outputs,
                                                                 .bias = spec.bias,
                                                                 .padding = spec.vocabulary_padding,
                                                                 .tied = spec.tied,
                                                                 .dropout = spec.dropout},
                                                   format);
               }},
    LayerMaker{LayerType::Gelu,
               [](const LayerSpec& spec, const SampleShape& input, NumberFormat format) -> Made {
                   return std::make_unique<Gelu>(input, spec.gelu, format);
               }},
    LayerMaker{LayerType::Dropout,
               [](const LayerSpec& spec, const SampleShape& input, NumberFormat format) -> Made {
                   return std::make_unique<Dropout>(input, spec.dropout, format);
               }},
    LayerMaker{LayerType::Attention,
               [](const LayerSpec& spec, const SampleShape& input, NumberFormat format) -> Made {
                   if (spec.causal) {
                       return std::make_unique<Attention>(spec, input, format);
                   }
                   return std::make_unique<PaddedAttention>(spec, input, format);
               }},
    LayerMaker{LayerType::Positions,
               [](const LayerSpec& spec, const SampleShape& input, NumberFormat format) -> Made {
                   return std::make_unique<Positions>(
                       spec.begin, input, output_shape(spec, input), format);
               }},
    LayerMaker{LayerType::CrossEntropy,
               [](const LayerSpec& spec, const SampleShape& input, NumberFormat format) -> Made {
                   return std::make_unique<CrossEntropy>(
                       input,
                       ClassColumns{.smoothing = spec.label_smoothing,
                                    .padding = spec.vocabulary_padding},
                       format);
               }},
    LayerMaker{LayerType::BinaryCrossEntropy,
               [](const LayerSpec&, const SampleShape& input, NumberFormat format) -> Made {
                   return std::make_unique<BinaryCrossEntropy>(input, format);
               }},
    LayerMaker{LayerType::Sequence,
               [](const LayerSpec& spec, const SampleShape& input, NumberFormat format) -> Made {
                   if (has_branches(spec)) {
                       return std::make_unique<Graph>(spec, std::vector{input}, format);
                   }
                   return std::make_unique<Sequence>(spec.inner, input, format);
               }},
    LayerMaker{LayerType::Residual,
               [](const LayerSpec& spec, const SampleShape& input, NumberFormat format) -> Made {
                   return std::make_unique<Residual>(spec.inner, input, format);
               }},
    LayerMaker{LayerType::BatchNorm,
               [](const LayerSpec& spec, const SampleShape& input, NumberFormat format) -> Made {
                   return std::make_unique<BatchNorm>(
                       input,
                       BatchNormOptions{
                           .epsilon = spec.epsilon,
                           .rule = {.momentum = spec.momentum, .cumulative = spec.cumulative},
                           .deferred = spec.deferred},
                       format);
               }},
    LayerMaker{LayerType::InstanceNorm,
               [](const LayerSpec& spec, const SampleShape& input, NumberFormat format) -> Made {
                   return std::make_unique<SampleNorm>(
                       input,
                       SampleNormOptions{
                           .groups = input.width, .has_gain = false, .epsilon = spec.epsilon},
                       format);
               }},
    LayerMaker{LayerType::GroupNorm,
               [](const LayerSpec& spec, const SampleShape& input, NumberFormat format) -> Made {
                   return std::make_unique<SampleNorm>(
                       input,
                       SampleNormOptions{
                           .groups = spec.groups, .has_gain = true, .epsilon = spec.epsilon},
                       format);
               }},
    LayerMaker{LayerType::Relu,
               [](const LayerSpec&, const SampleShape& input, NumberFormat format) -> Made {
                   return std::make_unique<Rectifier>(input, 0, format);
               }},
    LayerMaker{LayerType::LeakyRelu,
               [](const LayerSpec& spec, const SampleShape& input, NumberFormat format) -> Made {
                   return std::make_unique<Rectifier>(input, spec.slope, format);
               }},
    LayerMaker{LayerType::ChannelDropout,
               [](const LayerSpec& spec, const SampleShape& input, NumberFormat format) -> Made {
                   return std::make_unique<DropoutOfWhole>(
                       input,
                       DropoutOfWhole::Options{.part = DroppedWhole::Channel,
                                               .probability = spec.dropout},
                       format);
               }},
    LayerMaker{LayerType::DropPath,
               [](const LayerSpec& spec, const SampleShape& input, NumberFormat format) -> Made {
                   return std::make_unique<DropoutOfWhole>(
                       input,
                       DropoutOfWhole::Options{.part = DroppedWhole::Sample,
                                               .probability = spec.dropout,
                                               .rises = spec.rising},
                       format);
               }},
    LayerMaker{LayerType::Identity,
               [](const LayerSpec&, const SampleShape& input, NumberFormat format) -> Made {
                   return std::make_unique<Reshape>(input, input, format);
               }},
    LayerMaker{LayerType::Flatten,
               [](const LayerSpec&, const SampleShape& input, NumberFormat format) -> Made {
                   return std::make_unique<Reshape>(input, flattened(input), format);
               }},
    LayerMaker{LayerType::PadChannels,
               [](const LayerSpec& spec, const SampleShape& input, NumberFormat format) -> Made {
                   return std::make_unique<PadChannels>(input, spec.outputs, format);
               }},
    LayerMaker{LayerType::Conv2d,
               [](const LayerSpec& spec, const SampleShape& input, NumberFormat format) -> Made {
                   return std::make_unique<Conv2d>(spec, input, format);
               }},
    LayerMaker{LayerType::MaxPool,
               [](const LayerSpec& spec, const SampleShape& input, NumberFormat format) -> Made {
                   return std::make_unique<MaxPool>(spec, input, format);
               }},
    LayerMaker{LayerType::AvgPool,
               [](const LayerSpec& spec, const SampleShape& input, NumberFormat format) -> Made {
                   return std::make_unique<AveragePool>(spec, input, format);
               }},
    LayerMaker{LayerType::GlobalAvgPool,
               [](const LayerSpec& spec, const SampleShape& input, NumberFormat format) -> Made {
                   return std::make_unique<AveragePool>(spec, input, format);
               }},
    LayerMaker{LayerType::Upsample,
               [](const LayerSpec& spec, const SampleShape& input, NumberFormat format) -> Made {
                   return std::make_unique<Upsample>(spec, input, format);
               }},
    LayerMaker{LayerType::Pad,
               [](const LayerSpec& spec, const SampleShape& input, NumberFormat format) -> Made {
                   return std::make_unique<Pad>(spec, input, format);
               }},
};

}  // namespace

std::unique_ptr<ExecutableLayer> make_layer(const LayerSpec& spec,
                                            const SampleShape& input,
                                            NumberFormat format) {
    const auto maker = std::ranges::find(layer_makers, spec.type, &LayerMaker::type);
    if (maker != layer_makers.end()) {
        return maker->make(spec, input, format);
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
    if (spec.type == LayerType::Sequence) {
        return std::make_unique<Graph>(spec, inputs, format);
    }
    if (spec.type == LayerType::CrossEntropy) {
        return std::make_unique<CrossEntropyOfTwo>(
            inputs,
            CrossEntropyOfTwo::Options{.label_smoothing = spec.label_smoothing,
                                       .auxiliary_weight = spec.auxiliary_weight},
            format);
    }
    if (spec.type == LayerType::CrossAttention) {
        return std::make_unique<CrossAttention>(spec, inputs, format);
    }
    return std::make_unique<Join>(spec.type, inputs, joined_output(spec, inputs), format);
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
