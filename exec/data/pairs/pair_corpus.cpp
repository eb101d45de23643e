// SPDX-License-Identifier: Apache-2.0
#include "exec/data/pairs/pair_corpus.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include <fmt/format.h>

#include "core/base/as_index.h"
#include "core/base/error.h"
#include "core/base/number_text.h"
#include "core/text/input_file.h"
#include "core/text/json_text.h"
#include "exec/base/random.h"
#include "exec/data/files.h"

namespace pipetwin::exec {
namespace {

namespace fs = std::filesystem;

/// No catalogue of a program comes near it.
constexpr std::size_t most_file_bytes = std::size_t{256} << 20U;

bool is_control(char byte) {
    return static_cast<unsigned char>(byte) < 0x20 || byte == 0x7f;
}

/// Number of characters of a text in UTF-8.
std::size_t characters(std::string_view text) {
    return static_cast<std::size_t>(std::ranges::count_if(
        text, [](char byte) { return (static_cast<unsigned char>(byte) & 0xc0U) != 0x80U; }));
}

/// The counter of the first rule that a pair breaks; null: it breaks none.
std::size_t* broken_rule(const TextPair& pair, const PairLimits& limits, PairsLeftOut& left_out) {
    const std::string& english = pair.english;
    const std::string& translation = pair.translation;
    if (translation.empty() || translation == english) {
        return &left_out.untranslated;
    }
    if (std::ranges::any_of(english, is_control) || std::ranges::any_of(translation, is_control)) {
        return &left_out.of_lines;
    }
    if (std::min(english.size(), translation.size()) < limits.least_bytes) {
        return &left_out.short_ones;
    }
    if (english.size() > limits.most_english_bytes ||
        translation.size() > limits.most_translation_bytes) {
        return &left_out.long_ones;
    }
    const auto [shorter, longer] = std::minmax({characters(english), characters(translation)});
    return longer > limits.largest_ratio * shorter ? &left_out.uneven : nullptr;
}

/// The folders that have the catalogues of a language.
std::vector<std::string> folders_of(const std::string& language) {
    if (language == "nb" || language == "no") {
        return {"nb", "no"};
    }
    return {language};
}

std::vector<fs::path> catalogues_of(const fs::path& folder, const std::string& language) {
    std::vector<fs::path> files;
    for (const std::string& name : folders_of(language)) {
        const fs::path messages = folder / name / "LC_MESSAGES";
        std::error_code ignored;
        if (!fs::is_directory(messages, ignored)) {
            continue;
        }
        for (const fs::path& file : data_files(messages)) {
            if (file.extension() == ".mo") {
                files.push_back(file);
            }
        }
    }
    return files;
}

[[noreturn]] void refuse_language(const fs::path& folder, const std::string& language) {
    throw Error(
        ErrorKind::BadInput,
        folder.string(),
        fmt::format(
            "no message catalogue of '{}', expected {}/LC_MESSAGES/*.mo", language, language),
        "install programs with translations; where /etc/dpkg/dpkg.cfg.d has a path-exclude "
        "of /usr/share/locale, remove it and reinstall them");
}

/// The lines of a text; a carriage return at the end of a line is left out.
std::vector<std::string_view> lines_of(std::string_view text) {
    std::vector<std::string_view> lines;
    while (!text.empty()) {
        const std::size_t end = std::min(text.find('\n'), text.size());
        std::string_view line = text.substr(0, end);
        if (line.ends_with('\r')) {
            line.remove_suffix(1);
        }
        lines.push_back(line);
        text.remove_prefix(std::min(end + 1, text.size()));
    }
    return lines;
}

std::string read_whole(const fs::path& file) {
    return InputFile(file).read_up_to(std::string().max_size());
}

/// Adds a pair of a user's file, or counts it where it is no text in UTF-8.
void add_pair(std::string_view english,
              std::string_view translation,
              std::vector<TextPair>& pairs,
              PairsLeftOut& left_out) {
    if (is_utf8(english) && is_utf8(translation)) {
        pairs.push_back({std::string(english), std::string(translation)});
    } else {
        ++left_out.undecodable;
    }
}

/// Puts the pairs of a language of a user's file apart. Throws Error(BadInput) if none is left.
LanguagePairs sifted(const fs::path& file,
                     const std::string& language,
                     std::vector<TextPair> pairs,
                     const PairLimits& limits,
                     PairsLeftOut& left_out) {
    const std::size_t found = pairs.size();
    LanguagePairs result = sift(language, std::move(pairs), limits, left_out);
    if (result.training.empty()) {
        throw Error(ErrorKind::BadInput,
                    file.string(),
                    fmt::format("no pair of '{}' for training among {}, expected texts of at most "
                                "{} and {} bytes, one different from the other",
                                language,
                                counted(found, "pair"),
                                limits.most_english_bytes,
                                limits.most_translation_bytes),
                    "name more data, or set larger contexts of the model");
    }
    return result;
}

}  // namespace

std::size_t PairsLeftOut::sum() const {
    return undecodable + untranslated + of_lines + short_ones + long_ones + uneven + repeated +
           of_other_languages;
}

std::size_t PairCorpus::training_pairs() const {
    std::size_t count = 0;
    for (const LanguagePairs& pairs : languages) {
        count += pairs.training.size();
    }
    return count;
}

bool is_held_out(std::string_view english) {
    constexpr std::uint64_t one_in = 50;
    std::uint64_t hash = 0;
    for (const char byte : english) {
        hash = mix(hash ^ static_cast<unsigned char>(byte));
    }
    return mix(hash ^ english.size()) % one_in == 0;
}

LanguagePairs sift(std::string language,
                   std::vector<TextPair> pairs,
                   const PairLimits& limits,
                   PairsLeftOut& left_out) {
    LanguagePairs result{.language = std::move(language), .training = {}, .validation = {}};
    std::erase_if(pairs, [&](const TextPair& pair) {
        std::size_t* const counter = broken_rule(pair, limits, left_out);
        if (counter != nullptr) {
            ++*counter;
        }
        return counter != nullptr;
    });
    std::ranges::stable_sort(pairs, {}, &TextPair::english);
    const auto repeated = std::ranges::unique(pairs, {}, &TextPair::english);
    left_out.repeated += repeated.size();
    pairs.erase(repeated.begin(), repeated.end());
    for (TextPair& pair : pairs) {
        (is_held_out(pair.english) ? result.validation : result.training)
            .push_back(std::move(pair));
    }
    return result;
}

PairCorpus read_catalogues(const std::vector<fs::path>& folders,
                           const std::vector<std::string>& languages,
                           const PairLimits& limits) {
    for (const fs::path& folder : folders) {
        folders_in(folder);  // refuses what is no folder
    }
    PairCorpus corpus;
    for (const std::string& language : languages) {
        std::vector<fs::path> files;
        for (const fs::path& folder : folders) {
            std::ranges::move(catalogues_of(folder, language), std::back_inserter(files));
        }
        if (files.empty()) {
            refuse_language(folders.front(), language);
        }
        std::vector<TextPair> pairs;
        for (const fs::path& file : files) {
            try {
                Catalogue catalogue = read_mo(InputFile(file).read_up_to(most_file_bytes), file);
                corpus.left_out.undecodable += catalogue.undecodable;
                for (CatalogueEntry& entry : catalogue.entries) {
                    pairs.push_back({std::move(entry.source), std::move(entry.target)});
                }
                ++corpus.files;
            } catch (const Error& error) {
                if (error.kind() != ErrorKind::BadInput) {
                    throw;
                }
                corpus.broken_files.push_back(error.place() + ": " + error.text());
            }
        }
        corpus.languages.push_back(sift(language, std::move(pairs), limits, corpus.left_out));
        if (corpus.languages.back().training.empty()) {
            throw Error(
                ErrorKind::BadInput,
                (folders.front() / language).string(),
                fmt::format(
                    "no pair for training in {}, expected texts of {} to {} bytes "
                    "with a translation{}",
                    counted(files.size(), "catalogue"),
                    limits.least_bytes,
                    limits.most_english_bytes,
                    corpus.broken_files.empty() ? "" : "; broken: " + corpus.broken_files.back()),
                "install programs that are translated into this language, or leave it out");
        }
    }
    return corpus;
}

PairCorpus read_line_pairs(const fs::path& english,
                           const fs::path& translations,
                           const std::string& language,
                           const PairLimits& limits) {
    const std::string from = read_whole(english);
    const std::string to = read_whole(translations);
    const std::vector<std::string_view> from_lines = lines_of(from);
    const std::vector<std::string_view> to_lines = lines_of(to);
    if (from_lines.size() != to_lines.size()) {
        throw Error(ErrorKind::BadInput,
                    translations.string(),
                    fmt::format("{}, expected {}, as {} has",
                                counted(to_lines.size(), "line"),
                                from_lines.size(),
                                english.string()),
                    "line n of one file is the translation of line n of the other");
    }
    PairCorpus corpus;
    corpus.files = 2;
    std::vector<TextPair> pairs;
    for (std::size_t line = 0; line < from_lines.size(); ++line) {
        add_pair(from_lines[line], to_lines[line], pairs, corpus.left_out);
    }
    corpus.languages.push_back(
        sifted(translations, language, std::move(pairs), limits, corpus.left_out));
    return corpus;
}

PairCorpus read_pair_table(const fs::path& file,
                           const std::vector<std::string>& languages,
                           const PairLimits& limits) {
    const std::string text = read_whole(file);
    PairCorpus corpus;
    corpus.files = 1;
    std::vector<std::vector<TextPair>> pairs(languages.size());
    std::size_t number = 0;
    for (const std::string_view line : lines_of(text)) {
        ++number;
        if (line.empty()) {
            continue;
        }
        const auto tabs = std::ranges::count(line, '\t');
        if (tabs != 2) {
            throw Error(ErrorKind::BadInput,
                        fmt::format("{}: line {}", file.string(), number),
                        fmt::format("{}, expected 2: language, English text and translation",
                                    counted(tabs, "tab")),
                        "two files side by side are path = \"train.en\" and target_path = "
                        "\"train.de\"");
        }
        const std::size_t first = line.find('\t');
        const std::size_t second = line.find('\t', first + 1);
        const auto language = std::ranges::find(languages, line.substr(0, first));
        if (language == languages.end()) {
            ++corpus.left_out.of_other_languages;
            continue;
        }
        add_pair(line.substr(first + 1, second - first - 1),
                 line.substr(second + 1),
                 pairs[as_index(language - languages.begin())],
                 corpus.left_out);
    }
    for (std::size_t language = 0; language < languages.size(); ++language) {
        corpus.languages.push_back(
            sifted(file, languages[language], std::move(pairs[language]), limits, corpus.left_out));
    }
    return corpus;
}

}  // namespace pipetwin::exec
