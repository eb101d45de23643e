// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace pipetwin {

/// One line of a CSV file.
struct CsvLine {
    std::string_view text{};       ///< without its end, and without quotes around the whole line
    int number = 1;                ///< in the file, from 1
    std::size_t first_column = 1;  ///< where `text` begins in the line of the file, from 1

    /// True if the line has more than separators, blanks and quotes.
    bool has_content() const;
};

/// The lines of a CSV file as spreadsheets and other programs write one: with a byte-order mark;
/// with LF, CR and LF, or CR alone at the end of every line; with a first line `sep=;`; with lines
/// in quotes as a whole; with lines of empty cells at the end. None of these is content.
class CsvLines {
  public:
    /// `text` must outlive it. `expected` names the kind of the file, as in "a schedule as CSV".
    /// Throws Error(BadInput) with place:line:column for a file that is no text, and for a line
    /// `sep=` of another separator than a comma, a semicolon or a tab.
    CsvLines(std::string_view text, std::string_view place, std::string_view expected);

    /// The separator of a first line `sep=`; none: there is no such line.
    std::optional<char> separator() const { return separator_; }

    /// The line that `next` returns, without taking it; empty where there is none.
    std::string_view peek() const;

    /// Takes the next line; none behind the last one with content. Throws Error(BadInput) with
    /// place:line:column for a carriage return inside the line.
    std::optional<CsvLine> next();

  private:
    /// The next line with its quotes, and how many characters it takes of the text.
    std::string_view raw_line(std::size_t& taken) const;
    void take_separator();

    std::string_view text_;  ///< what is still to come
    std::string place_;
    char line_end_ = '\n';
    int number_ = 1;
    std::optional<char> separator_;
};

}  // namespace pipetwin
