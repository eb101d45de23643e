// SPDX-License-Identifier: Apache-2.0
#include "core/model/model.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <utility>

#include <fmt/format.h>

#include "core/base/as_index.h"
#include "core/base/error.h"
#include "core/base/number_text.h"
#include "core/model/inner_layers.h"
#include "core/model/layer_graph.h"
#include "core/model/layer_placement.h"
#include "core/model/placed_graph.h"
#include "core/model/transformers.h"

namespace pipetwin {

SampleShape image_shape(Pixels image, int channels) {
    return {.positions = image.height * image.width, .width = channels, .image = image};
}

std::string to_string(const SampleShape& shape) {
    if (shape.token_ids) {
        return fmt::format("{} token ids", shape.positions);
    }
    if (shape.is_image()) {
        return fmt::format(
            "{} x {} pixels x {}", shape.image.height, shape.image.width, shape.width);
    }
    return shape.width == 0 ? "a loss" : fmt::format("{} x {}", shape.positions, shape.width);
}

namespace {

void expect_layer_count(std::size_t count) {
    if (count == 0) {
        throw Error(ErrorKind::BadInput,
                    "model",
                    "no layers, expected at least one",
                    "add one, as docs/scenario.md shows");
    }
    if (count > most_layers) {
        throw Error(ErrorKind::BadInput,
                    "model",
                    fmt::format("{} layers, expected at most {}", count, most_layers),
                    "is there a digit too many in a repeat?");
    }
}

void expect_sample(const SampleShape& input) {
    if (input.positions < 1 || (!input.token_ids && input.width < 1)) {
        throw Error(ErrorKind::BadInput,
                    "model",
                    fmt::format("a sample of {} and width {}, expected at least 1 of each",
                                counted(input.positions, "position"),
                                input.width),
                    "docs/scenario.md says which keys give a sample's size");
    }
}

/// Throws LayerFaults naming the layer that makes more parameters than any model has.
void expect_countable_parameters(const std::vector<LayerSpec>& layers, const PlacedGraph& placed) {
    std::int64_t parameters = 0;
    for (const int layer : placed.graph.order) {
        try {
            parameters = checked_sum(layers[as_index(layer)].name,
                                     parameters,
                                     placed.placed[as_index(layer)]->parameters);
        } catch (const Error& error) {
            throw LayerFaults({{layer, error}});
        }
    }
}

}  // namespace

bool ends_with_loss(const LayerSpec& layer) {
    if (layer.type != LayerType::Sequence || layer.inner.empty()) {
        return layer.type == LayerType::CrossEntropy || layer.type == LayerType::BinaryCrossEntropy;
    }
    // Where the layers inside have branches, any of them may be the last in order.
    return has_branches(layer) ? std::ranges::any_of(layer.inner, ends_with_loss)
                               : ends_with_loss(layer.inner.back());
}

Model Model::chain(SampleShape input, std::vector<LayerSpec> layers) {
    for (const LayerSpec& layer : layers) {
        PIPETWIN_EXPECT(layer.inputs.empty(), "a layer of a chain names no inputs");
    }
    return graph(input, std::move(layers));
}

namespace {

/// True if each layer reads the one before it.
bool is_chain_of(const std::vector<std::vector<int>>& operands) {
    for (std::size_t layer = 1; layer < operands.size(); ++layer) {
        if (operands[layer] != std::vector{static_cast<int>(layer) - 1}) {
            return false;
        }
    }
    return true;
}

/// Says of the layers of a model which inputs their backwards read: from the last layer on, as it
/// may depend on what is behind a layer. In a chain I gives back what W does not read, so there an
/// output must be there for W, too.
void find_what_backwards_read(std::vector<Layer>& layers,
                              const std::vector<std::vector<int>>& operands) {
    const bool needs_weight = is_chain_of(operands);
    std::vector<int> readers(layers.size(), 0);
    for (std::size_t index = 1; index < layers.size(); ++index) {
        for (const int source : operands[index]) {
            ++readers[as_index(source)];
        }
    }
    std::vector<bool> is_kept(layers.size(), false);  // [layer] its output, by a reader
    for (std::size_t index = layers.size(); index-- > 0;) {
        Layer& layer = layers[index];
        layer.keeps_input = inputs_read_again(layer.spec, layer.inputs);
        if (index == 0) {
            // Without parameters it has no gradient to make.
            layer.keeps_input.front() = layer.keeps_input.front() && layer.parameter_count > 0;
            return;
        }
        if (can_read_output(layer.spec) && is_kept[index]) {
            layer.keeps_input.front() = false;
        }
        for (std::size_t operand = 0; operand < operands[index].size(); ++operand) {
            const auto source = as_index(operands[index][operand]);
            const bool goes_on =
                !needs_weight && can_hand_on(layer.spec) && readers[source] == 1 && is_kept[index];
            const bool keeps =
                layer.keeps_input[operand] && (!needs_weight || weight_reads_input(layer.spec));
            is_kept[source] = is_kept[source] || keeps || goes_on;
        }
    }
}

}  // namespace

Model Model::graph(SampleShape input, std::vector<LayerSpec> layers) {
    expect_layer_count(layers.size());
    expect_sample(input);
    const std::vector<JoinedInput> inputs{{.layer = "", .shape = input}};
    LayerPlacement placement;
    PlacedGraph placed = place_graph(placement, layers, {}, inputs);
    throw_if_any(placed.graph.faults);
    expect_countable_parameters(layers, placed);
    std::vector<Layer> ordered;
    ordered.reserve(layers.size());
    for (const int listed : placed.graph.order) {
        LayerSpec& spec = layers[as_index(listed)];
        const Placed& own = *placed.placed[as_index(listed)];
        const std::vector<SampleShape> shapes = input_shapes(placed, inputs, listed);
        ordered.push_back({.spec = std::move(spec),
                           .input = shapes.front(),
                           .output = own.output,
                           .parameter_count = own.parameters,
                           .inputs = shapes});
    }
    std::vector<std::vector<int>> operands = in_order(placed.graph);
    find_what_backwards_read(ordered, operands);
    return Model(std::move(ordered), std::move(operands));
}

Model Model::opaque(const std::vector<Named>& layers) {
    if (layers.empty() || layers.size() > most_layers) {
        throw Error(ErrorKind::BadInput,
                    "model",
                    fmt::format("{} layers, expected 1 to {}", layers.size(), most_layers),
                    "is there a digit too many in a repeat?");
    }
    std::vector<NamedReads> names;
    names.reserve(layers.size());
    for (const Named& layer : layers) {
        if (layer.name.empty()) {
            throw Error(ErrorKind::BadInput,
                        "model",
                        fmt::format("layer {} has no name", names.size()),
                        "give it a name of its own");
        }
        names.push_back({layer.name, layer.inputs});
    }
    LayerGraph graph = layer_graph(names);
    throw_if_any(graph.faults);
    std::vector<Layer> ordered(layers.size());
    for (std::size_t index = 0; index < layers.size(); ++index) {
        ordered[index].spec.name = layers[as_index(graph.order[index])].name;
    }
    return Model(std::move(ordered), in_order(graph));
}

Model::Model(std::vector<Layer> layers, std::vector<std::vector<int>> inputs)
    : layers_(std::move(layers)),
      operands_(std::move(inputs)),
      inputs_(operands_),
      readers_(layers_.size()) {
    std::ranges::transform(
        layers_, std::back_inserter(names_), [](const Layer& layer) { return layer.spec.name; });
    std::erase_if(operands_.front(), is_from_outside);
    std::erase_if(inputs_.front(), is_from_outside);
    for (std::size_t layer = 0; layer < layers_.size(); ++layer) {
        std::ranges::sort(inputs_[layer]);
        for (const int input : inputs_[layer]) {
            readers_[as_index(input)].push_back(static_cast<int>(layer));
        }
    }
}

int Model::layer_count() const {
    return static_cast<int>(layers_.size());
}

const Layer& Model::layer(int index) const {
    PIPETWIN_EXPECT(index >= 0 && index < layer_count(), "layer out of range");
    return layers_[as_index(index)];
}

const std::vector<int>& Model::inputs_of(int index) const {
    PIPETWIN_EXPECT(index >= 0 && index < layer_count(), "layer out of range");
    return inputs_[as_index(index)];
}

const std::vector<int>& Model::operands_of(int index) const {
    PIPETWIN_EXPECT(index >= 0 && index < layer_count(), "layer out of range");
    return operands_[as_index(index)];
}

const std::vector<int>& Model::readers_of(int index) const {
    PIPETWIN_EXPECT(index >= 0 && index < layer_count(), "layer out of range");
    return readers_[as_index(index)];
}

bool Model::is_chain() const {
    for (int index = 0; index < layer_count(); ++index) {
        const std::vector<int> expected =
            index == 0 ? std::vector<int>{} : std::vector<int>{index - 1};
        if (inputs_of(index) != expected) {
            return false;
        }
    }
    return true;
}

namespace {

/// Number of weights that a layer and its inner layers share with the embedding, whose table has
/// the shape `table`.
std::int64_t tied_count_of(const LayerSpec& spec, const SampleShape& table) {
    std::int64_t count = spec.type == LayerType::Linear && spec.tied
                             ? std::int64_t{table.positions} * table.width
                             : 0;
    for (const LayerSpec& inner : spec.inner) {
        count += tied_count_of(inner, table);
    }
    return count;
}

}  // namespace

std::int64_t Model::tied_count() const {
    const LayerSpec& first = layer(0).spec;
    return first.type != LayerType::Embedding || layer_count() < 2
               ? 0
               : tied_count_of(layer(layer_count() - 1).spec,
                               {.positions = first.vocabulary + first.vocabulary_padding,
                                .width = first.outputs});
}

Model Model::with_padded_vocabulary(const std::function<int(int vocabulary)>& padding_of) const {
    Model padded = *this;
    Layer& first = padded.layers_.front();
    Layer& last = padded.layers_.back();
    const std::size_t count = last.spec.inner.size();
    if (first.spec.type != LayerType::Embedding || last.spec.type != LayerType::Sequence ||
        count < 2 || last.inputs.size() != 1 || has_branches(last.spec)) {
        return padded;
    }
    LayerSpec& logits = last.spec.inner[count - 2];
    LayerSpec& loss = last.spec.inner[count - 1];
    // A dropout draws by the places of numbers in a row, which are to be those of the vocabulary.
    if (logits.type != LayerType::Linear || loss.type != LayerType::CrossEntropy ||
        logits.outputs != first.spec.vocabulary || logits.dropout > 0) {
        return padded;
    }
    LayerSpec before = last.spec;
    before.inner.resize(count - 2);
    const int width =
        before.inner.empty() ? last.input.width : output_shape(before, last.input).width;
    const int padding = padding_of(logits.outputs);
    logits.vocabulary_padding = padding;
    loss.vocabulary_padding = padding;
    last.parameter_count += std::int64_t{padding} * (width + (logits.bias ? 1 : 0));
    if (logits.tied) {
        first.spec.vocabulary_padding = padding;
        first.parameter_count += std::int64_t{padding} * first.spec.outputs;
    }
    return padded;
}

bool Model::is_executable() const {
    // A chain refuses opaque layers at every depth, so the outermost type tells.
    for (int index = 0; index < layer_count(); ++index) {
        if (layer(index).spec.type == LayerType::Opaque) {
            return false;
        }
    }
    return true;
}

AttentionSizes attention_sizes(const LayerSpec& spec, int width) {
    return {.heads = spec.heads,
            .key_value_heads = spec.key_value_heads == 0 ? spec.heads : spec.key_value_heads,
            .head_size = spec.head_size == 0 ? width / spec.heads : spec.head_size};
}

Model gpt_model(const GptSizes& sizes) {
    expect_blocks(sizes.layers);
    const int feed_forward =
        sizes.feed_forward == 0
            ? static_cast<int>(std::min<std::int64_t>(4 * std::int64_t{sizes.d_model},
                                                      std::numeric_limits<int>::max()))
            : sizes.feed_forward;
    std::vector<LayerSpec> units;
    units.reserve(2 * static_cast<std::size_t>(sizes.layers) + 2);
    units.push_back({.name = "embedding",
                     .type = LayerType::Embedding,
                     .outputs = sizes.d_model,
                     .vocabulary = sizes.vocabulary,
                     .context = sizes.context,
                     .tied = sizes.tied,
                     .dropout = sizes.dropout});
    const LayerSpec norm{.name = "norm", .type = LayerType::LayerNorm};
    for (int block = 0; block < sizes.layers; ++block) {
        units.push_back({.name = fmt::format("block{}.attention", block),
                         .type = LayerType::Residual,
                         .inner = {norm,
                                   {.name = "attention",
                                    .type = LayerType::Attention,
                                    .heads = sizes.heads,
                                    .dropout = sizes.dropout}}});
        units.push_back(
            {.name = fmt::format("block{}.feed_forward", block),
             .type = LayerType::Residual,
             .inner = {norm,
                       {.name = "up", .type = LayerType::Linear, .outputs = feed_forward},
                       {.name = "gelu", .type = LayerType::Gelu, .gelu = sizes.gelu},
                       {.name = "down",
                        .type = LayerType::Linear,
                        .outputs = sizes.d_model,
                        .dropout = sizes.dropout}}});
    }
    units.push_back(language_head(norm, sizes.vocabulary, sizes.tied));
    return Model::chain({.token_ids = true, .positions = sizes.context}, std::move(units));
}

Model mlp_model(const std::vector<int>& sizes) {
    if (sizes.size() < 2) {
        throw Error(ErrorKind::BadInput,
                    KeyValue{"model.sizes"},
                    fmt::format("{}, expected at least 2: inputs, hidden..., classes",
                                counted(sizes.size(), "size")),
                    "as in sizes = [784, 512, 10]");
    }
    std::vector<LayerSpec> units;
    units.reserve(sizes.size() - 1);
    for (std::size_t i = 1; i < sizes.size(); ++i) {
        const LayerSpec last = i + 1 == sizes.size()
                                   ? LayerSpec{.name = "loss", .type = LayerType::CrossEntropy}
                                   : LayerSpec{.name = "gelu", .type = LayerType::Gelu};
        units.push_back(
            {.name = fmt::format("linear{}", i - 1),
             .type = LayerType::Sequence,
             .inner = {{.name = "linear", .type = LayerType::Linear, .outputs = sizes[i]}, last}});
    }
    return Model::chain({.positions = 1, .width = sizes.front()}, std::move(units));
}

}  // namespace pipetwin
