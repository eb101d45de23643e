// SPDX-License-Identifier: Apache-2.0
#include "core/costs/profile_csv.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/base/error.h"
#include "core/base/number_text.h"
#include "core/base/suggest.h"
#include "core/text/csv_lines.h"
#include "core/text/json_text.h"

namespace pipetwin {

namespace {

using std::string_view;

constexpr std::array<string_view, 9> columns{"name",
                                             "forward_ms",
                                             "backward_ms",
                                             "output_bytes",
                                             "saved_bytes",
                                             "parameter_bytes",
                                             "backward_input_ms",
                                             "backward_weight_ms",
                                             "inputs"};
constexpr std::size_t required_columns = 6;

struct Cell {
    std::string text{};
    std::size_t column = 1;  ///< of its first character, from 1
};

/// One line of the file and what to call it in an error.
class Line {
  public:
    Line(const CsvLine& line, string_view file, char separator)
        : file_(file), line_(line), separator_(separator) {
        std::size_t at = 0;
        do {
            at = read_cell(line.text, at);
        } while (at <= line.text.size());
    }

    const std::vector<Cell>& cells() const { return cells_; }

    [[noreturn]] void refuse(std::size_t column, std::string what, Hint hint = {}) const {
        throw Error(ErrorKind::BadInput,
                    fmt::format("{}:{}:{}", file_, line_.number, line_.first_column + column - 1),
                    std::move(what),
                    std::move(hint));
    }

  private:
    /// Reads the cell at `begin`; returns where the next one begins, beyond the end after the last.
    std::size_t read_cell(string_view text, std::size_t begin) {
        Cell cell{.column = begin + 1};
        if (begin >= text.size() || text[begin] != '"') {
            const std::size_t end = std::min(text.find(separator_, begin), text.size());
            cell.text = text.substr(begin, end - begin);
            cells_.push_back(std::move(cell));
            return end + 1;
        }
        std::size_t at = begin + 1;  // in quotes; two quotes stand for one
        while (true) {
            const std::size_t quote = text.find('"', at);
            if (quote == text.npos) {
                refuse(cell.column, "the quote is not closed");
            }
            cell.text += text.substr(at, quote - at);
            at = quote + 1;
            if (at >= text.size() || text[at] != '"') {
                break;
            }
            cell.text += '"';
            ++at;
        }
        if (at < text.size() && text[at] != separator_) {
            refuse(at + 1,
                   fmt::format("'{}' after a closing quote, expected {}",
                               text[at],
                               separator_ == ',' ? "a comma" : "the separator of the header"));
        }
        cells_.push_back(std::move(cell));
        return at + 1;
    }

    string_view file_;
    CsvLine line_;
    char separator_;
    std::vector<Cell> cells_;
};

/// Which cell of a row holds which column.
using Header = std::map<string_view, std::size_t>;

Header read_header(const Line& line) {
    Header header;
    for (std::size_t i = 0; i < line.cells().size(); ++i) {
        const Cell& cell = line.cells()[i];
        const auto known = std::ranges::find(columns, cell.text);
        if (known == columns.end()) {
            line.refuse(cell.column,
                        fmt::format("unknown column '{}'", cell.text.substr(0, 60)),
                        suggestion(cell.text, columns));
        }
        if (!header.emplace(*known, i).second) {
            line.refuse(cell.column, fmt::format("column '{}' occurs twice", cell.text));
        }
    }
    for (const string_view column : std::span(columns).first(required_columns)) {
        if (!header.contains(column)) {
            line.refuse(1,
                        fmt::format("no column '{}' in the header", column),
                        fmt::format("expected: {}",
                                    fmt::join(std::span(columns).first(required_columns), ",")));
        }
    }
    if (header.contains("backward_input_ms") != header.contains("backward_weight_ms")) {
        line.refuse(1,
                    "one part of the backward without the other",
                    "give both backward_input_ms and backward_weight_ms, or neither");
    }
    return header;
}

/// The cells of one layer.
class Row {
  public:
    Row(const Line& line, const Header& header) : line_(line), header_(header) {
        if (line.cells().size() != header.size()) {
            line.refuse(1,
                        fmt::format("{}, expected the {} of the header",
                                    counted(line.cells().size(), "cell"),
                                    header.size()));
        }
    }

