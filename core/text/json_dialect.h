#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "core/text/file_damage.h"

/// What other programs write where JSON has something else.
namespace pipetwin {

/// The number that a word of Python's (NaN, Infinity, -Infinity) at `index` stands for, in a place
/// where a value may stand; none where no such word stands.
std::optional<double> python_number_at(std::string_view text, std::size_t index);

/// Returns the text with a zero of the same length ("0.0") in place of each word that
/// `python_number_at` knows. What stands in quotes stays as it is.
std::string with_zeros_for_python_numbers(std::string_view text);

/// What stands at `index`, where a parser of JSON gave up: a comment, a word of Python, a text in
/// single quotes, a comma too many, the end of the text, or a file that is none of JSON at all.
FileDamage json_damage(std::string_view text, std::size_t index);

}  // namespace pipetwin
