#include "core/model/model.h"

#include <algorithm>
#include <limits>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/base/as_index.h"
#include "core/base/error.h"
#include "core/model/topological_order.h"

namespace pipetwin {

namespace {

constexpr std::size_t most_layers = 100'000;
constexpr int deepest_nesting = 64;
/// Above every model there is, and small enough that bytes of all tensors add up without overflow.
constexpr std::int64_t most_numbers = std::int64_t{1} << 50;

[[noreturn]] void refuse(const std::string& name, std::string text, std::string hint = {}) {
    throw Error(ErrorKind::BadInput,
                fmt::format("model, layer '{}'", name),
                std::move(text),
                std::move(hint));
}

std::int64_t checked_sum(const std::string& name, std::int64_t a, std::int64_t b) {
    if (a > most_numbers - b) {
        refuse(name, "more than 2^50 numbers", "check the sizes");
    }
    return a + b;
}

std::int64_t checked_product(const std::string& name, std::int64_t a, std::int64_t b) {
    if (a != 0 && b > most_numbers / a) {
        refuse(name, fmt::format("{} x {} is more than 2^50 numbers", a, b), "check the sizes");
    }
    return a * b;
}

void expect_positive(const std::string& name, std::string_view what, int value) {
    if (value < 1) {
        refuse(name, fmt::format("{} = {}, expected at least 1", what, value));
    }
}

void expect_numbers(const std::string& name, const LayerSpec& spec, const SampleShape& input) {
    if (input.token_ids || input.width < 1) {
        refuse(name,
               fmt::format(
                   "{} reads {}, expected real numbers", to_string(spec.type), to_string(input)),
               input.token_ids ? "put an embedding before it" : "nothing can follow the loss");
    }
}

/// What follows from a layer's place: its output and the number of its parameters.
struct Placed {
    SampleShape output;
    std::int64_t parameters = 0;
};

/// Gives every layer its name and its shapes, in the order of the model.
class Placement {
  public:
    /// `spec` gets a name if it has none; `path` is the name of what holds it, empty at the top.
    Placed place(LayerSpec& spec, const std::string& path, int index, const SampleShape& input) {
        if (++depth_ > deepest_nesting) {
            refuse(path, fmt::format("layers nested deeper than {}", deepest_nesting));
        }
        if (++count_ > most_layers) {
            refuse(path, fmt::format("more than {} layers", most_layers));
        }
        if (spec.name.empty()) {
            spec.name = fmt::format("{}{}", to_string(spec.type), index);
        }
        const std::string name = path.empty() ? spec.name : path + "." + spec.name;
        if (!names_.insert(name).second) {
            refuse(name, "two layers have this name, expected a name of its own");
        }
        if (after_loss_) {
            refuse(name, "stands after the loss", "cross_entropy must be the last layer");
        }
        const Placed placed = shape(spec, name, input);
        checked_product(name, placed.output.positions, placed.output.width);
        --depth_;
        return placed;
    }

  private:
    Placed shape(LayerSpec& spec, const std::string& name, const SampleShape& input) {
        if (!(spec.dropout >= 0 && spec.dropout < 1)) {
            refuse(name, fmt::format("dropout = {}, expected 0 up to, but not, 1", spec.dropout));
        }
        if (spec.type != LayerType::Embedding && spec.type != LayerType::Sequence) {
            expect_numbers(name, spec, input);
        }
        switch (spec.type) {
            case LayerType::Embedding:
                return embedding(spec, name, input);
            case LayerType::LayerNorm:
                return {input, 2 * std::int64_t{input.width}};
            case LayerType::Linear:
                return linear(spec, name, input);
            case LayerType::Gelu:
                return {input, 0};
            case LayerType::Dropout:
                return {input, 0};
            case LayerType::Attention:
                return attention(spec, name, input);
            case LayerType::CrossEntropy:
                after_loss_ = true;
                return {{.positions = 1, .width = 0}, 0};
            case LayerType::Sequence:
                return sequence(spec, name, input);
            case LayerType::Residual:
                return residual(spec, name, input);
            case LayerType::Opaque:
                break;
        }
        refuse(name, "is known by its costs only", "such a model can be planned, not executed");
    }

    Placed embedding(const LayerSpec& spec, const std::string& name, const SampleShape& input) {
        expect_positive(name, "outputs", spec.outputs);
        expect_positive(name, "vocabulary", spec.vocabulary);
        if (!input.token_ids) {
            refuse(name,
                   fmt::format("embedding reads {}, expected token ids", to_string(input)),
                   "only the first layer can be an embedding");
        }
        if (spec.context < 0 || (spec.context > 0 && spec.context < input.positions)) {
            refuse(name,
                   fmt::format("context = {}, expected at least the {} positions of a sample",
                               spec.context,
                               input.positions));
        }
        const std::int64_t rows = std::int64_t{spec.vocabulary} + spec.context;
        table_ = {.positions = spec.vocabulary, .width = spec.outputs};
        return {{.positions = input.positions, .width = spec.outputs},
                checked_product(name, rows, spec.outputs)};
    }

