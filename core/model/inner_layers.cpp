// SPDX-License-Identifier: Apache-2.0
#include "core/model/inner_layers.h"

#include <algorithm>
#include <string>
#include <utility>

#include "core/base/as_index.h"
#include "core/base/error.h"
#include "core/model/layer_kinds.h"
#include "core/model/layer_spec.h"
#include "core/model/model.h"
#include "core/model/placed_graph.h"

namespace pipetwin {

bool has_branches(const LayerSpec& layer) {
    return layer_kind(layer.type).may_branch &&
           std::ranges::any_of(layer.inner, [](const LayerSpec& inner) {
               return !inner.inputs.empty() || layer_kind(inner.type).needs_several;
           });
}

bool takes_several(const LayerSpec& layer, std::size_t inputs) {
    const LayerKind& kind = layer_kind(layer.type);
    const bool joins = kind.needs_several || (kind.join != nullptr && inputs > 1);
    return joins || (kind.may_branch && inputs > 1) || has_branches(layer);
}

std::vector<InnerLayer> inner_layers(const LayerSpec& sequence,
                                     std::span<const SampleShape> inputs) {
    PIPETWIN_EXPECT(!sequence.inner.empty() && !inputs.empty(), "a sequence reads and has layers");
    std::vector<std::string> names;
    for (std::size_t input = 0; input < inputs.size(); ++input) {
        names.push_back(name_of_input(static_cast<int>(input)));
    }
    std::vector<JoinedInput> outside;
    for (std::size_t input = 0; input < inputs.size(); ++input) {
        outside.push_back({names[input], inputs[input]});
    }
    std::vector<LayerSpec> listed = sequence.inner;
    LayerPlacement placement;
    PlacedGraph placed =
        place_graph(placement,
                    listed,
                    {.path = sequence.name, .inputs = static_cast<int>(names.size())},
                    outside);
    throw_if_any(placed.graph.faults);
    const std::vector<std::vector<int>> sources = in_order(placed.graph);
    std::vector<InnerLayer> inner;
    for (std::size_t index = 0; index < sources.size(); ++index) {
        const int own = placed.graph.order[index];
        InnerLayer& layer =
            inner.emplace_back(InnerLayer{.spec = std::move(listed[as_index(own)]),
                                          .operands = {},
                                          .inputs = input_shapes(placed, outside, own),
                                          .output = placed.placed[as_index(own)]->output});
        for (const int source : sources[index]) {
            layer.operands.push_back(is_from_outside(source) ? as_index(from_outside(source))
                                                             : inputs.size() + as_index(source));
        }
    }
    return inner;
}

SampleShape joined_output(const LayerSpec& join, std::span<const SampleShape> inputs) {
    std::vector<JoinedInput> joined;
    for (const SampleShape& shape : inputs) {
        joined.push_back({.layer = {}, .shape = shape});
    }
    return layer_kind(join.type).join(join, join.name, joined).output;
}

namespace {

/// True if the backward of a chain of layers reads what the first of them reads. A loss at its end
/// may have its gradient where its input was.
bool chain_reads(std::span<const LayerSpec> chain, const SampleShape& input) {
    const bool may_read_output =
        can_read_output(chain.front()) && chain.size() > 1 && !ends_with_loss(chain[1]);
    return may_read_output && chain_reads(chain.subspan(1), input)
               ? false
               : inputs_read_again(chain.front(), {&input, 1}).front();
}

}  // namespace

std::vector<InnerReads> inner_reads(const std::vector<InnerLayer>& inner, std::size_t inputs) {
    std::vector<InnerReads> reads(inner.size());
    std::vector<bool> is_kept(inputs + inner.size(), false);  // [value] by one that reads it
    for (std::size_t index = inner.size(); index-- > 0;) {
        const InnerLayer& layer = inner[index];
        reads[index].inputs = inputs_read_again(layer.spec, layer.inputs);
        if (can_read_output(layer.spec) && is_kept[inputs + index]) {
            reads[index] = {.inputs = {false}, .output = true};
        }
        for (std::size_t operand = 0; operand < layer.operands.size(); ++operand) {
            const std::size_t value = layer.operands[operand];
            is_kept[value] = is_kept[value] || reads[index].inputs[operand];
        }
    }
    return reads;
}

std::vector<bool> inputs_read_again(const LayerSpec& layer, std::span<const SampleShape> inputs) {
    const LayerKind& kind = layer_kind(layer.type);
    if (!kind.holds_layers) {
        return std::vector<bool>(inputs.size(), kind.backward_reads_input);
    }
    if (!takes_several(layer, inputs.size())) {
        return {chain_reads(layer.inner, inputs.front())};
    }
    std::vector<bool> read(inputs.size(), false);
    const std::vector<InnerLayer> inner = inner_layers(layer, inputs);
    const std::vector<InnerReads> reads = inner_reads(inner, inputs.size());
    for (std::size_t index = 0; index < inner.size(); ++index) {
        for (std::size_t operand = 0; operand < inner[index].operands.size(); ++operand) {
            const std::size_t value = inner[index].operands[operand];
            if (value < read.size() && reads[index].inputs[operand]) {
                read[value] = true;
            }
        }
    }
    return read;
}

bool can_read_output(const LayerSpec& layer) {
    return layer.type == LayerType::Relu || layer.type == LayerType::LeakyRelu;
}

bool weight_reads_input(const LayerSpec& layer) {
    if (layer.type == LayerType::Sequence && !has_branches(layer)) {
        return weight_reads_input(layer.inner.front());
    }
    return layer.type == LayerType::Linear || layer.type == LayerType::Conv2d ||
           layer.type == LayerType::Experts;
}

bool ends_with_rectifier(const LayerSpec& layer) {
    const std::size_t count = layer.inner.size();
    return layer.type == LayerType::Sequence && count > 1 && !has_branches(layer) &&
           can_read_output(layer.inner.back()) && !can_read_output(layer.inner[count - 2]);
}

bool reads_output(const Model& model, int layer) {
    const Layer& own = model.layer(layer);
    if (ends_with_rectifier(own.spec)) {
        return std::ranges::any_of(model.readers_of(layer), [&](int reader) {
            const std::vector<int>& operands = model.operands_of(reader);
            const auto operand = std::ranges::find(operands, layer) - operands.begin();
            return model.layer(reader).keeps_input[as_index(operand)] &&
                   weight_reads_input(model.layer(reader).spec);
        });
    }
    return layer > 0 && can_read_output(own.spec) && !own.keeps_input.front();
}

bool can_hand_on(const LayerSpec& layer) {
    return layer.type == LayerType::Identity || layer.type == LayerType::Flatten;
}

bool hands_on(const Model& model, int layer) {
    const std::vector<int>& reads = model.operands_of(layer);
    return can_hand_on(model.layer(layer).spec) && reads.size() == 1 &&
           model.readers_of(reads.front()).size() == 1;
}

}  // namespace pipetwin
