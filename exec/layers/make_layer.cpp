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
#include "exec/layers/layer_norm.h"
#include "exec/layers/linear.h"
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

namespace {

/// "'left' and 'right'"
std::string quoted_names(const Model& model, const std::vector<int>& layers) {
    std::string text;
    for (std::size_t i = 0; i < layers.size(); ++i) {
        text += fmt::format("{}'{}'",
                            i == 0                   ? ""
                            : i + 1 == layers.size() ? " and "
                                                     : ", ",
                            model.layer(layers[i]).spec.name);
    }
    return text.empty() ? "no layer" : text;
}

}  // namespace

void refuse_branches(const Model& model) {
    for (int index = 1; index < model.layer_count(); ++index) {
        const std::vector<int>& inputs = model.inputs_of(index);
        if (inputs.size() == 1 && inputs.front() == index - 1) {
            continue;
        }
        throw Error(
            ErrorKind::BadInput,
            "model.layer",
            fmt::format("'{}' reads {}, expected '{}', the layer before it: no branches between "
                        "layers can be trained or measured yet",
                        model.layer(index).spec.name,
                        quoted_names(model, model.operands_of(index)),
                        model.layer(index - 1).spec.name),
            "'pipetwin simulate' and 'pipetwin plan' predict it with --profile FILE; to train it, "
            "put the branch inside one layer, as type = \"residual\" does");
    }
}

}  // namespace pipetwin::exec
