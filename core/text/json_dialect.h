// SPDX-License-Identifier: Apache-2.0
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

/// Lets a parser of strict JSON read numbers as Python writes them, of a text that comes character
/// by character: it sees "0e1" in place of "NaN".
class PythonNumberFilter {
  public:
    /// The character that the parser shall see in place of the next one of the text.
    char pass(char c);

    /// The word that the number which the parser has read last stands for, "NaN", "Infinity" or
    /// "-Infinity"; empty: a number that JSON has. Forgets it.
    std::string_view take_word();

  private:
    std::string_view word_{};      ///< of Python's that the text is in, or was in last
    std::size_t at_ = 0;           ///< characters of it that have passed; 0: none
    std::string_view complete_{};  ///< the word that has passed
    bool is_negative_ = false;     ///< a minus stands before it
    bool in_quotes_ = false;
    bool is_escaped_ = false;
    char before_ = 0;  ///< the last character
};

/// What stands at `index`, where a parser of JSON gave up: a comment, a word of Python, a text in
/// single quotes, a comma too many, the end of the text, or a file that is none of JSON at all.
FileDamage json_damage(std::string_view text, std::size_t index);

}  // namespace pipetwin
