// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

/// Lists of names that are written as one text, apart by blanks: "adam sgd".
namespace pipetwin {

/// The names of a list.
std::vector<std::string_view> words_in(std::string_view list);

/// Whether a list has this name.
bool has_word(std::string_view list, std::string_view word);

/// A text with its capitals made small (ASCII).
std::string lower_case(std::string_view text);

}  // namespace pipetwin
