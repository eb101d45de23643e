// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/scenario/scenario.h"
#include "exec/data/pairs/text_pieces.h"

namespace pipetwin::exec {

/// The language that every pair has.
inline constexpr std::string_view english_language = "en";

/// Token ids of a text and its translation, without padding.
struct PairTokens {
    std::vector<std::int32_t> source;  ///< the language to translate into, the pieces, the end
    std::vector<std::int32_t> target_inputs;  ///< the begin, and the pieces
    std::vector<std::int32_t> targets;        ///< the pieces, and the end: one for each input

    bool operator==(const PairTokens&) const = default;
};

/// The tokens of a translation model: the pieces that texts are cut into, padding, begin, end, and
/// one token for each language that is translated into.
class PairVocabulary {
  public:
    /// Tokens of a source and of a target besides the pieces of their texts.
    static constexpr std::size_t more_source_tokens = 2;
    static constexpr std::size_t more_target_tokens = 1;

    /// `languages`: different ones, in the order of their tokens.
    explicit PairVocabulary(std::vector<std::string> languages, TextPieces pieces = {});

    const std::vector<std::string>& languages() const { return languages_; }
    const TextPieces& pieces() const { return pieces_; }

    std::int32_t padding() const { return pieces_.count(); }
    std::int32_t begin() const { return pieces_.count() + 1; }
    std::int32_t end() const { return pieces_.count() + 2; }
    std::int32_t first_language() const { return pieces_.count() + 3; }

    /// Tokens, rounded up to a multiple of 64: the smallest model.vocabulary.
    int size() const;

    /// Throws Error(BadInput) at "model.vocabulary" if a model knows fewer tokens than `size()`.
    void require_room(int model_vocabulary) const;

    /// The token in front of a source that asks for a translation into `language`. Throws
    /// Error(BadInput), naming the languages that there are, for another one.
    std::int32_t token_of(std::string_view language) const;

    /// Tokens of a text that is to be translated into `language`. Throws as `token_of`.
    std::vector<std::int32_t> source_tokens(std::string_view text, std::string_view language) const;

    /// Tokens of a text and its translation into `language`. Throws as `token_of`.
    PairTokens tokens(std::string_view text,
                      std::string_view translation,
                      std::string_view language) const;

    /// The text of ids up to the first end. Ids that are no piece are left out. What a model
    /// generates may be no UTF-8.
    std::string text_of(std::span<const std::int32_t> ids) const;

  private:
    std::vector<std::string> languages_;
    TextPieces pieces_;
};

/// The languages that a scenario whose data are pairs translates into: its own, and English behind
/// them where that is one.
std::vector<std::string> target_languages(const Scenario::PairSettings& pairs);

}  // namespace pipetwin::exec
