// SPDX-License-Identifier: Apache-2.0
#include "core/text/csv_lines.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "core/base/error.h"
#include "core/text/file_damage.h"

namespace pipetwin {

namespace {

constexpr std::string_view no_content = " \t\r\n,;\"";

[[noreturn]] void refuse_csv(
    std::string_view place, int line, std::size_t column, std::string what, std::string hint) {
    throw Error(ErrorKind::BadInput,
                fmt::format("{}:{}:{}", place, line, column),
                std::move(what),
                std::move(hint));
}

void expect_text(std::string_view text, std::string_view place, std::string_view expected) {
    FileDamage damage = damage_of_file(text, expected);
    if (damage.what.empty()) {
        return;
    }
    const std::string_view before = text.substr(0, damage.index);
    const std::size_t line_begin = before.rfind('\n') + 1;  // npos + 1 is 0
    refuse_csv(place,
               static_cast<int>(1 + std::ranges::count(before, '\n')),
               before.size() - line_begin + 1,
               std::move(damage.what),
               std::move(damage.hint));
}

/// Whether the line is one cell in quotes, without quotes inside of it.
bool is_quoted(std::string_view line) {
    return line.size() >= 2 && line.front() == '"' && line.find('"', 1) == line.size() - 1;
}

}  // namespace

bool CsvLine::has_content() const {
    return text.find_first_not_of(no_content) != std::string_view::npos;
}

CsvLines::CsvLines(std::string_view text, std::string_view place, std::string_view expected)
    : text_(text), place_(place) {
    expect_text(text, place, expected);
    text_.remove_prefix(text_.starts_with(byte_order_mark) ? byte_order_mark.size() : 0);
    line_end_ = text_.find('\n') == std::string_view::npos ? '\r' : '\n';
    const std::size_t last = text_.find_last_not_of(no_content);
    text_ = last == std::string_view::npos
                ? std::string_view()
                : text_.substr(0, std::min(text_.find(line_end_, last), text_.size()));
    take_separator();
}

std::string_view CsvLines::raw_line(std::size_t& taken) const {
    const std::size_t end = std::min(text_.find(line_end_), text_.size());
    taken = std::min(end + 1, text_.size());
    const std::string_view line = text_.substr(0, end);
    const std::size_t last = line.find_last_not_of('\r');  // of "\r\n", or of "\r\r\n"
    return last == std::string_view::npos ? std::string_view() : line.substr(0, last + 1);
}

std::string_view CsvLines::peek() const {
    std::size_t taken = 0;
    const std::string_view line = raw_line(taken);
    return is_quoted(line) ? line.substr(1, line.size() - 2) : line;
}

std::optional<CsvLine> CsvLines::next() {
    if (text_.empty()) {
        return std::nullopt;
    }
    std::size_t taken = 0;
    const std::string_view raw = raw_line(taken);
    const std::string_view line = peek();
    if (const std::size_t inside = raw.find('\r'); inside != std::string_view::npos) {
        refuse_csv(place_,
                   number_,
                   inside + 1,
                   "a carriage return inside of the line",
                   "end all lines in one way: with LF, with CR and LF, or with CR");
    }
    text_.remove_prefix(taken);
    return CsvLine{
        .text = line, .number = number_++, .first_column = line.size() == raw.size() ? 1U : 2U};
}

void CsvLines::take_separator() {
    std::string_view line = peek();
    if (!line.starts_with("sep=") && !line.starts_with("SEP=")) {
        return;
    }
    line.remove_prefix(4);
    const char named = line.empty() ? '\0' : line.front();
    const bool is_known = named == ',' || named == ';' || named == '\t';
    if (!is_known || line.find_first_not_of(named) != std::string_view::npos) {
        refuse_csv(place_,
                   1,
                   1,
                   fmt::format("sep= names '{}', expected a comma, a semicolon or a tab",
                               line.substr(0, 40)),
                   "separate the cells by commas, and leave this line out");
    }
    separator_ = named;
    std::size_t taken = 0;
    raw_line(taken);
    text_.remove_prefix(taken);
    ++number_;
}

}  // namespace pipetwin
