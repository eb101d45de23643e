// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

#include "core/base/error.h"

namespace pipetwin {

/// Fewest letters to insert, delete, replace or swap with their neighbour that make one word of the
/// other. Case is ignored.
std::size_t edit_distance(std::string_view a, std::string_view b);

/// The known word that is `word` but for capitals, or that means what `word` means in other
/// programs
/// ("gpu": "cuda"); an empty view if there is none.
std::string_view same_word(std::string_view word, std::span<const std::string_view> known);

/// The known word that means what `word` means in other programs ("gpu": "cuda"), or the first that
/// begins with `word` and a hyphen, or the nearest one by edit distance (insert, delete, replace,
/// swap neighbours) within a third of the longer length (at least 1), or the first that begins with
/// `word` and an underscore, or the only one that begins with `word` or ends in an underscore and
/// `word` (of at least 4 letters). An empty view if there is none, and for a word of other programs
/// that nothing here means. Case is ignored.
std::string_view nearest_word(std::string_view word, std::span<const std::string_view> known);

/// "did you mean 'stages'?", or "known: a, b, c" where nothing is near; of what other programs have
/// and this one has not, that it is not supported yet.
Hint suggestion(std::string_view word, std::span<const std::string_view> known);

/// The `suggestion` for a message that lists the known words: "name one of these" where nothing is
/// near.
Hint suggestion_of_listed(std::string_view word, std::span<const std::string_view> known);

}  // namespace pipetwin
