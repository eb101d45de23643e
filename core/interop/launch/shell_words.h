// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
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

}  // namespace pipetwin
