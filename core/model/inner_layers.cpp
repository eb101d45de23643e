#include "core/model/inner_layers.h"

#include <algorithm>
#include <string>
#include <utility>

#include "core/base/as_index.h"
#include "core/base/error.h"
#include "core/model/layer_kinds.h"
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

std::vector<bool> inputs_read_again(const LayerSpec& layer, std::span<const SampleShape> inputs) {
    const LayerKind& kind = layer_kind(layer.type);
    if (!kind.holds_layers) {
        return std::vector<bool>(inputs.size(), kind.backward_reads_input);
    }
    if (!takes_several(layer, inputs.size())) {  // the first layer inside reads it
        return inputs_read_again(layer.inner.front(), inputs);
    }
    std::vector<bool> read(inputs.size(), false);
    for (const InnerLayer& inner : inner_layers(layer, inputs)) {
        const std::vector<bool> own = inputs_read_again(inner.spec, inner.inputs);
        for (std::size_t operand = 0; operand < own.size(); ++operand) {
            const std::size_t value = inner.operands[operand];
            if (value < read.size() && own[operand]) {
                read[value] = true;
            }
        }
    }
    return read;
}

std::vector<bool> inputs_kept(const LayerSpec& layer, std::span<const SampleShape> inputs) {
    return inputs.size() == 1 ? std::vector<bool>{true} : inputs_read_again(layer, inputs);
}

}  // namespace pipetwin
