// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "exec/data/pairs/mo_file.h"

namespace pipetwin::exec {

/// A text in English and its translation, both in UTF-8.
struct TextPair {
    std::string english;
    std::string translation;

    bool operator==(const TextPair&) const = default;
};

/// The pairs that are taken.
struct PairLimits {
    std::size_t least_bytes = 8;           ///< of either text
    std::size_t most_english_bytes = 126;  ///< as many as a sequence has room for
    std::size_t most_translation_bytes = 126;
    std::size_t largest_ratio = 4;  ///< of the characters of the longer text to the shorter one's
};

/// Pairs that were not taken, by the first rule that they break.
struct PairsLeftOut {
    std::size_t undecodable = 0;   ///< no text in the charset that its file names
    std::size_t untranslated = 0;  ///< the translation is empty, or the English text itself
    std::size_t of_lines = 0;      ///< a line break or another control character
    std::size_t short_ones = 0;
    std::size_t long_ones = 0;
    std::size_t uneven = 0;              ///< one text is many times as long as the other
    std::size_t repeated = 0;            ///< the English text is there already
    std::size_t of_other_languages = 0;  ///< of a table: the language is not asked for

    bool operator==(const PairsLeftOut&) const = default;
    std::size_t sum() const;
};

/// The pairs of English with one language, in byte order of the English text.
struct LanguagePairs {
    std::string language;
    std::vector<TextPair> training;
    std::vector<TextPair> validation;
};

/// Parallel text of English and several languages.
struct PairCorpus {
    std::vector<LanguagePairs> languages;  ///< as they were asked for
    PairsLeftOut left_out;
    std::size_t files = 0;
    std::vector<std::string> broken_files;  ///< "PATH: byte 12: what is wrong", left out

    std::size_t training_pairs() const;
};

/// Whether an English text is kept for validation: one in fifty is, by its bytes alone, so no
/// language trains on a text that another language validates with.
bool is_held_out(std::string_view english);

/// Puts the pairs of a language in order and apart, leaves out what breaks the limits, and counts
/// that in `left_out`. Of several translations of a text the first one stays.
LanguagePairs sift(std::string language,
                   std::vector<TextPair> pairs,
                   const PairLimits& limits,
                   PairsLeftOut& left_out);

/// Reads FOLDER/LANGUAGE/LC_MESSAGES/*.mo for every folder and language, where `nb` and `no` are
/// one. A file that is no catalogue is left out and named. Throws Error(BadInput) if a language has
/// no catalogue or no pair, or if there is no such folder; the message says how to get catalogues.
PairCorpus read_catalogues(const std::vector<std::filesystem::path>& folders,
                           const std::vector<std::string>& languages,
                           const PairLimits& limits);

/// Reads two files whose lines are the English texts and their translations. Throws Error(BadInput)
/// if they have not equally many lines, or no pair.
PairCorpus read_line_pairs(const std::filesystem::path& english,
                           const std::filesystem::path& translations,
                           const std::string& language,
                           const PairLimits& limits);

/// Reads a table of pairs: each line has a language, an English text and its translation, with tabs
/// between them. Throws Error(BadInput), naming the line, for one that has not, and if a language
/// has no pair.
PairCorpus read_pair_table(const std::filesystem::path& file,
                           const std::vector<std::string>& languages,
                           const PairLimits& limits);

}  // namespace pipetwin::exec
