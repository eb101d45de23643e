// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "core/base/number_text.h"
#include "core/scenario/scenario_key.h"
#include "core/scenario/scenario_tables.h"
#include "core/scenario/scenario_words.h"

/// [data].
namespace pipetwin {

namespace {

using std::string_view;

bool reads_tokens(const Scenario::ModelPart& model) {
    return model.tokens_per_sample() > 0;
}

/// The first layer of a model that is written layer by layer.
const LayerSpec& first_layer(const Scenario::ModelPart& model) {
    const LayerSpec* first = &model.layers.front();
    while (first->type == LayerType::Sequence) {
        first = &first->inner.front();
    }
    return *first;
}

/// Whether a sample is a source and its translation.
bool reads_pairs(const Scenario::ModelPart& model) {
    return model.kind == ModelKind::Translation ||
           (model.kind == ModelKind::Layers && first_layer(model).source_positions > 0);
}

/// Rows of the token table; 0 for a model that reads no tokens.
int vocabulary(const Scenario::ModelPart& model) {
    if (model.kind == ModelKind::Gpt) {
        return model.gpt.vocabulary;
    }
    if (model.has_llama_sizes()) {
        return model.llama.vocabulary;
    }
    if (model.kind == ModelKind::Translation) {
        return model.translation.vocabulary;
    }
    if (!reads_tokens(model)) {
        return 0;
    }
    return first_layer(model).vocabulary;
}

/// What a model reads where no data was named.
DataKind own_data(const Scenario::ModelPart& model) {
    return reads_tokens(model) && !reads_pairs(model) ? DataKind::Text : DataKind::Synthetic;
}

void read_data_kind(const ScenarioKey& key, const TomlTable& table, Scenario& scenario) {
    const auto kind = table.choice(key.name, key.words);
    scenario.data.kind = kind ? static_cast<DataKind>(*kind) : own_data(scenario.model);
}

/// Where no data was named, the kind is the model's own, and stays so.
void print_data_kind(const ScenarioKey& key, ScenarioWriter& writer, const Scenario& scenario) {
    const Scenario::DataPart& data = scenario.data;
    if (!data.path.empty() || data.kind == DataKind::Synthetic) {
        writer.string(key.name, to_string(data.kind));
    }
}

/// Where Debian has the message catalogues of its programs.
constexpr string_view installed_catalogues = "/usr/share/locale";

void read_data_path(const ScenarioKey& key, const TomlTable& table, Scenario& scenario) {
    if (scenario.data.kind == DataKind::Gettext) {
        scenario.data.path = installed_catalogues;  // unless it is written
    }
    if (scenario.data.kind == DataKind::Gettext && table.has(key.name) &&
        !table.is_text(key.name)) {
        const std::vector<std::string> paths = *table.texts(key.name);
        if (paths.empty() || std::ranges::count(paths, "") > 0) {
            table.refuse(key.name, "a folder, or a list of folders");
        }
        scenario.data.path = resolve(scenario.file, paths.front());
        for (std::size_t i = 1; i < paths.size(); ++i) {
            scenario.data.pairs.more_paths.push_back(resolve(scenario.file, paths[i]));
        }
        return;
    }
    if (const std::optional<std::string> path = table.text(key.name); path && !path->empty()) {
        scenario.data.path = resolve(scenario.file, *path);
    }
}

void print_data_path(const ScenarioKey& key, ScenarioWriter& writer, const Scenario& scenario) {
    if (!scenario.data.pairs.more_paths.empty()) {
        std::vector<std::string> paths{scenario.data.path.string()};
        for (const std::filesystem::path& path : scenario.data.pairs.more_paths) {
            paths.push_back(path.string());
        }
        writer.strings(key.name, paths);
    } else if (!scenario.data.path.empty()) {
        writer.string(key.name, scenario.data.path.string());
    }
}

/// A path, or a share of the data's end.
void read_validation(const ScenarioKey& key, const TomlTable& table, Scenario& scenario) {
    Scenario::DataPart& data = scenario.data;
    if (is_of_pairs(data.kind) && table.has(key.name)) {
        table.refuse(key.name,
                     fmt::format("no such key, as of {} one pair in 50 is kept for validation",
                                 to_string(data.kind)),
                     "remove it");
    }
    if (!table.is_text(key.name)) {
        data.validation_share = table.number(key.name, key.range).value_or(0);
        if (data.validation_share == 1) {
            table.refuse(key.name,
                         "a path, or a number from 0 up to, but not, 1",
                         "with 1 nothing would be left to train on");
        }
        return;
    }
    const std::string path = *table.text(key.name);
    if (data.kind == DataKind::Synthetic || path.empty()) {
        table.refuse(key.name,
                     path.empty() ? "a path, or a share of the data" : "a share of the data",
                     "as in validation = 0.1");
    }
    data.validation_path = resolve(scenario.file, path);
}

void print_validation(const ScenarioKey& key, ScenarioWriter& writer, const Scenario& scenario) {
    const Scenario::DataPart& data = scenario.data;
    if (is_of_pairs(data.kind)) {
        return;
    }
    if (data.validation_path.empty()) {
        writer.number(key.name, data.validation_share);
    } else {
        writer.string(key.name, data.validation_path.string());
    }
}

using Changes = Scenario::ImageChanges;

/// A list of numbers, one for each channel.
template <auto member>
void read_channels(const ScenarioKey& key, const TomlTable& table, Scenario& scenario) {
    std::vector<double>& numbers = keys::field<member>(scenario);
    numbers = table.numbers(key.name, key.range).value_or(numbers);
}

template <auto member>
void print_channels(const ScenarioKey& key, ScenarioWriter& writer, const Scenario& scenario) {
    if (const std::vector<double>& numbers = keys::field<member>(scenario); !numbers.empty()) {
        writer.list(key.name, numbers);
    }
}

void refuse_deviation_of_nothing(const TomlTable& table, const Scenario& scenario) {
    const Changes& changes = scenario.data.changes;
    if (std::ranges::any_of(changes.deviation, [](double number) { return number < 1e-6; })) {
        table.refuse("deviation",
                     "numbers from 0.000001 to 1000000",
                     "it is what values are divided by, one number for each channel");
    }
    if (!changes.mean.empty() && !changes.deviation.empty() &&
        changes.mean.size() != changes.deviation.size()) {
        table.refuse("deviation",
                     fmt::format("{}, as data.mean has", counted(changes.mean.size(), "number")),
                     "both have one number for each channel of an image");
    }
}

/// Prints a number, or true or false, for data that it is for.
template <auto member>
void print_of_images(const ScenarioKey& key, ScenarioWriter& writer, const Scenario& scenario) {
    if (is_of_images(scenario.data.kind)) {
        keys::print_member<member>(key, writer, scenario);
    }
}

using Pairs = Scenario::PairSettings;

/// Throws Error(BadInput) for a name of a language that could be no folder beside others.
void expect_language(const TomlTable& table, const ScenarioKey& key, string_view language) {
    const bool is_name = !language.empty() && !language.starts_with('.') &&
                         std::ranges::all_of(language, [](char c) {
                             return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                                    (c >= '0' && c <= '9') || c == '_' || c == '-' || c == '.' ||
                                    c == '@';
                         });
    if (!is_name) {
        table.refuse(key.name, "names of languages, as in [\"de\", \"pt_BR\", \"sr@latin\"]");
    }
    if (language == "en") {
        table.refuse(key.name,
                     "languages that English is translated into, or that are translated into it",
                     "leave out \"en\"");
    }
}

void read_languages(const ScenarioKey& key, const TomlTable& table, Scenario& scenario) {
    constexpr std::size_t most = 1000;
    if (!is_of_pairs(scenario.data.kind)) {
        return;
    }
    if (!table.has(key.name)) {
        table.missing(key.name,
                      "the languages besides English, as in languages = [\"de\", \"fr\"]");
    }
    std::vector<std::string> languages = *table.texts(key.name);
    if (languages.empty() || languages.size() > most) {
        table.refuse(key.name, fmt::format("1 to {} languages", most));
    }
    for (auto language = languages.begin(); language != languages.end(); ++language) {
        expect_language(table, key, *language);
        if (std::find(languages.begin(), language, *language) != language) {
            table.refuse(
                key.name, "different languages", fmt::format("'{}' is there twice", *language));
        }
    }
    scenario.data.pairs.languages = std::move(languages);
}

void print_languages(const ScenarioKey& key, ScenarioWriter& writer, const Scenario& scenario) {
    if (is_of_pairs(scenario.data.kind)) {
        writer.strings(key.name, scenario.data.pairs.languages);
    }
}

void read_target_path(const ScenarioKey& key, const TomlTable& table, Scenario& scenario) {
    const std::optional<std::string> path = table.text(key.name);
    if (!path || path->empty()) {
        return;
    }
    if (scenario.data.kind != DataKind::Pairs) {
        table.refuse(key.name, "no such key, as it is for kind = \"pairs\"", "remove it");
    }
    if (scenario.data.pairs.languages.size() != 1) {
        table.refuse(
            key.name,
            fmt::format("one language beside it, found {}", scenario.data.pairs.languages.size()),
            "a table of language, English and translation holds several: leave out "
            "target_path");
    }
    scenario.data.pairs.target_path = resolve(scenario.file, *path);
}

void print_target_path(const ScenarioKey& key, ScenarioWriter& writer, const Scenario& scenario) {
    if (const auto& path = scenario.data.pairs.target_path; !path.empty()) {
        writer.string(key.name, path.string());
    }
}

void read_pieces(const ScenarioKey& key, const TomlTable& table, Scenario& scenario) {
    Pairs& pairs = scenario.data.pairs;
    if (!table.is_text(key.name)) {
        pairs.piece_count = static_cast<int>(table.integer(key.name, key.range).value_or(0));
        return;
    }
    const std::string path = *table.text(key.name);
    if (path.empty()) {
        table.refuse(key.name,
                     "the path of a SentencePiece model, or a number of pieces",
                     "as in pieces = 4000, which trains one");
    }
    pairs.pieces_path = resolve(scenario.file, path);
}

void print_pieces(const ScenarioKey& key, ScenarioWriter& writer, const Scenario& scenario) {
    const Pairs& pairs = scenario.data.pairs;
    if (!pairs.pieces_path.empty()) {
        writer.string(key.name, pairs.pieces_path.string());
    } else if (pairs.piece_count > 0) {
        writer.number(key.name, pairs.piece_count);
    }
}

/// D^(1/T) of the largest number of pairs is no number any more where T is near 0.
void refuse_temperature_of_nothing(const TomlTable& table, const Scenario& scenario) {
    if (scenario.data.pairs.temperature < 0.1) {
        table.refuse("temperature",
                     "0.1 to 1000",
                     "with 1 a language comes as often as its number of pairs says, with 1000 all "
                     "come alike");
    }
}

/// Prints a key of texts with translations where the data are such.
template <ScenarioKey::Print print>
void print_of_pairs(const ScenarioKey& key, ScenarioWriter& writer, const Scenario& scenario) {
    if (is_of_pairs(scenario.data.kind)) {
        print(key, writer, scenario);
    }
}

void print_direction(const ScenarioKey& key, ScenarioWriter& writer, const Scenario& scenario) {
    writer.string(key.name, to_string(scenario.data.pairs.direction));
}

/// Keys that are for texts with translations alone.
constexpr std::array<string_view, 5> keys_of_pairs{
    "languages", "pieces", "direction", "temperature", "bucketing"};

/// Keys that are for images alone.
constexpr std::array<string_view, 5> keys_of_images{
    "mean", "deviation", "noise", "pad_and_crop", "mirror"};

constexpr Range channel_range{-1'000'000, 1'000'000};
constexpr Range margin_range{0, 4096};
constexpr Range noise_range{0, 1000};
constexpr Range temperature_range{0, 1000};
constexpr Range piece_range{300, 1'000'000};

constexpr std::array<ScenarioKey, 14> keys_of_data{
    {ScenarioKey{.name = "kind",
                 .read = read_data_kind,
                 .print = print_data_kind,
                 .words = words::data_kinds}
         .takes(Form::Text)
         .says("`text`: each byte is a token. `tokens`: files of token ids, from llm.c (`.bin` "
               "with a header, 16 or 32 bits) or nanoGPT (16 bits without a header); a sample is a "
               "window of `context` tokens, and each window is read once per epoch, in random "
               "order. `synthetic`: random samples from the seed, with one class per sample or per "
               "position, as the loss needs. [Images](#images): `mnist`, `cifar10`, `images`, "
               "`segmentation`, `silhouettes`. [Texts with "
               "translations](#texts-with-translations), for models of `kind = \"translation\"`, "
               "whose default is `synthetic`: `gettext`, `pairs`",
               "`text` for models that read tokens, else `synthetic`"),
     keys::own("path", read_data_path, print_data_path)
         .typed("path, or for `gettext` a list of paths")
         .takes(Form::Text | Form::Texts)
         .says("for `text` and `tokens` a file, or a folder whose files are read in the byte order "
               "of their names, without links; for images a folder",
               "`/usr/share/locale` for `gettext`; required for the others except `synthetic`"),
     ScenarioKey{
         .name = "validation", .read = read_validation, .print = print_validation, .range = {0, 1}}
         .typed("0 up to 1, or path")
         .takes(Form::Number | Form::Text)
         .says("the data for validation, which training does not read: a share of the data, or "
               "another path of the same kind. A share is taken from the end of the data: of every "
               "file of `tokens`, of every class of `images`. For `synthetic` it is new samples",
               "0; the test files of `mnist`, `cifar10` and `silhouettes`"),
     ScenarioKey{.name = "mean",
                 .read = read_channels<&Changes::mean>,
                 .print = print_channels<&Changes::mean>,
                 .range = channel_range}
         .takes(Form::Numbers)
         .says("images: subtracted from the values; one number per channel", "0"),
     ScenarioKey{.name = "deviation",
                 .read = read_channels<&Changes::deviation>,
                 .print = print_channels<&Changes::deviation>,
                 .range = {0, channel_range.high},
                 .check = refuse_deviation_of_nothing}
         .takes(Form::Numbers)
         .says("images: divides the values after the subtraction of `mean`; one number per channel",
               "1"),
     keys::number<&Changes::noise>("noise", noise_range)
         .printed_by(print_of_images<&Changes::noise>)
         .says("images: standard deviation of normal noise that is added to the values before "
               "`mean` is subtracted, also in validation",
               "0"),
     keys::number<&Changes::pad_and_crop>("pad_and_crop", margin_range)
         .printed_by(print_of_images<&Changes::pad_and_crop>)
         .says("images: pads each side by this many pixels of zeros, then crops at a random place "
               "to the old size; not in validation",
               "0"),
     keys::boolean<&Changes::mirror>("mirror")
         .printed_by(print_of_images<&Changes::mirror>)
         .says("images: mirrors half of the samples left to right, at random; not in validation",
               "false"),
     keys::own("languages", read_languages, print_languages)
         .takes(Form::Texts)
         .says("texts with translations: the languages besides English, `[\"de\", \"pt_BR\"]`, in "
               "the order of their tokens",
               "required for `gettext` and `pairs`"),
     keys::own("target_path", read_target_path, print_target_path)
         .typed("path")
         .takes(Form::Text)
         .says("`pairs`: the file whose lines are the translations of the lines of `path`; without "
               "it `path` is a table",
               "none"),
     ScenarioKey{.name = "pieces", .read = read_pieces, .print = print_pieces, .range = piece_range}
         .typed("300 to 1,000,000, or path")
         .takes(Form::Integer | Form::Text)
         .says("texts with translations: what texts are cut into. A number: that many pieces "
               "(words and parts of words), learnt from the texts for training by SentencePiece's "
               "byte-pair encoding. A path: a SentencePiece model, as `spm_train` writes one. "
               "Needs the program to be built with `libsentencepiece-dev`; without the key each "
               "byte is a token",
               "bytes"),
     keys::choice<&Pairs::direction>("direction", words::pair_directions)
         .printed_by(print_of_pairs<print_direction>)
         .says("texts with translations: `from-english`, `to-english`, or `both`, each half of the "
               "time",
               "`from-english`"),
     keys::number<&Pairs::temperature>("temperature", temperature_range)
         .checked_by(refuse_temperature_of_nothing)
         .printed_by(print_of_pairs<keys::print_member<&Pairs::temperature>>)
         .typed("0.1 to 1,000")
         .says("texts with translations: a language with D pairs is drawn with a probability "
               "proportional to D^(1 / `temperature`). 1: as often as it has pairs; 1,000: all "
               "languages equally often",
               "5"),
     keys::boolean<&Pairs::bucketing>("bucketing")
         .printed_by(print_of_pairs<keys::print_member<&Pairs::bucketing>>)
         .says("texts with translations: sorts the samples of a mini-batch by length before it is "
               "cut into micro-batches",
               "false")}};

void refuse_keys_of_other_data(const TomlTable& table, const Scenario& scenario) {
    for (const string_view key : keys_of_pairs) {
        if (table.has(key) && !is_of_pairs(scenario.data.kind)) {
            table.refuse(key,
                         "no such key, as it is for texts with translations",
                         "remove it, or set data.kind = \"gettext\" or \"pairs\"");
        }
    }
    for (const string_view key : keys_of_images) {
        if (table.has(key) && !is_of_images(scenario.data.kind)) {
            table.refuse(key,
                         "no such key, as it is for images",
                         "remove it, or set data.kind = \"mnist\", \"cifar10\", \"images\", "
                         "\"segmentation\" or \"silhouettes\"");
        }
    }
}

}  // namespace

std::span<const ScenarioKey> data_keys() {
    return keys_of_data;
}

void read_data(const TomlTable& table, Scenario& scenario) {
    read_table(data_keys(), table, scenario);
    refuse_keys_of_other_data(table, scenario);
    if (!table.has("kind")) {
        return;
    }
    const bool tokens = reads_tokens(scenario.model);
    const bool from_files = scenario.data.kind != DataKind::Synthetic;
    if (from_files && scenario.data.path.empty()) {
        table.missing("path", "the file or folder of the data");
    }
    if (scenario.model.kind == ModelKind::Profile) {
        return;
    }
    const bool pairs = reads_pairs(scenario.model);
    if (is_of_pairs(scenario.data.kind) != pairs && from_files) {
        table.refuse("kind",
                     pairs    ? "gettext, pairs or synthetic"
                     : tokens ? "text, tokens or synthetic"
                              : "data of real numbers",
                     pairs ? "this model reads a source and its translation"
                           : "a source and its translation are for models of kind = "
                             "\"translation\"");
    }
    const bool gives_tokens =
        scenario.data.kind == DataKind::Text || scenario.data.kind == DataKind::Tokens;
    if (gives_tokens && !tokens) {
        table.refuse("kind",
                     scenario.model.input.is_image()
                         ? "mnist, cifar10, images, segmentation, silhouettes or synthetic"
                         : "mnist or synthetic",
                     fmt::format("{} gives token ids, and this model reads real numbers",
                                 to_string(scenario.data.kind)));
    }
    if (is_of_images(scenario.data.kind) && tokens) {
        table.refuse("kind",
                     "text",
                     fmt::format("{} gives real numbers, and this model reads token ids",
                                 to_string(scenario.data.kind)));
    }
    if (scenario.data.kind == DataKind::Text && vocabulary(scenario.model) < 256) {
        table.refuse("kind",
                     "a model with a vocabulary of at least 256",
                     fmt::format("the bytes of a text are its tokens; the model knows {}",
                                 vocabulary(scenario.model)));
    }
}

}  // namespace pipetwin
