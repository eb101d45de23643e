// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

/// The grammar of a shell script, as far as words and statements go.
namespace pipetwin {

/// One word as it was written, with its quotes and variables.
struct ShellWord {
    std::string_view text;  ///< a part of the script
    std::size_t at = 0;     ///< where it begins in the script
};

/// Words up to the end of a line, a `;`, `&` or `|`, without redirections; `NAME=( ... )` is one
/// word.
struct ShellStatement {
    std::vector<ShellWord> words;
    char end = '\n';  ///< what stands behind it: a line end, '&' for "&&", '|' for "||", else ';'
};

/// How deep quotes, braces and parentheses may stand in each other.
constexpr int deepest_construct = 64;

/// What `end_of_construct` returns for constructs that are nested deeper than `deepest_construct`.
constexpr std::size_t too_deep = static_cast<std::size_t>(-2);

/// Splits a script into statements. Comments and here-documents are left out. Throws
/// Error(BadInput) with place:line:column for a quote, a parenthesis or a brace that is not closed,
/// and for constructs that are nested deeper than `deepest_construct`.
std::vector<ShellStatement> shell_statements(std::string_view script, std::string_view place);

/// Where a construct that begins at `begin` ends, one behind its last character: a quoted text,
/// `${ }`, `$( )`, backquotes, or an escaped character; `begin + 1` for any other. Returns `npos`
/// where it is not closed, and `too_deep` where what it holds is nested too deep.
std::size_t end_of_construct(std::string_view script, std::size_t begin);

/// "place:line:column" of a position in a text.
std::string text_place(std::string_view text, std::string_view place, std::size_t at);

/// A place in a text where something stands that the script gives no certain value.
struct ShellGap {
    std::size_t at = 0;        ///< characters of the text before it
    std::size_t where = 0;     ///< position in the script
    std::string unknown{};     ///< "$X"
    bool holds_flags = false;  ///< a branch of the script puts flags there
    bool is_apart = false;     ///< what may stand there begins with a blank
};

/// A word with its variables replaced, and where each of its characters stands in the script.
struct ShellText {
    std::string text;
    std::vector<std::size_t> at{};  ///< [character]: position in the script
    std::size_t word_at = 0;        ///< position of the word, for one without characters
    std::string unknown{};          ///< "$X" that the script gives no certain value; empty: none
    bool holds_flags = false;       ///< a branch of the script puts flags into the unknown value
    std::vector<ShellGap> gaps{};   ///< all that is unknown in it, in order; `unknown` is the first

    /// Position in the script of its first character.
    std::size_t begin() const { return at.empty() ? word_at : at.front(); }
    /// The text from its character number `first` on.
    ShellText from(std::size_t first) const;
};

/// The words between the blanks of a text.
std::vector<ShellText> split_at_blanks(const ShellText& text);

/// Whether a word is "NAME=value" or "NAME+=value".
bool is_assignment(std::string_view word);

/// Adds an unknown part to the end of a word.
void add_gap(const ShellGap& gap, ShellText& word);

/// Whether a character is blank for a shell, the end of a line included.
bool is_shell_blank(char c);

/// The variable's name at the begin of a text; empty: none.
std::string_view shell_name_at(std::string_view text);

/// The value of whole numbers with + - * / % and parentheses, as in $((2 * 3)); none: the text is
/// something else, or has a number that is too large.
std::optional<std::int64_t> shell_arithmetic(std::string_view text);

}  // namespace pipetwin
