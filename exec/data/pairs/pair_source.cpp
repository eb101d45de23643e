// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/base/as_index.h"
#include "core/base/error.h"
#include "core/base/number_text.h"
#include "core/model/model.h"
#include "core/text/input_file.h"
#include "exec/base/random.h"
#include "exec/data/pairs/language_draw.h"
#include "exec/data/pairs/pair_corpus.h"
#include "exec/data/pairs/pair_tokens.h"
#include "exec/data/pairs/text_pieces.h"
#include "exec/data/sources.h"

namespace pipetwin::exec {
namespace {

/// Positions of a sample: those of the source, and then those of the target.
struct Contexts {
    int source = 0;
    int target = 0;
};

/// The fewest bytes of a text that is taken.
std::size_t least_bytes(DataKind kind) {
    return kind == DataKind::Pairs ? 1  // what a user has written is meant
                                   : PairLimits().least_bytes;
}

/// Pieces of the longest texts that the contexts have room for.
struct Room {
    std::size_t english = 0;
    std::size_t translation = 0;
};

Room room_in(const Contexts& contexts, const Scenario::DataPart& data) {
    const auto room = [least = least_bytes(data.kind)](
                          const char* key, int context, std::size_t others) {
        if (as_index(context) < others + least) {
            throw Error(ErrorKind::BadInput,
                        KeyValue{fmt::format("model.{}", key)},
                        fmt::format("{}, expected at least {}: texts have at least {}",
                                    context,
                                    others + least,
                                    counted(least, "byte")),
                        "set 128, which most messages of programs fit into");
        }
        return as_index(context) - others;
    };
    const std::size_t source =
        room("source_context", contexts.source, PairVocabulary::more_source_tokens);
    const std::size_t target =
        room("target_context", contexts.target, PairVocabulary::more_target_tokens);
    switch (data.pairs.direction) {
        case PairDirection::FromEnglish:
            return {.english = source, .translation = target};
        case PairDirection::ToEnglish:
            return {.english = target, .translation = source};
        case PairDirection::Both:
            break;
    }
    return {.english = std::min(source, target), .translation = std::min(source, target)};
}

/// The limits before texts are cut into pieces: no text of more bytes can fit.
PairLimits limits_of(const Room& room, const Scenario::DataPart& data) {
    constexpr std::size_t longest_piece = 64;  // 16 characters, SentencePiece's default
    const std::size_t each = data.pairs.has_pieces() ? longest_piece : 1;
    return {.least_bytes = least_bytes(data.kind),
            .most_english_bytes = each * room.english,
            .most_translation_bytes = each * room.translation};
}

PairCorpus read_corpus(const Scenario::DataPart& data,
                       const std::filesystem::path& folder,
                       const PairLimits& limits) {
    const std::filesystem::path path = folder / data.path;  // an absolute path stays what it is
    if (data.kind == DataKind::Gettext) {
        std::vector<std::filesystem::path> folders{path};
        for (const std::filesystem::path& more : data.pairs.more_paths) {
            folders.push_back(folder / more);
        }
        return read_catalogues(folders, data.pairs.languages, limits);
    }
    return data.pairs.target_path.empty()
               ? read_pair_table(path, data.pairs.languages, limits)
               : read_line_pairs(
                     path, folder / data.pairs.target_path, data.pairs.languages.front(), limits);
}

/// What the texts are cut into: bytes, a model from a file, or one that the texts for training
/// make, in both languages of each pair.
TextPieces pieces_of(const Scenario::PairSettings& settings,
                     const std::filesystem::path& folder,
                     const PairCorpus& corpus) {
    if (!settings.pieces_path.empty()) {
        constexpr std::size_t most_bytes = std::size_t{256} << 20U;
        const std::filesystem::path file = folder / settings.pieces_path;
        return TextPieces::of_model(InputFile(file).read_up_to(most_bytes), file.string());
    }
    if (settings.piece_count == 0) {
        return {};
    }
    std::vector<std::string_view> texts;
    for (const LanguagePairs& language : corpus.languages) {
        for (const TextPair& pair : language.training) {
            texts.emplace_back(pair.english);
            texts.emplace_back(pair.translation);
        }
    }
    return TextPieces::trained_on(texts, settings.piece_count);
}

/// "12 too long, 3 repeated": the rules that left pairs out.
std::string text_of(const PairsLeftOut& left_out,
                    const PairLimits& limits,
                    const Room& room,
                    std::string_view unit) {
    std::vector<std::string> parts;
    const auto add = [&parts](std::size_t count, const std::string& what) {
        if (count > 0) {
            parts.push_back(fmt::format("{} {}", count, what));
        }
    };
    add(left_out.long_ones,
        fmt::format("longer than {} in English or {} in translation",
                    counted(room.english, unit),
                    room.translation));
    add(left_out.short_ones, fmt::format("shorter than {} bytes", limits.least_bytes));
    add(left_out.untranslated, "not translated");
    add(left_out.of_lines, "of several lines or with control characters");
    add(left_out.uneven, fmt::format("over {} times as long as the other", limits.largest_ratio));
    add(left_out.repeated, "there already");
    add(left_out.undecodable, "in another encoding than their file's");
    add(left_out.of_other_languages, "of other languages");
    return fmt::format("{}", fmt::join(parts, ", "));
}

/// Pairs of a language that are translated in one direction.
struct Translated {
    const std::vector<TextPair>* pairs = nullptr;
    std::string language;  ///< besides English
    std::string into;
};

/// What `PairSource` reads, and how.
struct PairSourceSettings {
    Scenario::DataPart data;
    std::filesystem::path folder;  ///< of the scenario
    Contexts contexts;
    std::uint64_t seed = 0;
    DataUse use = DataUse::Training;
};

class PairSource final : public DataSource {
  public:
    explicit PairSource(const PairSourceSettings& settings)
        : data_(settings.data),
          contexts_(settings.contexts),
          room_(room_in(settings.contexts, settings.data)),
          limits_(limits_of(room_, settings.data)),
          corpus_(read_corpus(settings.data, settings.folder, limits_)),
          vocabulary_(target_languages(settings.data.pairs),
                      pieces_of(settings.data.pairs, settings.folder, corpus_)),
          means_(leave_out_long_ones()),
          parts_(parts_of(settings.use)),
          draw_(sizes_of(parts_),
                settings.data.pairs.temperature,
                RandomStream(settings.seed).of(static_cast<std::uint64_t>(settings.use))) {}

