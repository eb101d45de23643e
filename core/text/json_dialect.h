#pragma once

#include <cstddef>
#include <string>
#include <string_view>

/// What other programs write where JSON has something else.
namespace pipetwin {

/// Returns the text with the words that Python writes for numbers that are not finite (NaN,
/// Infinity, -Infinity) as null. What stands in quotes stays as it is. Places of what follows stay
/// the same, but for NaN, which is a letter shorter than null.
std::string without_python_numbers(std::string_view text);

/// A sentence about what is wrong, and what to do about it.
struct JsonDamage {
    std::string what{};  ///< empty: nothing that is known
    std::string hint{};
};

/// What stands at `index`, where a parser of JSON gave up: a comment, a word of Python, a text in
/// single quotes, a comma too many, or a file that is none of JSON at all.
JsonDamage json_damage(std::string_view text, std::size_t index);

}  // namespace pipetwin
