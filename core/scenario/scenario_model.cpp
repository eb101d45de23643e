#include <algorithm>
#include <array>
#include <filesystem>
#include <iterator>

#include <fmt/format.h>

#include "core/base/as_index.h"
#include "core/scenario/scenario_tables.h"
#include "core/scenario/scenario_words.h"

/// [model] and [data].
namespace pipetwin {

namespace {

using std::string_view;

struct LayerWord {
    string_view word;
    LayerType type;
    std::array<string_view, 4> keys;  ///< besides those of every layer; empty where fewer
};

constexpr std::array<LayerWord, 9> layer_words{{
    {"embedding", LayerType::Embedding, {"outputs", "vocabulary", "context", "dropout"}},
    {"layer_norm", LayerType::LayerNorm, {}},
    {"linear", LayerType::Linear, {"outputs", "bias", "dropout"}},
    {"gelu", LayerType::Gelu, {}},
    {"dropout", LayerType::Dropout, {"probability"}},
    {"attention", LayerType::Attention, {"heads", "dropout"}},
    {"residual", LayerType::Residual, {"layer"}},
    {"sequence", LayerType::Sequence, {"layer"}},
    {"cross_entropy", LayerType::CrossEntropy, {}},
}};

const LayerWord& layer_word(const TomlTable& table) {
    std::array<string_view, layer_words.size()> names;
    std::ranges::transform(layer_words, names.begin(), &LayerWord::word);
    const std::optional<std::size_t> index = table.choice("type", names);
    if (!index) {
        table.missing("type", "the type of the layer, as in type = \"linear\"");
    }
    return layer_words.at(*index);
}

std::size_t count_layers(const LayerSpec& spec) {
    std::size_t count = 1;
    for (const LayerSpec& inner : spec.inner) {
        count += count_layers(inner);
    }
    return count;
}

/// Of being dropped; 0 where it is not written.
double read_probability(const TomlTable& table, string_view key) {
    constexpr string_view expected = "a number from 0 up to, but not, 1";
    const double probability = table.number(key, {0, 1}).value_or(0);
    if (probability == 1) {
        table.refuse(key, expected, "with 1 nothing would be left");
    }
    return probability;
}

std::vector<LayerSpec> read_layers(const TomlTable& parent);

LayerSpec read_layer(const TomlTable& table) {
    const LayerWord& word = layer_word(table);
    std::vector<string_view> keys{"type", "name", "repeat"};
    std::ranges::copy_if(
        word.keys, std::back_inserter(keys), [](string_view key) { return !key.empty(); });
    table.expect_keys(keys);

    LayerSpec spec{.name = table.text("name").value_or(""), .type = word.type};
    switch (word.type) {
        case LayerType::Embedding:
            spec.outputs = table.required_int("outputs", any_size);
            spec.vocabulary = as_int(table.integer("vocabulary", any_size), 256);
            spec.context = table.required_int("context", any_size);
            spec.dropout = read_probability(table, "dropout");
            break;
        case LayerType::Dropout:
            if (!table.has("probability")) {
                table.missing("probability", "of being dropped, as in probability = 0.1");
            }
            spec.dropout = read_probability(table, "probability");
            break;
        case LayerType::Linear:
            spec.outputs = table.required_int("outputs", any_size);
            spec.bias = table.boolean("bias").value_or(true);
            spec.dropout = read_probability(table, "dropout");
            break;
        case LayerType::Attention:
            spec.heads = table.required_int("heads", any_size);
            spec.dropout = read_probability(table, "dropout");
            break;
        case LayerType::Residual:
        case LayerType::Sequence:
            spec.inner = read_layers(table);
            break;
        default:
            break;
    }
    return spec;
}

/// The layers of `[[...layer]]`, each as often as its `repeat` says.
std::vector<LayerSpec> read_layers(const TomlTable& parent) {
    std::vector<LayerSpec> layers;
    std::size_t total = 0;
    for (const TomlTable& table : parent.tables("layer")) {
        LayerSpec spec = read_layer(table);
        const int repeat = as_int(table.integer("repeat", layer_range), 1);
        total += as_index(repeat) * count_layers(spec);
        if (total > as_index(layer_range.high)) {
            table.refuse("repeat", fmt::format("at most {} layers in all", layer_range.high));
        }
        for (int copy = 0; copy + 1 < repeat; ++copy) {
            layers.push_back(spec);
        }
        layers.push_back(std::move(spec));
        if (repeat > 1 && !layers.back().name.empty()) {
            for (int copy = 0; copy < repeat; ++copy) {
                LayerSpec& named = layers[layers.size() - as_index(repeat - copy)];
                named.name += fmt::to_string(copy);
            }
        }
    }
    if (layers.empty()) {
        parent.missing("layer", "layers, each in a table of its own");
    }
    return layers;
}

void read_gpt(const TomlTable& table, Scenario::ModelPart& model) {
    table.expect_keys(std::array<string_view, 9>{"kind",
                                                 "layers",
                                                 "d_model",
                                                 "heads",
                                                 "context",
                                                 "vocabulary",
                                                 "feed_forward",
                                                 "tied",
                                                 "dropout"});
    model.gpt.layers = table.required_int("layers", {1, (layer_range.high - 2) / 2});
    model.gpt.d_model = table.required_int("d_model", {1, any_size.high / 4});
    model.gpt.heads = table.required_int("heads", any_size);
    model.gpt.context = table.required_int("context", any_size);
    model.gpt.vocabulary = as_int(table.integer("vocabulary", any_size), 256);
    model.gpt.feed_forward = as_int(table.integer("feed_forward", any_size), 4 * model.gpt.d_model);
    model.gpt.tied = table.boolean("tied").value_or(false);
    model.gpt.dropout = read_probability(table, "dropout");
}

void read_mlp(const TomlTable& table, Scenario::ModelPart& model) {
    table.expect_keys(std::array<string_view, 2>{"kind", "sizes"});
    if (!table.has("sizes")) {
        table.missing("sizes", "inputs, hidden sizes and classes, as in sizes = [784, 512, 10]");
    }
    model.sizes = *table.integers("sizes", any_size);
    if (model.sizes.size() < 2 || std::ssize(model.sizes) > layer_range.high) {
        table.refuse("sizes", fmt::format("2 to {} sizes", layer_range.high));
    }
}

/// A model that begins with an embedding reads `context` token ids, any other `input` numbers.
void read_layers_model(const TomlTable& table, Scenario::ModelPart& model) {
    table.expect_keys(std::array<string_view, 3>{"kind", "input", "layer"});
    model.layers = read_layers(table);
    const LayerSpec* first = &model.layers.front();
    while (first->type == LayerType::Sequence && !first->inner.empty()) {
        first = &first->inner.front();
    }
    if (first->type != LayerType::Embedding) {
        model.input = {.positions = 1, .width = table.required_int("input", any_size)};
        return;
    }
    if (table.has("input")) {
        table.refuse(
            "input", "no such key", "the embedding's context says how many tokens it reads");
    }
    model.input = {.token_ids = true, .positions = first->context};
}

void read_profile_model(const TomlTable& table, Scenario& scenario) {
    table.expect_keys(std::array<string_view, 2>{"kind", "file"});
    const std::optional<std::string> file = table.text("file");
    if (!file || file->empty()) {
        table.missing("file", "the path of a *.profile.json");
    }
    scenario.model.profile = resolve(scenario.file, *file);
}

}  // namespace

void read_model(const TomlTable& table, Scenario& scenario) {
    const std::optional<std::size_t> kind =
        table.choice("kind", words::model_kinds, words::later_model_kinds);
    if (!kind) {
        table.missing("kind", "gpt, mlp, layers or profile");
    }
    scenario.model.kind = static_cast<ModelKind>(*kind);
    switch (scenario.model.kind) {
        case ModelKind::Gpt:
            return read_gpt(table, scenario.model);
        case ModelKind::Mlp:
            return read_mlp(table, scenario.model);
        case ModelKind::Layers:
            return read_layers_model(table, scenario.model);
        case ModelKind::Profile:
            return read_profile_model(table, scenario);
    }
}

namespace {

bool reads_tokens(const Scenario::ModelPart& model) {
    return model.kind == ModelKind::Gpt ||
           (model.kind == ModelKind::Layers && model.input.token_ids);
}

/// Rows of the token table; 0 for a model that reads no tokens.
int vocabulary(const Scenario::ModelPart& model) {
    if (model.kind == ModelKind::Gpt) {
        return model.gpt.vocabulary;
    }
    if (!reads_tokens(model)) {
        return 0;
    }
    const LayerSpec* first = &model.layers.front();
    while (first->type == LayerType::Sequence) {
        first = &first->inner.front();
    }
    return first->vocabulary;
}

/// A path, or a share of the data's end.
void read_validation(const TomlTable& table, Scenario& scenario) {
    if (!table.is_text("validation")) {
        scenario.data.validation_share = table.number("validation", {0, 1}).value_or(0);
        if (scenario.data.validation_share == 1) {
            table.refuse("validation",
                         "a path, or a number from 0 up to, but not, 1",
                         "with 1 nothing would be left to train on");
        }
        return;
    }
    const std::string path = *table.text("validation");
    if (scenario.data.kind == DataKind::Synthetic || path.empty()) {
        table.refuse("validation",
                     path.empty() ? "a path, or a share of the data" : "a share of the data",
                     "as in validation = 0.1");
    }
    scenario.data.validation_path = resolve(scenario.file, path);
}

}  // namespace

void read_data(const TomlTable& table, Scenario& scenario) {
    table.expect_keys(std::array<string_view, 3>{"kind", "path", "validation"});
    const bool tokens = reads_tokens(scenario.model);
    const auto kind = table.choice("kind", words::data_kinds, words::later_data_kinds);
    scenario.data.kind = kind     ? static_cast<DataKind>(*kind)
                         : tokens ? DataKind::Text
                                  : DataKind::Synthetic;
    if (const std::optional<std::string> path = table.text("path"); path && !path->empty()) {
        scenario.data.path = resolve(scenario.file, *path);
    }
    read_validation(table, scenario);
    if (!kind) {
        return;
    }
    const bool from_files = scenario.data.kind != DataKind::Synthetic;
    if (from_files && scenario.data.path.empty()) {
        table.missing("path", "the file or folder of the data");
    }
    if (scenario.model.kind == ModelKind::Profile) {
        return;
    }
    const bool gives_tokens =
        scenario.data.kind == DataKind::Text || scenario.data.kind == DataKind::Tokens;
    if (gives_tokens && !tokens) {
        table.refuse("kind",
                     "mnist or synthetic",
                     fmt::format("{} gives token ids, and this model reads real numbers",
                                 to_string(scenario.data.kind)));
    }
    if (scenario.data.kind == DataKind::Mnist && tokens) {
        table.refuse("kind", "text", "mnist gives real numbers, and this model reads token ids");
    }
    if (scenario.data.kind == DataKind::Text && vocabulary(scenario.model) < 256) {
        table.refuse("kind",
                     "a model with a vocabulary of at least 256",
                     fmt::format("the bytes of a text are its tokens; the model knows {}",
                                 vocabulary(scenario.model)));
    }
}

}  // namespace pipetwin
