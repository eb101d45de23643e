#include "exec/data/pairs/pair_tokens.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/base/error.h"
#include "core/base/number_text.h"
#include "core/base/printable.h"

namespace pipetwin::exec {
namespace {

constexpr int byte_tokens = 256;

void append_bytes(std::string_view text, std::vector<std::int32_t>& tokens) {
    for (const char byte : text) {
        tokens.push_back(static_cast<unsigned char>(byte));
    }
}

}  // namespace

PairVocabulary::PairVocabulary(std::vector<std::string> languages)
    : languages_(std::move(languages)) {}

int PairVocabulary::size() const {
    constexpr int multiple = 64;
    const int tokens = first_language + static_cast<int>(languages_.size());
    return (tokens + multiple - 1) / multiple * multiple;
}

void PairVocabulary::require_room(int model_vocabulary) const {
    if (model_vocabulary < size()) {
        throw Error(ErrorKind::BadInput,
                    "model.vocabulary",
                    fmt::format("{}, expected at least {}: 256 bytes, padding, begin, end and {}, "
                                "rounded up to a multiple of 64",
                                model_vocabulary,
                                size(),
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
    return first_language + static_cast<std::int32_t>(found - languages_.begin());
}

std::vector<std::int32_t> PairVocabulary::source_tokens(std::string_view text,
                                                        std::string_view language) const {
    std::vector<std::int32_t> tokens{token_of(language)};
    append_bytes(text, tokens);
    tokens.push_back(end);
    return tokens;
}

PairTokens PairVocabulary::tokens(std::string_view text,
                                  std::string_view translation,
                                  std::string_view language) const {
    PairTokens pair{
        .source = source_tokens(text, language), .target_inputs = {begin}, .targets = {}};
    append_bytes(translation, pair.target_inputs);
    append_bytes(translation, pair.targets);
    pair.targets.push_back(end);
    return pair;
}

std::string PairVocabulary::text_of(std::span<const std::int32_t> ids) {
    std::string text;
    for (const std::int32_t id : ids) {
        if (id == end) {
            break;
        }
        if (id >= 0 && id < byte_tokens) {
            text += static_cast<char>(id);
        }
    }
    return text;
}

PairVocabulary pair_vocabulary(const Scenario::PairSettings& pairs) {
    std::vector<std::string> languages = pairs.languages;
    if (pairs.direction != PairDirection::FromEnglish) {
        languages.emplace_back(english_language);
    }
    return PairVocabulary(std::move(languages));
}

}  // namespace pipetwin::exec
