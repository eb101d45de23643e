// SPDX-License-Identifier: Apache-2.0
#include "exec/data/pairs/pair_tokens.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/base/error.h"
#include "core/base/number_text.h"
#include "core/base/printable.h"

namespace pipetwin::exec {
PairVocabulary::PairVocabulary(std::vector<std::string> languages, TextPieces pieces)
    : languages_(std::move(languages)), pieces_(std::move(pieces)) {}

int PairVocabulary::size() const {
    constexpr int multiple = 64;
    const int tokens = first_language() + static_cast<int>(languages_.size());
    return (tokens + multiple - 1) / multiple * multiple;
}

void PairVocabulary::require_room(int model_vocabulary) const {
    if (model_vocabulary < size()) {
        throw Error(
            ErrorKind::BadInput,
            KeyValue{"model.vocabulary"},
            fmt::format("{}, expected at least {}: {}, padding, begin, end and {}, rounded up "
                        "to a multiple of 64",
                        model_vocabulary,
                        size(),
                        counted(pieces_.count(), pieces_.noun()),
                        counted(languages_.size(), "language")),
            fmt::format("set vocabulary = {}", size()));
    }
}

std::int32_t PairVocabulary::token_of(std::string_view language) const {
    const auto found = std::ranges::find(languages_, language);
    if (found == languages_.end()) {
        throw Error(ErrorKind::BadInput,
                    "the language '" + printable(language) + "'",
                    fmt::format("is none that the model translates into, which are {}",
                                fmt::join(languages_, ", ")),
                    "name one of these");
    }
    return first_language() + static_cast<std::int32_t>(found - languages_.begin());
}

std::vector<std::int32_t> PairVocabulary::source_tokens(std::string_view text,
                                                        std::string_view language) const {
    std::vector<std::int32_t> tokens = pieces_.ids(text);
    tokens.insert(tokens.begin(), token_of(language));
    tokens.push_back(end());
    return tokens;
}

PairTokens PairVocabulary::tokens(std::string_view text,
                                  std::string_view translation,
                                  std::string_view language) const {
    PairTokens pair{.source = source_tokens(text, language),
                    .target_inputs = pieces_.ids(translation),
                    .targets = {}};
    pair.targets = pair.target_inputs;
    pair.targets.push_back(end());
    pair.target_inputs.insert(pair.target_inputs.begin(), begin());
    return pair;
}

std::string PairVocabulary::text_of(std::span<const std::int32_t> ids) const {
    return pieces_.text(
        ids.first(static_cast<std::size_t>(std::ranges::find(ids, end()) - ids.begin())));
}

std::vector<std::string> target_languages(const Scenario::PairSettings& pairs) {
    std::vector<std::string> languages = pairs.languages;
    if (pairs.direction != PairDirection::FromEnglish) {
        languages.emplace_back(english_language);
    }
    return languages;
}

}  // namespace pipetwin::exec
