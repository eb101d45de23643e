// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <filesystem>
#include <iterator>
#include <variant>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/base/as_index.h"
#include "core/base/error.h"
#include "core/model/layer_faults.h"
#include "core/model/layer_kinds.h"
#include "core/model/model.h"
#include "core/scenario/scenario_key.h"
#include "core/scenario/scenario_tables.h"
#include "core/scenario/scenario_words.h"

/// [model].
namespace pipetwin {

namespace {

using std::string_view;

constexpr std::array<ScenarioKey, 4> keys_of_every_layer{
    {ScenarioKey{.name = "type"}.takes(Form::Text).says("one of the table below", "required"),
     ScenarioKey{.name = "name"}
         .takes(Form::Text)
         .says("unique among the layers of its list; with `repeat` the copies get `0`, `1`, ... at "
               "the end",
               "type and index: `linear0`, `gelu1`"),
     ScenarioKey{.name = "repeat", .range = layer_range}
         .takes(Form::Integer)
         .says("number of copies of the layer, one after the other", "1"),
     ScenarioKey{.name = "inputs"}
         .takes(Form::Texts)
         .typed("list of names")
         .says(
             "the layers of its list whose outputs it reads; see [branches](#branches). Inside a "
             "`sequence` the names `input0`, `input1`, ... are the inputs of the `sequence`. With "
             "`repeat` only the first copy reads them; each further copy reads the copy before it",
             "the layer before")}};
constexpr string_view layers_key = "layer";  // tables of their own
constexpr string_view image_key = "image";

/// The forms and the range of a key of a layer, by the type of its field.
struct LayerKeyForm {
    ScenarioKey& key;

    void operator()(int LayerSpec::*) const { set(Form::Integer, any_size); }
    void operator()(bool LayerSpec::*) const { set(Form::Boolean, {}); }
    void operator()(double LayerSpec::*) const { set(Form::Number, {0, 1}); }
    void operator()(ShareField) const { set(Form::Number, {0, 1}); }
    void operator()(Pixels LayerSpec::*) const { set(Form::Integer | Form::Integers, any_size); }
    void operator()(Margins LayerSpec::*) const {
        set(Form::Integer | Form::Integers, {-any_size.high, any_size.high});
    }
    void operator()(RotaryField) const { set(Form::Number, {0, 1'000'000'000'000}); }
    void operator()(int Rotary::*) const { set(Form::Integer, any_size); }
    void operator()(int Routing::*) const { set(Form::Integer, any_size); }
    void operator()(bool Routing::*) const { set(Form::Boolean, {}); }
    void operator()(double Routing::*) const { set(Form::Number, {0, 1'000'000}); }
    void operator()(RouterScores Routing::*) const {
        set(Form::Text, {});
        key.words = words::routers;
    }
    void operator()(GeluForm LayerSpec::*) const {
        set(Form::Text, {});
        key.words = words::gelu_approximations;
    }

  private:
    void set(Form forms, Range range) const {
        key.forms = forms;
        key.range = range;
    }
};

/// The keys of one kind of layer, besides those of every layer.
std::vector<ScenarioKey> keys_of(const LayerKind& kind) {
    std::vector<ScenarioKey> keys;
    for (const LayerKey& of_layer : kind.keys()) {
        ScenarioKey key{.name = of_layer.name};
        key.otherwise = of_layer.is_required ? "required" : "";
        std::visit(LayerKeyForm{key}, of_layer.value);
        keys.push_back(key);
    }
    if (kind.holds_layers) {
        keys.push_back({.name = layers_key, .forms = Form::Tables});
    }
    return keys;
}

const LayerKind& kind_of_layer(const TomlTable& table) {
    std::vector<string_view> words;
    for (const LayerKind& kind : written_layer_kinds()) {
        words.push_back(kind.word);
    }
    const std::optional<std::size_t> index = table.choice("type", words);
    if (!index) {
        table.missing("type", "the type of the layer, as in type = \"linear\"");
    }
    return written_layer_kinds()[*index];
}

std::size_t count_layers(const LayerSpec& spec) {
    std::size_t count = 1;
    for (const LayerSpec& inner : spec.inner) {
        count += count_layers(inner);
    }
    return count;
}

constexpr int vocabulary_of_bytes = 256;

/// Where a layer stands: one of the model itself, or of a sequence, may name what it reads.
enum class LayerPlace { InGraph, InChain };

std::vector<LayerSpec> read_layers(const TomlTable& parent, LayerPlace place);

std::vector<std::string> read_inputs(const TomlTable& table, LayerPlace place) {
    if (!table.has("inputs")) {
        return {};
    }
    if (place == LayerPlace::InChain) {
        table.refuse("inputs",
                     "none: a layer of a residual reads the one before it",
                     "layers of the model, and those of a sequence, may name theirs");
    }
    std::vector<std::string> names = *table.texts("inputs");
    if (names.empty()) {
        table.refuse("inputs",
                     "the name of at least one layer",
                     "leave the key out: then it reads the layer before");
    }
    return names;
}

/// One value of a layer, by the type of the field that it goes to.
struct LayerValueReader {
    const TomlTable& table;
    const LayerKey& key;
    LayerSpec& spec;

