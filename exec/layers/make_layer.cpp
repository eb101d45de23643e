#include "exec/layers/make_layer.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "core/base/error.h"
#include "exec/layers/attention.h"
#include "exec/layers/cross_entropy.h"
#include "exec/layers/dropout.h"
#include "exec/layers/embedding.h"
#include "exec/layers/gelu.h"
#include "exec/layers/join.h"
#include "exec/layers/layer_norm.h"
#include "exec/layers/linear.h"
#include "exec/layers/norms.h"
#include "exec/layers/rearrangement.h"
#include "exec/layers/rectifier.h"
#include "exec/layers/residual.h"
#include "exec/layers/sequence.h"

namespace pipetwin::exec {

LayerBytes layer_bytes(const Layer& layer, int samples, NumberFormat format) {
    if (layer.spec.type == LayerType::Add || layer.spec.type == LayerType::Concat) {
        // Its inputs are other layers' outputs, and its backward reads nothing but a gradient.
        const std::int64_t rows = std::int64_t{samples} * layer.output.positions;
        const auto width = static_cast<std::int64_t>(size_of(format.real));
        LayerBytes bytes{};
        bytes.output = Bytes{rows * layer.output.width * width};
        bytes.unread_gradient = bytes.output;
        return bytes;
    }
    const std::unique_ptr<ExecutableLayer> made = make_layer(layer.spec, layer.input, format);
    return {
        .input = made->input_bytes(samples),
        .output = made->output_bytes(samples),
        .saved = made->saved_bytes(samples),
        .workspace = made->workspace_bytes(samples),
        .split = made->split_bytes(samples),
        .input_saved = made->unread_bytes(samples) +
                       (made->weight_reads_input() ? Bytes{} : made->input_bytes(samples)),
        .unread_gradient = made->weight_reads_gradient() ? Bytes{} : made->output_bytes(samples)};
}

Bytes running_bytes(const Layer& layer, NumberFormat format) {
    const bool joins = layer.spec.type == LayerType::Add || layer.spec.type == LayerType::Concat;
    return joins ? Bytes{} : make_layer(layer.spec, layer.input, format)->state_bytes();
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
    LayerMaker{LayerType::Linear,
               [](const LayerSpec& spec, const SampleShape& input, NumberFormat format) -> Made {
                   return std::make_unique<Linear>(input,
                                                   LinearOptions{.outputs = spec.outputs,
                                                                 .bias = spec.bias,
                                                                 .tied = spec.tied,
                                                                 .dropout = spec.dropout},
                                                   format);
               }},
    LayerMaker{LayerType::Gelu,
               [](const LayerSpec&, const SampleShape& input, NumberFormat format) -> Made {
                   return std::make_unique<Gelu>(input, format);
               }},
    LayerMaker{LayerType::Dropout,
               [](const LayerSpec& spec, const SampleShape& input, NumberFormat format) -> Made {
                   return std::make_unique<Dropout>(input, spec.dropout, format);
               }},
    LayerMaker{LayerType::Attention,
               [](const LayerSpec& spec, const SampleShape& input, NumberFormat format) -> Made {
                   return std::make_unique<Attention>(input, spec.heads, spec.dropout, format);
               }},
    LayerMaker{LayerType::CrossEntropy,
               [](const LayerSpec&, const SampleShape& input, NumberFormat format) -> Made {
                   return std::make_unique<CrossEntropy>(input, format);
               }},
    LayerMaker{LayerType::Sequence,
               [](const LayerSpec& spec, const SampleShape& input, NumberFormat format) -> Made {
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
                       input, DroppedWhole::Channel, spec.dropout, format);
               }},
    LayerMaker{LayerType::DropPath,
               [](const LayerSpec& spec, const SampleShape& input, NumberFormat format) -> Made {
                   return std::make_unique<DropoutOfWhole>(
                       input, DroppedWhole::Sample, spec.dropout, format);
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
};

}  // namespace

std::unique_ptr<ExecutableLayer> make_layer(const LayerSpec& spec,
                                            const SampleShape& input,
                                            NumberFormat format) {
    const auto maker = std::ranges::find(layer_makers, spec.type, &LayerMaker::type);
    if (maker != layer_makers.end()) {
        return maker->make(spec, input, format);
    }
    throw Error(ErrorKind::Unavailable,
                fmt::format("layer \"{}\"", spec.name),
                "is known by its costs only and cannot be executed",
                "simulate it, or describe the model by layers that are executed");
}

std::unique_ptr<ExecutableLayer> make_layer(const Model& model, int index, NumberFormat format) {
    const Layer& layer = model.layer(index);
    if (layer.spec.type != LayerType::Add && layer.spec.type != LayerType::Concat) {
        return make_layer(layer.spec, layer.input, format);
    }
    std::vector<SampleShape> inputs;
    for (const int source : model.operands_of(index)) {
        inputs.push_back(model.layer(source).output);
    }
    return std::make_unique<Join>(layer.spec.type, inputs, layer.output, format);
}

}  // namespace pipetwin::exec