    Placed linear(const LayerSpec& spec, const std::string& name, const SampleShape& input) const {
        expect_positive(name, "outputs", spec.outputs);
        if (spec.tied &&
            (spec.bias || input.width != table_.width || spec.outputs != table_.positions)) {
            refuse(name,
                   fmt::format("{} x {} is tied to a token table of {} x {}, expected the same "
                               "turned round, and no bias",
                               input.width,
                               spec.outputs,
                               table_.positions,
                               table_.width));
        }
        const std::int64_t rows = std::int64_t{input.width} + (spec.bias ? 1 : 0);
        return {{.positions = input.positions, .width = spec.outputs},
                checked_product(name, rows, spec.outputs)};
    }

    /// Query, key and value (d, 3d) and the output projection (d, d), each with a bias.
    static Placed attention(const LayerSpec& spec,
                            const std::string& name,
                            const SampleShape& input) {
        expect_positive(name, "heads", spec.heads);
        if (input.width % spec.heads != 0) {
            refuse(name,
                   fmt::format("{} heads do not divide the width {}", spec.heads, input.width),
                   "choose a number of heads that divides d_model");
        }
        const std::int64_t width = input.width;
        checked_product(name, input.positions, 3 * width);
        return {input, checked_product(name, width + 1, 4 * width)};
    }

    Placed sequence(LayerSpec& spec, const std::string& name, const SampleShape& input) {
        if (spec.inner.empty()) {
            refuse(name,
                   fmt::format("a {} without layers, expected at least one", to_string(spec.type)));
        }
        Placed all{input, 0};
        for (std::size_t i = 0; i < spec.inner.size(); ++i) {
            const Placed one = place(spec.inner[i], name, static_cast<int>(i), all.output);
            all = {one.output, checked_sum(name, all.parameters, one.parameters)};
        }
        return all;
    }

    Placed residual(LayerSpec& spec, const std::string& name, const SampleShape& input) {
        const Placed inner = sequence(spec, name, input);
        if (inner.output != input) {
            refuse(name,
                   fmt::format("inner layers turn {} into {}, expected the same shape",
                               to_string(input),
                               to_string(inner.output)),
                   "a residual adds its input to what its layers make of it");
        }
        return inner;
    }

    std::unordered_set<std::string> names_;
    std::size_t count_ = 0;
    int depth_ = 0;
    bool after_loss_ = false;
    SampleShape table_;  ///< vocabulary x width of the embedding, once it is placed
};

}  // namespace

std::string_view to_string(LayerType type) {
    switch (type) {
        case LayerType::Embedding:
            return "embedding";
        case LayerType::LayerNorm:
            return "layer_norm";
        case LayerType::Linear:
            return "linear";
        case LayerType::Gelu:
            return "gelu";
        case LayerType::Dropout:
            return "dropout";
        case LayerType::Attention:
            return "attention";
        case LayerType::CrossEntropy:
            return "cross_entropy";
        case LayerType::Sequence:
            return "sequence";
        case LayerType::Residual:
            return "residual";
        case LayerType::Opaque:
            return "opaque";
    }
    PIPETWIN_EXPECT(false, "layer type out of range");
}

std::string to_string(const SampleShape& shape) {
    if (shape.token_ids) {
        return fmt::format("{} token ids", shape.positions);
    }
    return shape.width == 0 ? "a loss" : fmt::format("{} x {}", shape.positions, shape.width);
}

Model Model::chain(SampleShape input, std::vector<LayerSpec> layers) {
    if (layers.empty()) {
        throw Error(ErrorKind::BadInput, "model", "no layers, expected at least one");
    }
    if (input.positions < 1 || (!input.token_ids && input.width < 1)) {
        throw Error(
            ErrorKind::BadInput,
            "model",
            fmt::format("a sample of {} positions and width {}, expected at least 1 of each",
                        input.positions,
                        input.width));
    }
    if (layers.size() > most_layers) {
        throw Error(ErrorKind::BadInput,
                    "model",
                    fmt::format("{} layers, expected at most {}", layers.size(), most_layers));
    }
    Placement placement;
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
            throw Error(ErrorKind::BadInput, "model", fmt::format("layer {} has no name", i));
        }
        if (!position.emplace(layers[i].name, static_cast<int>(i)).second) {
            refuse(layers[i].name, "two layers have this name, expected a name of its own");
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
                refuse(layers[i].name, fmt::format("reads '{}', which is no layer", name));
            }
            if (std::ranges::find(inputs[i], found->second) != inputs[i].end()) {
                refuse(layers[i].name, fmt::format("reads '{}' twice", name));
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
                    fmt::format("{} layers, expected 1 to {}", layers.size(), most_layers));
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
                    fmt::format("{}, expected 1 to {}", sizes.layers, most_blocks));
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
        throw Error(
            ErrorKind::BadInput,
            "model.sizes",
            fmt::format("{} sizes, expected at least 2: inputs, hidden..., classes", sizes.size()),
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
