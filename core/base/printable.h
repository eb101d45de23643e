// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

/// Text of files and command lines, made safe for a terminal, a log, a report and a picture.
namespace pipetwin {

/// Returns the text as one line that a terminal shows and does not obey. Control characters (those
/// of C0 and C1, DEL), separators of lines and marks that turn the direction of writing become
/// \n, \r, \t or \uXXXX; bytes that are no UTF-8 become \xXX. All else stays as it is, so that a
/// result given again comes back unchanged.
std::string printable(std::string_view text);

/// Whether `printable` leaves the text as it is.
bool is_printable(std::string_view text);

/// What stays of the escape sequences in a text of several lines.
enum class Colours { Escaped, Kept };

/// Returns a text of several lines: as `printable`, but tabs and the ends of lines (LF, CR LF)
/// stay. `Kept`: sequences that set a colour ("ESC [ 1;31 m") stay, too.
std::string printable_lines(std::string_view text, Colours colours = Colours::Escaped);

/// The first line of a text.
std::string first_line(const std::string& text);

}  // namespace pipetwin
