#pragma once

#include <span>
#include <string>
#include <string_view>

namespace pipetwin {

/// The known word nearest to `word` by edit distance (insert, delete, replace, swap neighbours), or
/// an empty view if none is within a third of the longer length (at least 1). Case is ignored.
std::string_view nearest_word(std::string_view word, std::span<const std::string_view> known);

/// "did you mean 'stages'?", or "known: a, b, c" where nothing is near.
std::string suggestion(std::string_view word, std::span<const std::string_view> known);

}  // namespace pipetwin