    Batch batch(int step, int samples) const override {
        Batch batch{.samples = samples,
                    .positions = contexts_.source + contexts_.target,
                    .width = 0,
                    .target_positions = contexts_.target,
                    .tokens = {},
                    .values = {},
                    .targets = {}};
        std::vector<PairTokens> drawn;
        const auto count = static_cast<std::uint64_t>(samples);
        for (const LanguageDraw::Place& place :
             draw_.draws(static_cast<std::uint64_t>(step) * count, count)) {
            drawn.push_back(tokens_of(parts_[place.language], place.pair));
        }
        if (data_.pairs.bucketing) {
            std::ranges::stable_sort(drawn, {}, [](const PairTokens& pair) {
                return std::pair(pair.source.size(), pair.targets.size());
            });
        }
        for (const PairTokens& pair : drawn) {
            add(pair, batch);
        }
        return batch;
    }

    std::string description() const override {
        return fmt::format("{}; {}", of_languages(), of_left_out());
    }

    std::vector<std::string> notes() const override {
        std::vector<std::string> all{of_languages(), of_left_out()};
        constexpr std::size_t most = 3;
        const std::vector<std::string>& broken = corpus_.broken_files;
        for (std::size_t file = 0; file < std::min(most, broken.size()); ++file) {
            all.push_back("a broken catalogue is left out: " + broken[file]);
        }
        if (broken.size() > most) {
            all.push_back(
                fmt::format("{} more", counted(broken.size() - most, "broken catalogue")));
        }
        return all;
    }

