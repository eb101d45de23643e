#include "core/model/model.h"

#include <algorithm>
#include <limits>
#include <string_view>
#include <unordered_map>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/base/as_index.h"
#include "core/base/error.h"
#include "core/base/number_text.h"
#include "core/model/layer_placement.h"
#include "core/model/topological_order.h"

namespace pipetwin {

std::string to_string(const SampleShape& shape) {
    if (shape.token_ids) {
        return fmt::format("{} token ids", shape.positions);
    }
    return shape.width == 0 ? "a loss" : fmt::format("{} x {}", shape.positions, shape.width);
}

Model Model::chain(SampleShape input, std::vector<LayerSpec> layers) {
    if (layers.empty()) {
        throw Error(ErrorKind::BadInput,
                    "model",
                    "no layers, expected at least one",
                    "add one, as docs/scenario.md shows");
    }
    if (input.positions < 1 || (!input.token_ids && input.width < 1)) {
        throw Error(ErrorKind::BadInput,
                    "model",
                    fmt::format("a sample of {} and width {}, expected at least 1 of each",
                                counted(input.positions, "position"),
                                input.width),
                    "docs/scenario.md says which keys give a sample's size");
    }
    if (layers.size() > most_layers) {
        throw Error(ErrorKind::BadInput,
                    "model",
                    fmt::format("{} layers, expected at most {}", layers.size(), most_layers),
                    "is there a digit too many in a repeat?");
    }
    LayerPlacement placement;
    std::vector<Layer> placed_layers;
    std::vector<std::vector<int>> inputs(layers.size());
    std::int64_t parameters = 0;
    for (std::size_t i = 0; i < layers.size(); ++i) {
        LayerSpec& spec = layers[i];
        const Placed placed = placement.place(spec, "", static_cast<int>(i), input);
        parameters = checked_sum(spec.name, parameters, placed.parameters);
        placed_layers.push_back({std::move(spec), input, placed.output, placed.parameters});
        if (i > 0) {
            inputs[i].push_back(static_cast<int>(i) - 1);
        }
        input = placed.output;
    }
    return Model(std::move(placed_layers), std::move(inputs));
}

namespace {

/// For every named layer the positions (in the list) of the layers that it reads.
std::vector<std::vector<int>> resolve_inputs(const std::vector<Model::Named>& layers) {
    std::unordered_map<std::string_view, int> position;
    for (std::size_t i = 0; i < layers.size(); ++i) {
        if (layers[i].name.empty()) {
            throw Error(ErrorKind::BadInput,
                        "model",
                        fmt::format("layer {} has no name", i),
                        "give it a name of its own");
        }
        if (!position.emplace(layers[i].name, static_cast<int>(i)).second) {
            refuse_layer(layers[i].name, "two layers have this name, expected a name of its own");
        }
    }
    std::vector<std::vector<int>> inputs(layers.size());
    for (std::size_t i = 0; i < layers.size(); ++i) {
        if (layers[i].inputs.empty() && i > 0) {
            inputs[i].push_back(static_cast<int>(i) - 1);
        }
        for (const std::string& name : layers[i].inputs) {
            const auto found = position.find(name);
            if (found == position.end()) {
                refuse_layer(layers[i].name, fmt::format("reads '{}', which is no layer", name));
            }
            if (std::ranges::find(inputs[i], found->second) != inputs[i].end()) {
                refuse_layer(layers[i].name, fmt::format("reads '{}' twice", name));
            }
            inputs[i].push_back(found->second);
        }
    }
    return inputs;
}

[[noreturn]] void refuse_circle(const std::vector<Model::Named>& layers,
                                const std::vector<int>& in_a_circle) {
    constexpr std::size_t named = 8;
    std::vector<std::string_view> names;
    for (const int layer : in_a_circle) {
        if (names.size() < named) {
            names.emplace_back(layers[as_index(layer)].name);
        }
    }
    throw Error(ErrorKind::BadInput,
                "model",
                fmt::format("layers wait for each other in a circle: {}{}",
                            fmt::join(names, ", "),
                            names.size() == named ? ", ..." : ""),
                "let every layer read earlier layers only");
}

}  // namespace

Model Model::opaque(const std::vector<Named>& layers) {
    if (layers.empty() || layers.size() > most_layers) {
        throw Error(ErrorKind::BadInput,
                    "model",
                    fmt::format("{} layers, expected 1 to {}", layers.size(), most_layers),
                    "is there a digit too many in a repeat?");
    }
    const std::vector<std::vector<int>> listed_inputs = resolve_inputs(layers);
    const TopologicalOrder order = topological_order(listed_inputs);
    if (!order.in_a_circle.empty()) {
        refuse_circle(layers, order.in_a_circle);
    }
    std::vector<Layer> ordered(layers.size());
    std::vector<std::vector<int>> inputs(layers.size());
    std::vector<int> index_of(layers.size());
    for (std::size_t index = 0; index < layers.size(); ++index) {
        const std::size_t listed = as_index(order.order[index]);
        index_of[listed] = static_cast<int>(index);
        ordered[index].spec.name = layers[listed].name;
        for (const int input : listed_inputs[listed]) {
            inputs[index].push_back(index_of[as_index(input)]);
        }
    }
    return Model(std::move(ordered), std::move(inputs));
}

Model::Model(std::vector<Layer> layers, std::vector<std::vector<int>> inputs)
    : layers_(std::move(layers)), inputs_(std::move(inputs)), readers_(layers_.size()) {
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
