#include <algorithm>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/base/as_index.h"
#include "core/base/error.h"
#include "core/base/number_text.h"
#include "exec/base/random.h"
#include "exec/data/pairs/language_draw.h"
#include "exec/data/pairs/pair_corpus.h"
#include "exec/data/pairs/pair_tokens.h"
#include "exec/data/sources.h"

namespace pipetwin::exec {
namespace {

/// Positions of a sample: those of the source, and then those of the target.
struct Contexts {
    int source = 0;
    int target = 0;
};

/// The longest texts that the contexts have room for, with the tokens beside their bytes.
PairLimits limits_of(const Contexts& contexts, const Scenario::DataPart& data) {
    PairLimits limits;
    if (data.kind == DataKind::Pairs) {
        limits.least_bytes = 1;  // what a user has written is meant
    }
    const auto room = [&limits](const char* key, int context, std::size_t others) {
        if (as_index(context) < others + limits.least_bytes) {
            throw Error(ErrorKind::BadInput,
                        fmt::format("model.{}", key),
                        fmt::format("{}, expected at least {}: texts have at least {}",
                                    context,
                                    others + limits.least_bytes,
                                    counted(limits.least_bytes, "byte")),
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
            limits.most_english_bytes = source;
            limits.most_translation_bytes = target;
            break;
        case PairDirection::ToEnglish:
            limits.most_english_bytes = target;
            limits.most_translation_bytes = source;
            break;
        case PairDirection::Both:
            limits.most_english_bytes = std::min(source, target);
            limits.most_translation_bytes = limits.most_english_bytes;
            break;
    }
    return limits;
}

PairCorpus read_corpus(const Scenario::DataPart& data,
                       const std::filesystem::path& folder,
                       const PairLimits& limits) {
    const std::filesystem::path path = folder / data.path;  // an absolute path stays what it is
    if (data.kind == DataKind::Gettext) {
        return read_catalogues(path, data.pairs.languages, limits);
    }
    return data.pairs.target_path.empty()
               ? read_pair_table(path, data.pairs.languages, limits)
               : read_line_pairs(
                     path, folder / data.pairs.target_path, data.pairs.languages.front(), limits);
}

/// "12 too long, 3 repeated": the rules that left pairs out.
std::string text_of(const PairsLeftOut& left_out, const PairLimits& limits) {
    std::vector<std::string> parts;
    const auto add = [&parts](std::size_t count, const std::string& what) {
        if (count > 0) {
            parts.push_back(fmt::format("{} {}", count, what));
        }
    };
    add(left_out.long_ones,
        fmt::format("longer than {} bytes in English or {} in translation",
                    limits.most_english_bytes,
                    limits.most_translation_bytes));
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
          limits_(limits_of(settings.contexts, settings.data)),
          vocabulary_(pair_vocabulary(settings.data.pairs)),
          corpus_(read_corpus(settings.data, settings.folder, limits_)),
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

    void add_content(ContentHash& hash) const override {
        const auto add_text = [&hash](const std::string& text) {
            const std::uint64_t size = text.size();
            hash.add(std::as_bytes(std::span(&size, 1)));
            hash.add(std::as_bytes(std::span(text)));
        };
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
        append(pair.source, contexts_.source, PairVocabulary::padding, batch.tokens);
        append(pair.target_inputs, contexts_.target, PairVocabulary::padding, batch.tokens);
        append(pair.targets, contexts_.target, -1, batch.targets);
    }

    /// Expected share of the tokens of a batch that are no padding.
    double share_of_real_tokens() const {
        double tokens = 0;
        const std::vector<double> probabilities = draw_.probabilities();
        for (std::size_t part = 0; part < parts_.size(); ++part) {
            double bytes = 0;
            for (const TextPair& pair : *parts_[part].pairs) {
                bytes += static_cast<double>(pair.english.size() + pair.translation.size());
            }
            tokens += probabilities[part] * bytes / static_cast<double>(parts_[part].pairs->size());
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
            text += ": " + text_of(corpus_.left_out, limits_);
        }
        if (!corpus_.broken_files.empty()) {
            text += "; " + counted(corpus_.broken_files.size(), "broken catalogue") + " left out";
        }
        return text;
    }

    Scenario::DataPart data_;
    Contexts contexts_;
    PairLimits limits_;
    PairVocabulary vocabulary_;
    PairCorpus corpus_;
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
                    "data.kind",
                    fmt::format("\"{}\" gives a source and its translation, but the model reads "
                                "one sequence",
                                to_string(scenario.data.kind)),
                    "use a model of kind = \"translation\"");
    }
    pair_vocabulary(scenario.data.pairs)
        .require_room(std::min(vocabulary_of(model), classes_of(model)));
    return std::make_unique<PairSource>(PairSourceSettings{
        .data = scenario.data,
        .folder = scenario.file.parent_path(),
        .contexts = {.source = source, .target = model.layer(0).input.positions - source},
        .seed = scenario.training.seed,
        .use = use});
}

}  // namespace pipetwin::exec