    bool has(string_view column) const { return header_.contains(column); }

    const std::string& text(string_view column) const { return cell(column).text; }

    Duration milliseconds(string_view column) const {
        const double value = number<double>(column, "a number of milliseconds, not negative");
        try {
            return from_milliseconds(value, column);
        } catch (const Error&) {
            refuse(column, "a number of milliseconds, finite and not negative");
        }
    }

    Bytes bytes(string_view column) const {
        constexpr string_view expected = "a whole number of bytes from 0 to 2^53";
        const auto value = number<std::int64_t>(column, expected);
        if (value < 0 || value > (std::int64_t{1} << 53)) {
            refuse(column, expected);
        }
        return Bytes{value};
    }

    std::vector<std::string> names(string_view column) const {
        std::vector<std::string> all;
        string_view rest = text(column);
        while (!rest.empty()) {
            const std::size_t end = std::min(rest.find(';'), rest.size());
            all.emplace_back(rest.substr(0, end));
            rest.remove_prefix(std::min(end + 1, rest.size()));
        }
        return all;
    }

    [[noreturn]] void refuse(string_view column, string_view expected) const {
        const std::string& text = cell(column).text;
        const bool has_comma =
            !text.empty() && text.find_first_not_of("0123456789,") == std::string::npos;
        line_.refuse(cell(column).column,
                     fmt::format("{} = '{}', expected {}", column, text.substr(0, 60), expected),
                     has_comma && text.find(',') != std::string::npos
                         ? "write a point in front of the decimals"
                         : "");
    }

  private:
    const Cell& cell(string_view column) const { return line_.cells()[header_.at(column)]; }

    template <class Number>
    Number number(string_view column, string_view expected) const {
        const std::string& written = text(column);
        Number value{};
        const char* const end = written.data() + written.size();
        const auto [rest, status] = std::from_chars(written.data(), end, value);
        if (status != std::errc{} || rest != end) {
            refuse(column, expected);
        }
        return value;
    }

    const Line& line_;
    const Header& header_;
};

LayerCost read_layer(const Row& row) {
    LayerSample sample;
    sample.forward = row.milliseconds("forward_ms");
    const Duration backward = row.milliseconds("backward_ms");
    sample.backward_input = backward / 2;
    sample.backward_weight = backward - sample.backward_input;
    if (row.has("backward_input_ms")) {
        sample.backward_input = row.milliseconds("backward_input_ms");
        sample.backward_weight = row.milliseconds("backward_weight_ms");
        constexpr Duration rounding{2};  // each of the three numbers was rounded to a nanosecond
        if (std::chrono::abs(sample.backward() - backward) > rounding) {
            row.refuse("backward_ms", "the sum of backward_input_ms and backward_weight_ms");
        }
    }
    sample.output = row.bytes("output_bytes");
    sample.saved = row.bytes("saved_bytes");
    if (!is_utf8(row.text("name"))) {
        row.refuse("name", "UTF-8 text");
    }
    return {.name = row.text("name"),
            .inputs = row.has("inputs") ? row.names("inputs") : std::vector<std::string>{},
            .parameter_bytes = row.bytes("parameter_bytes"),
            .samples = {sample}};
}

/// What stands between the names of the header: a comma, or, in a header that has none, what
/// spreadsheets of some countries write instead.
char separator_of_header(string_view header) {
    for (const char separator : {',', ';', '\t'}) {
        if (header.find(separator) != string_view::npos) {
            return separator;
        }
    }
    return ',';
}

}  // namespace

Profile parse_profile_csv(std::string_view text, std::string_view place) {
    CsvLines lines(text, place, "costs as CSV");
    const char separator = lines.separator().value_or(separator_of_header(lines.peek()));
    const Header header = read_header(Line(lines.next().value_or(CsvLine{}), place, separator));
    Profile profile{.source = CostSource::Estimated};
    while (const std::optional<CsvLine> line = lines.next()) {
        if (line->has_content()) {
            const Line cells(*line, place, separator);
            profile.layers.push_back(read_layer(Row(cells, header)));
        }
    }
    check_profile(profile, place);
    return profile;
}

}  // namespace pipetwin