    void operator()(int LayerSpec::*number) const {
        spec.*number = key.is_required ? table.required_int(key.name, any_size)
                                       : as_int(table.integer(key.name, any_size), key.otherwise);
    }
    void operator()(bool LayerSpec::*answer) const {
        spec.*answer = table.boolean(key.name).value_or(spec.*answer);
    }
    void operator()(ShareField share) const {
        double& value = spec.*share.field;
        value = table.number(key.name, {0, 1}).value_or(value);
    }
    void operator()(Pixels LayerSpec::*size) const {
        constexpr std::string_view expected =
            "a number of pixels, or two of them for height and width, as in [3, 1]";
        if (!table.has(key.name)) {
            if (key.is_required) {
                table.missing(key.name, expected);
            }
            return;
        }
        const std::vector<int> numbers = one_or_more(any_size);
        if (numbers.size() > 2) {
            table.refuse(key.name, expected);
        }
        spec.*size = {.height = numbers.front(), .width = numbers.back()};
    }
    void operator()(Margins LayerSpec::*margins) const {
        constexpr std::string_view expected =
            "a number of pixels, two for above and beside, as in [1, 0], or four for top, left, "
            "bottom and right";
        if (!table.has(key.name)) {
            if (key.is_required) {
                table.missing(key.name, expected);
            }
            return;
        }
        constexpr Range pixels{-any_size.high, any_size.high};
        const std::vector<int> numbers = one_or_more(pixels);
        if (numbers.size() == 4) {
            spec.*margins = {
                .top = numbers[0], .left = numbers[1], .bottom = numbers[2], .right = numbers[3]};
        } else if (numbers.size() <= 2) {
            spec.*margins = {.top = numbers.front(),
                             .left = numbers.back(),
                             .bottom = numbers.front(),
                             .right = numbers.back()};
        } else {
            table.refuse(key.name, expected);
        }
    }
    void operator()(RotaryField number) const {
        constexpr Range above_zero{0, 1'000'000'000'000};
        double& value = spec.rotary.*number.field;
        value = table.number(key.name, above_zero).value_or(value);
        if (table.has(key.name) && value == 0) {
            table.refuse(key.name, "a number above 0");
        }
    }
    void operator()(GeluForm LayerSpec::*form) const {
        if (const auto word = table.choice(key.name, words::gelu_approximations)) {
            spec.*form = static_cast<GeluForm>(*word);
        }
    }
    void operator()(int Rotary::*number) const {
        spec.rotary.*number = as_int(table.integer(key.name, any_size), spec.rotary.*number);
    }
    void operator()(int Routing::*number) const {
        spec.routing.*number =
            key.is_required ? table.required_int(key.name, any_size)
                            : as_int(table.integer(key.name, any_size), spec.routing.*number);
    }
    void operator()(bool Routing::*flag) const {
        spec.routing.*flag = table.boolean(key.name).value_or(spec.routing.*flag);
    }
    void operator()(double Routing::*number) const {
        spec.routing.*number =
            table.number(key.name, {0, 1'000'000}).value_or(spec.routing.*number);
    }
    void operator()(RouterScores Routing::*scores) const {
        if (const auto word = table.choice(key.name, words::routers)) {
            spec.routing.*scores = static_cast<RouterScores>(*word);
        }
    }
    void operator()(double LayerSpec::*probability) const {
        if (key.is_required && !table.has(key.name)) {
            table.missing(key.name, fmt::format("of being dropped, as in {} = 0.1", key.name));
        }
        spec.*probability = keys::read_probability(table, key.name);
    }