    std::vector<TextWithTranslation> translated_texts(std::size_t most) const override {
        std::vector<TextWithTranslation> texts;
        for (const Translated& part : parts_) {
            const std::size_t count = std::min(most, part.pairs->size());
            for (std::size_t i = 0; i < count; ++i) {
                const TextPair& pair = (*part.pairs)[i * part.pairs->size() / count];
                texts.push_back(part.into == english_language
                                    ? TextWithTranslation{.from = part.language,
                                                          .into = part.into,
                                                          .text = pair.translation,
                                                          .translation = pair.english}
                                    : TextWithTranslation{.from = std::string(english_language),
                                                          .into = part.into,
                                                          .text = pair.english,
                                                          .translation = pair.translation});
            }
        }
        return texts;
    }

    TextPieces text_pieces() const override { return vocabulary_.pieces(); }
    const PairVocabulary& vocabulary() const { return vocabulary_; }

    void add_content(ContentHash& hash) const override {
        const auto add_text = [&hash](const std::string& text) {
            const std::uint64_t size = text.size();
            hash.add(std::as_bytes(std::span(&size, 1)));
            hash.add(std::as_bytes(std::span(text)));
        };
        if (!vocabulary_.pieces().are_bytes()) {
            add_text(vocabulary_.pieces().model());
        }
        for (const LanguagePairs& language : corpus_.languages) {
            add_text(language.language);
            for (const auto* const pairs : {&language.training, &language.validation}) {
                for (const TextPair& pair : *pairs) {
                    add_text(pair.english);
                    add_text(pair.translation);
                }
            }
        }
    }

  private:
    /// Leaves the pairs out that have more pieces than there is room for. Returns, for each
    /// language, the mean number of pieces of a pair for training.
    std::vector<double> leave_out_long_ones() {
        const TextPieces& pieces = vocabulary_.pieces();
        std::vector<double> means;
        for (LanguagePairs& language : corpus_.languages) {
            double sum = 0;
            const auto cut = [&](std::vector<TextPair>& pairs) {
                sum = 0;
                corpus_.left_out.long_ones += std::erase_if(pairs, [&](const TextPair& pair) {
                    const std::size_t english = pieces.ids(pair.english).size();
                    const std::size_t translation = pieces.ids(pair.translation).size();
                    const bool is_long = english > room_.english || translation > room_.translation;
                    sum += is_long ? 0 : static_cast<double>(english + translation);
                    return is_long;
                });
            };
            cut(language.validation);
            cut(language.training);
            if (language.training.empty()) {
                throw Error(ErrorKind::BadInput,
                            data_.path.string(),
                            fmt::format("no pair of '{}' for training, expected texts of at most "
                                        "{} in English and {} in translation",
                                        language.language,
                                        counted(room_.english, pieces.noun()),
                                        room_.translation),
                            "set larger contexts of the model, or more pieces");
            }
            means.push_back(sum / static_cast<double>(language.training.size()));
        }
        return means;
    }

    /// The pairs that are drawn from, in the directions that are asked for.
    std::vector<Translated> parts_of(DataUse use) const {
        std::vector<Translated> parts;
        for (const LanguagePairs& language : corpus_.languages) {
            const std::vector<TextPair>& pairs =
                use == DataUse::Training ? language.training : language.validation;
            if (pairs.empty()) {
                continue;
            }
            if (data_.pairs.direction != PairDirection::ToEnglish) {
                parts.push_back(
                    {.pairs = &pairs, .language = language.language, .into = language.language});
            }
            if (data_.pairs.direction != PairDirection::FromEnglish) {
                parts.push_back({.pairs = &pairs,
                                 .language = language.language,
                                 .into = std::string(english_language)});
            }
        }
        if (parts.empty()) {
            throw Error(ErrorKind::BadInput,
                        data_.path.string(),
                        fmt::format("no pair for validation among {}: one in 50 is kept for it, by "
                                    "its English text",
                                    counted(corpus_.training_pairs(), "pair")),
                        "name more data, or set training.validate_every = 0");
        }
        return parts;
    }

    static std::vector<std::uint64_t> sizes_of(const std::vector<Translated>& parts) {
        std::vector<std::uint64_t> sizes;
        for (const Translated& part : parts) {
            sizes.push_back(part.pairs->size());
        }
        return sizes;
    }

