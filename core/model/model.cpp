#include "core/model/model.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "core/base/as_index.h"
#include "core/base/error.h"
#include "core/base/number_text.h"
#include "core/model/layer_graph.h"
#include "core/model/layer_placement.h"

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

/// The layer that ends the model: a loss that no layer reads, else the last that none reads.
std::size_t last_of(const std::vector<LayerSpec>& layers, const std::vector<bool>& is_read) {
    std::size_t last = layers.size() - 1;
    bool is_loss = false;
    bool is_found = false;
    for (std::size_t layer = 0; layer < layers.size(); ++layer) {
        const bool loss = ends_with_loss(layers[layer]);
        if (!is_read[layer] && (loss || !is_loss)) {
            last = layer;
            is_loss = loss;
            is_found = true;
        }
    }
    return is_found ? last : layers.size() - 1;
}

void find_unread(const std::vector<LayerSpec>& layers, LayerGraph& graph) {
    const std::size_t last = last_of(layers, graph.is_read);
    for (std::size_t layer = 0; layer < layers.size(); ++layer) {
        if (graph.is_read[layer] || layer == last) {
            continue;
        }
        graph.faults.push_back(
            {static_cast<int>(layer),
             Error(ErrorKind::BadInput,
                   fmt::format("model, layer '{}'", layers[layer].name),
                   ends_with_loss(layers[layer])
                       ? fmt::format("a loss besides '{}', expected one in a model",
                                     layers[last].name)
                       : "no layer reads its output, expected one that does",
                   "name it in the inputs of a later layer, or take it out")});
    }
}

/// Gives the layers of a list their shapes, in an order in which each stands behind its inputs.
class ShapeWalk {
  public:
    ShapeWalk(SampleShape input, std::vector<LayerSpec>& layers, LayerGraph& graph)
        : input_(input), layers_(layers), graph_(graph), placed_(layers.size()) {}

    void place_all() {
        for (const int layer : graph_.order) {
            place(as_index(layer));
        }
    }

    /// The layer at a place of the list, which has no fault.
    Layer take(std::size_t layer) {
        const std::vector<int>& sources = graph_.inputs[layer];
        const SampleShape input =
            sources.empty() ? input_ : placed_[as_index(sources.front())]->output;
        const Placed& placed = *placed_[layer];
        return {std::move(layers_[layer]), input, placed.output, placed.parameters};
    }

  private:
    /// What a layer reads; none where that follows from a layer with a fault.
    std::optional<std::vector<JoinedInput>> inputs_of(std::size_t layer) const {
        if (!graph_.is_resolved[layer]) {
            return std::nullopt;
        }
        std::vector<JoinedInput> inputs;
        for (const int source : graph_.inputs[layer]) {
            const std::optional<Placed>& placed = placed_[as_index(source)];
            if (!placed) {
                return std::nullopt;
            }
            inputs.push_back({layers_[as_index(source)].name, placed->output});
        }
        if (inputs.empty()) {
            inputs.push_back({"", input_});
        }
        return inputs;
    }

    void place(std::size_t layer) {
        const std::optional<std::vector<JoinedInput>> inputs = inputs_of(layer);
        if (!inputs) {
            return;
        }
        try {
            LayerSpec& spec = layers_[layer];
            const Placed placed = placement_.place_unit(spec, *inputs);
            parameters_ = checked_sum(spec.name, parameters_, placed.parameters);
            placed_[layer] = placed;
        } catch (const Error& error) {
            graph_.faults.push_back({static_cast<int>(layer), error});
        }
    }

    SampleShape input_;
    std::vector<LayerSpec>& layers_;
    LayerGraph& graph_;
    LayerPlacement placement_;
    std::vector<std::optional<Placed>> placed_;  ///< [layer] none before its turn, and with a fault
    std::int64_t parameters_ = 0;
};

/// The layers that each reads, by their places in the order, in place of those in the list.
std::vector<std::vector<int>> in_order(const LayerGraph& graph) {
    std::vector<int> index_of(graph.order.size());
    std::vector<std::vector<int>> inputs(graph.order.size());
    for (std::size_t index = 0; index < graph.order.size(); ++index) {
        const std::size_t listed = as_index(graph.order[index]);
        index_of[listed] = static_cast<int>(index);
        for (const int input : graph.inputs[listed]) {
            inputs[index].push_back(index_of[as_index(input)]);
        }
    }
    return inputs;
}

void throw_if_any(std::vector<LayerFault>& faults) {
    if (!faults.empty()) {
        std::ranges::stable_sort(faults, {}, &LayerFault::layer);
        throw LayerFaults(std::move(faults));
    }
}

}  // namespace

bool ends_with_loss(const LayerSpec& layer) {
    const LayerSpec* last = &layer;
    while (last->type == LayerType::Sequence && !last->inner.empty()) {
        last = &last->inner.back();
    }
    return last->type == LayerType::CrossEntropy || last->type == LayerType::BinaryCrossEntropy;
}

Model Model::chain(SampleShape input, std::vector<LayerSpec> layers) {
    for (const LayerSpec& layer : layers) {
        PIPETWIN_EXPECT(layer.inputs.empty(), "a layer of a chain names no inputs");
    }
    return graph(input, std::move(layers));
}

Model Model::graph(SampleShape input, std::vector<LayerSpec> layers) {
    expect_layer_count(layers.size());
    expect_sample(input);
    std::vector<NamedReads> names;
    names.reserve(layers.size());
    for (std::size_t i = 0; i < layers.size(); ++i) {
        LayerSpec& layer = layers[i];
        layer.name = layer.name.empty() ? name_without_own(layer, static_cast<int>(i)) : layer.name;
        names.push_back({layer.name, layer.inputs});
    }
    LayerGraph graph = layer_graph(names);
    find_unread(layers, graph);
    ShapeWalk walk(input, layers, graph);
    walk.place_all();
    throw_if_any(graph.faults);
    std::vector<Layer> ordered;
    ordered.reserve(layers.size());
    for (const int listed : graph.order) {
        ordered.push_back(walk.take(as_index(listed)));
    }
    return Model(std::move(ordered), in_order(graph));
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
                               {.positions = first.vocabulary, .width = first.outputs});
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

Model gpt_model(const GptSizes& sizes) {
    constexpr int most_blocks = (static_cast<int>(most_layers) - 2) / 2;
    if (sizes.layers < 1 || sizes.layers > most_blocks) {
        throw Error(ErrorKind::BadInput,
                    "model.layers",
                    fmt::format("{}, expected 1 to {}", sizes.layers, most_blocks),
                    "is there a digit too many?");
    }
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
                       {.name = "gelu", .type = LayerType::Gelu},
                       {.name = "down",
                        .type = LayerType::Linear,
                        .outputs = sizes.d_model,
                        .dropout = sizes.dropout}}});
    }
    units.push_back({.name = "head",
                     .type = LayerType::Sequence,
                     .inner = {norm,
                               {.name = "projection",
                                .type = LayerType::Linear,
                                .outputs = sizes.vocabulary,
                                .bias = false,
                                .tied = sizes.tied},
                               {.name = "loss", .type = LayerType::CrossEntropy}}});
    return Model::chain({.token_ids = true, .positions = sizes.context}, std::move(units));
}

Model mlp_model(const std::vector<int>& sizes) {
    if (sizes.size() < 2) {
        throw Error(ErrorKind::BadInput,
                    "model.sizes",
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