  private:
    /// A number, or a list of at least one.
    std::vector<int> one_or_more(Range range) const {
        if (!table.is_list(key.name)) {
            return {table.required_int(key.name, range)};
        }
        std::vector<int> numbers = *table.integers(key.name, range);
        if (numbers.empty()) {
            table.refuse(key.name, "at least one number");
        }
        return numbers;
    }
};

/// Prints a value of a layer, by the type of the field that it comes from.
struct LayerValuePrinter {
    ScenarioWriter& writer;
    const LayerKey& key;
    const LayerSpec& spec;

    void operator()(auto field) const {
        if (!key.is_seldom || spec.*field != LayerSpec{}.*field) {
            writer.number(key.name, spec.*field);
        }
    }
    void operator()(ShareField share) const { writer.number(key.name, spec.*share.field); }
    void operator()(RotaryField number) const { (*this)(number.field); }
    template <class Number>
    void operator()(Number Rotary::*field) const {
        if (spec.rotary.*field != Rotary{}.*field) {
            writer.number(key.name, spec.rotary.*field);
        }
    }
    void operator()(RouterScores Routing::*scores) const {
        if (spec.routing.*scores != Routing{}.*scores) {
            writer.string(key.name, words::routers.at(as_index(spec.routing.*scores)));
        }
    }
    template <class Number>
    void operator()(Number Routing::*field) const {
        if (spec.routing.*field != Routing{}.*field) {
            writer.number(key.name, spec.routing.*field);
        }
    }
    void operator()(GeluForm LayerSpec::*form) const {
        if (spec.*form != LayerSpec{}.*form) {
            writer.string(key.name, words::gelu_approximations.at(as_index(spec.*form)));
        }
    }
    void operator()(Pixels LayerSpec::*size) const {
        const Pixels& pixels = spec.*size;
        if (pixels != Pixels{}) {
            writer.list(key.name, std::vector<int>{pixels.height, pixels.width});
        }
    }
    void operator()(Margins LayerSpec::*margins) const {
        const Margins& m = spec.*margins;
        writer.list(key.name, std::vector<int>{m.top, m.left, m.bottom, m.right});
    }
};

LayerSpec read_layer(const TomlTable& table, LayerPlace place) {
    const LayerKind& kind = kind_of_layer(table);
    std::vector<string_view> names = names_of(keys_of_every_layer);
    std::ranges::move(names_of(keys_of(kind)), std::back_inserter(names));
    table.expect_keys(names);

    LayerSpec spec{.name = table.text("name").value_or(""), .type = kind.type};
    for (const LayerKey& key : kind.keys()) {
        std::visit(LayerValueReader{table, key, spec}, key.value);
    }
    if (kind.holds_layers) {
        spec.inner =
            read_layers(table, kind.may_branch ? LayerPlace::InGraph : LayerPlace::InChain);
    }
    spec.inputs = read_inputs(table, place);
    return spec;
}

/// How often a layer stands there.
int repeat_of(const TomlTable& table) {
    return as_int(table.integer("repeat", layer_range), 1);
}

/// The layers of `[[...layer]]`, each as often as its `repeat` says. The first copy of a layer
/// reads its inputs, each other one the copy before.
std::vector<LayerSpec> read_layers(const TomlTable& parent, LayerPlace place) {
    std::vector<LayerSpec> layers;
    std::size_t total = 0;
    for (const TomlTable& table : parent.tables("layer")) {
        LayerSpec spec = read_layer(table, place);
        const int repeat = repeat_of(table);
        total += as_index(repeat) * count_layers(spec);
        if (total > as_index(layer_range.high)) {
            table.refuse("repeat", fmt::format("at most {} layers in all", layer_range.high));
        }
        for (int copy = 0; copy + 1 < repeat; ++copy) {
            layers.push_back(spec);
            spec.inputs.clear();
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

void print_layers(ScenarioWriter& writer,
                  const std::vector<LayerSpec>& layers,
                  const std::string& path) {
    for (const LayerSpec& layer : layers) {
        writer.list_entry(path);
        writer.string("type", to_string(layer.type));
        if (!layer.name.empty()) {
            writer.string("name", layer.name);
        }
        if (!layer.inputs.empty()) {
            writer.strings("inputs", layer.inputs);
        }
        for (const LayerKey& key : layer_kind(layer.type).keys()) {
            std::visit(LayerValuePrinter{writer, key, layer}, key.value);
        }
        print_layers(writer, layer.inner, path + ".layer");
    }
}

void read_sizes(const ScenarioKey& key, const TomlTable& table, Scenario& scenario) {
    std::vector<int>& sizes = scenario.model.sizes;
    if (!table.has(key.name)) {
        table.missing(key.name, "inputs, hidden sizes and classes, as in sizes = [784, 512, 10]");
    }
    sizes = *table.integers(key.name, key.range);
    if (sizes.size() < 2 || std::ssize(sizes) > layer_range.high) {
        table.refuse(key.name, fmt::format("2 to {} sizes", layer_range.high));
    }
}

void print_sizes(const ScenarioKey& key, ScenarioWriter& writer, const Scenario& scenario) {
    writer.list(key.name, scenario.model.sizes);
}

void read_model_layers(const ScenarioKey&, const TomlTable& table, Scenario& scenario) {
    scenario.model.layers = read_layers(table, LayerPlace::InGraph);
}

void print_model_layers(const ScenarioKey&, ScenarioWriter& writer, const Scenario& scenario) {
    print_layers(writer, scenario.model.layers, "model.layer");
}

/// A model that begins with an embedding reads `context` token ids, any other an `image` or `input`
/// numbers.
void read_input(const ScenarioKey& key, const TomlTable& table, Scenario& scenario) {
    Scenario::ModelPart& model = scenario.model;
    const LayerSpec* first = &model.layers.front();
    while (first->type == LayerType::Sequence && !first->inner.empty()) {
        first = &first->inner.front();
    }
    const std::optional<SampleShape> image = read_image(table, image_key);
    if (first->type != LayerType::Embedding) {
        if (image && table.has(key.name)) {
            table.refuse(key.name, "no such key beside an image", "the image says what is read");
        }
        model.input =
            image ? *image
                  : SampleShape{.positions = 1, .width = table.required_int(key.name, key.range)};
        return;
    }
    for (const string_view name : {key.name, image_key}) {
        if (table.has(name)) {
            table.refuse(
                name, "no such key", "the embedding's context says how many tokens it reads");
        }
    }
    model.input = {.token_ids = true, .positions = first->context};
}

void print_input(const ScenarioKey& key, ScenarioWriter& writer, const Scenario& scenario) {
    if (!scenario.model.input.token_ids && !scenario.model.input.is_image()) {
        writer.number(key.name, scenario.model.input.width);
    }
}

void read_profile_file(const ScenarioKey& key, const TomlTable& table, Scenario& scenario) {
    const std::optional<std::string> file = table.text(key.name);
    if (!file && !scenario.model.profile.empty()) {
        return;
    }
    if (!file || file->empty()) {
        table.missing(key.name, "the path of a *.profile.json");
    }
    scenario.model.profile = resolve(scenario.file, *file);
}

void print_profile_file(const ScenarioKey& key, ScenarioWriter& writer, const Scenario& scenario) {
    writer.string(key.name, scenario.model.profile.string());
}

void read_model_kind(const ScenarioKey& key, const TomlTable& table, Scenario& scenario) {
    const std::optional<std::size_t> kind = table.choice(key.name, key.words);
    if (!kind && !scenario.model.profile.empty()) {
        return;  // a program has named the costs of the model
    }
    if (!kind) {
        table.missing(key.name, fmt::format("one of {}", fmt::join(key.words, ", ")));
    }
    scenario.model.kind = static_cast<ModelKind>(*kind);
}

void print_model_kind(const ScenarioKey& key, ScenarioWriter& writer, const Scenario& scenario) {
    writer.string(key.name, to_string(scenario.model.kind));
}

constexpr std::array<ScenarioKey, 1> keys_of_any_model{
    {ScenarioKey{.name = "kind",
                 .read = read_model_kind,
                 .print = print_model_kind,
                 .words = words::model_kinds}
         .takes(Form::Text)
         .says("`gpt`, `llama`, `mlp`, `layers`, `profile`, `amoebanet-d`, `amoebanet-b`, "
               "`resnet`, `unet`, `translation` or `moe`: the sections below",
               "required")}};

std::span<const ScenarioKey> model_keys() {
    return keys_of_any_model;
}

constexpr std::array<ScenarioKey, 1> keys_of_mlp{
    {ScenarioKey{.name = "sizes", .read = read_sizes, .print = print_sizes, .range = any_size}
         .typed("list of at least 2 numbers")
         .takes(Form::Integers)
         .says("inputs, hidden sizes, classes: `[784, 512, 10]`", "required")}};

constexpr std::array<ScenarioKey, 3> keys_of_a_layers_model{
    {ScenarioKey{.name = "input",
                 .read = read_input,
                 .print = print_input,
                 .range = any_size,
                 .read_behind = "layer"}
         .takes(Form::Integer)
         .says("real numbers per sample. Leave it out where the first layer is an embedding, whose "
               "`context` is the number of tokens per sample",
               "required, but for tokens and images"),
     ScenarioKey{.name = image_key, .print = print_image}
         .typed("list of 3 numbers")
         .takes(Form::Integers)
         .says("in place of `input`: height, width and channels of an image, `[32, 32, 3]`",
               "none"),  // read along with the input
     ScenarioKey{.name = "layer", .read = read_model_layers, .print = print_model_layers}.takes(
         Form::Tables)}};

constexpr std::array<ScenarioKey, 1> keys_of_a_profile{
    keys::own("file", read_profile_file, print_profile_file)
        .typed("path")
        .takes(Form::Text)
        .says("a [profile](formats.md#profile). It contains only costs, so the model can be "
              "planned and simulated, but not trained",
              "required")};

/// Besides the kind itself.
std::span<const ScenarioKey> keys_of(ModelKind kind) {
    switch (kind) {
        case ModelKind::Mlp:
            return keys_of_mlp;
        case ModelKind::Layers:
            return keys_of_a_layers_model;
        case ModelKind::Profile:
            return keys_of_a_profile;
        default:
            return language_model_keys(kind).empty() ? image_model_keys(kind)
                                                     : language_model_keys(kind);
    }
}

/// The table of layer number `index` of a list, in which each table stands for its copies.
TomlTable table_of_layer(const TomlTable& parent, int index) {
    int end = 0;
    for (const TomlTable& table : parent.tables(layers_key)) {
        end += repeat_of(table);
        if (index < end) {
            return table;
        }
    }
    PIPETWIN_EXPECT(false, "a fault is that of a layer");
}

/// Where the inputs of the layer with a fault stand, or its table begins.
std::string place_of_fault(const TomlTable& model, const LayerFault& fault) {
    TomlTable table = table_of_layer(model, fault.layer);
    for (const int index : fault.inside) {
        table = table_of_layer(table, index);
    }
    return table.place("inputs");
}

/// Throws Error(BadInput) with the place of every layer that does not fit the others.
void expect_layers_fit(const TomlTable& table, const Scenario::ModelPart& model) {
    try {
        Model::graph(model.input, model.layers);
    } catch (const LayerFaults& error) {
        std::vector<std::string> places;
        for (const LayerFault& fault : error.faults()) {
            places.push_back(place_of_fault(table, fault));
        }
        throw listed_faults(error.faults(), places);
    }
}

}  // namespace

void read_model(const TomlTable& table, Scenario& scenario) {
    read_keys(model_keys(), table, scenario);
    const std::span<const ScenarioKey> further = keys_of(scenario.model.kind);
    std::vector<string_view> names = names_of(model_keys());
    std::ranges::move(names_of(further), std::back_inserter(names));
    table.expect_keys(names);
    if (scenario.model.kind == ModelKind::Gpt) {
        scenario.model.gpt.vocabulary = vocabulary_of_bytes;  // unless it is written
    }
    if (scenario.model.has_llama_sizes()) {
        scenario.model.llama.vocabulary = vocabulary_of_bytes;  // unless it is written
    }
    read_keys(further, table, scenario);
    if (scenario.model.kind == ModelKind::Layers) {
        expect_layers_fit(table, scenario.model);
    }
    if (!image_model_keys(scenario.model.kind).empty()) {
        expect_image_model(table, scenario.model);
    }
}

void print_model(ScenarioWriter& writer, const Scenario& scenario) {
    writer.table("model");
    print_keys(model_keys(), writer, scenario);
    print_keys(keys_of(scenario.model.kind), writer, scenario);
}

std::vector<KeyGroup> model_key_groups() {
    const auto all = [](std::span<const ScenarioKey> keys) {
        return std::vector<ScenarioKey>(keys.begin(), keys.end());
    };
    std::vector<KeyGroup> groups{{"[model]", all(model_keys())}};
    for (std::size_t kind = 0; kind < words::model_kinds.size(); ++kind) {
        groups.push_back({fmt::format("kind = \"{}\"", words::model_kinds.at(kind)),
                          all(keys_of(static_cast<ModelKind>(kind)))});
    }
    groups.push_back({"every layer", all(keys_of_every_layer)});
    for (const LayerKind& kind : written_layer_kinds()) {
        groups.push_back({std::string(kind.word), keys_of(kind)});
    }
    return groups;
}

}  // namespace pipetwin