    PairTokens tokens_of(const Translated& part, std::uint64_t index) const {
        const TextPair& pair = (*part.pairs)[index];
        return part.into == english_language
                   ? vocabulary_.tokens(pair.translation, pair.english, part.into)
                   : vocabulary_.tokens(pair.english, pair.translation, part.into);
    }

    /// Adds a sample, with padding behind its source and behind its target.
    void add(const PairTokens& pair, Batch& batch) const {
        batch.lengths.push_back(static_cast<std::int32_t>(pair.source.size()));
        const auto append = [](const std::vector<std::int32_t>& ids,
                               int positions,
                               std::int32_t padding,
                               std::vector<std::int32_t>& to) {
            to.insert(to.end(), ids.begin(), ids.end());
            to.insert(to.end(), as_index(positions) - ids.size(), padding);
        };
        append(pair.source, contexts_.source, vocabulary_.padding(), batch.tokens);
        append(pair.target_inputs, contexts_.target, vocabulary_.padding(), batch.tokens);
        append(pair.targets, contexts_.target, -1, batch.targets);
    }

    /// Expected share of the tokens of a batch that are no padding.
    double share_of_real_tokens() const {
        double tokens = 0;
        const std::vector<double> probabilities = draw_.probabilities();
        for (std::size_t part = 0; part < parts_.size(); ++part) {
            const auto language = std::ranges::find(
                corpus_.languages, parts_[part].language, &LanguagePairs::language);
            tokens += probabilities[part] * means_[as_index(language - corpus_.languages.begin())];
        }
        tokens += PairVocabulary::more_source_tokens + PairVocabulary::more_target_tokens;
        return tokens / (contexts_.source + contexts_.target);
    }

    std::string of_languages() const {
        std::vector<std::string> languages;
        std::size_t held_out = 0;
        for (const LanguagePairs& language : corpus_.languages) {
            languages.push_back(fmt::format("{} {}", language.training.size(), language.language));
            held_out += language.validation.size();
        }
        return fmt::format(
            "{}, {} with English for training ({}) and {} for validation in {}; {} "
            "of the tokens are no padding",
            to_string(data_.kind),
            counted(corpus_.training_pairs(), "pair"),
            fmt::join(languages, ", "),
            held_out,
            counted(corpus_.files, "file"),
            rounded_percent(share_of_real_tokens()));
    }

    std::string of_left_out() const {
        std::string text = counted(corpus_.left_out.sum(), "pair") + " left out";
        if (corpus_.left_out.sum() > 0) {
            text += ": " + text_of(corpus_.left_out, limits_, room_, vocabulary_.pieces().noun());
        }
        if (!corpus_.broken_files.empty()) {
            text += "; " + counted(corpus_.broken_files.size(), "broken catalogue") + " left out";
        }
        return text;
    }

    Scenario::DataPart data_;
    Contexts contexts_;
    Room room_;
    PairLimits limits_;
    PairCorpus corpus_;
    PairVocabulary vocabulary_;
    std::vector<double> means_;  ///< [language], pieces of a pair
    std::vector<Translated> parts_;
    LanguageDraw draw_;
};

}  // namespace

std::unique_ptr<DataSource> open_pairs(const ScenarioParts& scenario,
                                       const Model& model,
                                       DataUse use) {
    const int source = source_positions_of(model);
    if (source == 0) {
        throw Error(ErrorKind::BadInput,
                    KeyValue{"data.kind"},
                    fmt::format("\"{}\" gives a source and its translation, but the model reads "
                                "one sequence",
                                to_string(scenario.data.kind)),
                    "use a model of kind = \"translation\"");
    }
    auto pairs = std::make_unique<PairSource>(PairSourceSettings{
        .data = scenario.data,
        .folder = scenario.file.parent_path(),
        .contexts = {.source = source, .target = model.layer(0).input.positions - source},
        .seed = scenario.training.seed,
        .use = use});
    pairs->vocabulary().require_room(std::min(vocabulary_of(model), classes_of(model)));
    return pairs;
}

}  // namespace pipetwin::exec
