// SPDX-License-Identifier: Apache-2.0
#include "core/svg/heat_map_svg.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <string_view>

#include <fmt/format.h>

#include "core/base/as_index.h"
#include "core/base/error.h"
#include "core/svg/svg_pieces.h"

namespace pipetwin {

namespace {

using svg::Anchor;

constexpr double cell_width = 92;
constexpr double cell_height = 52;
constexpr double left = 74;
constexpr double top = 74;
constexpr double map_margin = 16;
constexpr double legend_height = 34;

struct Shade {
    std::string_view fill;
    std::string_view ink;
};

/// One hue, from little to much, so that it can be read in grey, too.
constexpr std::array<Shade, 6> shades{{{"#F1F6FB", svg::ink},
                                       {"#D3E4F3", svg::ink},
                                       {"#A8CBE6", svg::ink},
                                       {"#6FA8D3", svg::ink},
                                       {"#2F7EBC", "#FFFFFF"},
                                       {"#08519C", "#FFFFFF"}}};

/// The values between which the shades lie.
struct Range {
    double least = std::numeric_limits<double>::infinity();
    double most = -std::numeric_limits<double>::infinity();

    const Shade& shade_of(double value) const {
        const double share = most > least ? (value - least) / (most - least) : 1;
        const auto last = static_cast<double>(shades.size() - 1);
        return shades.at(as_index(std::lround(share * last)));
    }
};

Range range_of(const HeatMapPicture& picture) {
    Range range;
    for (const auto& row : picture.cells) {
        for (const HeatMapPicture::Cell& cell : row) {
            if (cell.value) {
                range.least = std::min(range.least, *cell.value);
                range.most = std::max(range.most, *cell.value);
            }
        }
    }
    return range;
}

constexpr std::string_view hatch =
    R"svg(<defs><pattern id="none" width="8" height="8" patternUnits="userSpaceOnUse" patternTransform="rotate(45)"><rect width="8" height="8" fill="#F6F7F9"/><line x1="0" y1="0" x2="0" y2="8" stroke="#B8BFC8" stroke-width="2"/></pattern></defs>)svg";

std::string cell_svg(const HeatMapPicture::Cell& cell, double x, double y, const Range& range) {
    const Shade shade =
        cell.value ? range.shade_of(*cell.value) : Shade{"url(#none)", svg::pale_ink};
    std::string text = "<g>";
    if (!cell.tooltip.empty()) {
        text += fmt::format("<title>{}</title>", svg::escaped(cell.tooltip));
    }
    const svg::Box box{x + 1, y + 1, cell_width - 2, cell_height - 2};
    text += svg::rect(box,
                      shade.fill,
                      cell.best ? R"( stroke="#D55E00" stroke-width="3")"
                                : R"( stroke="#C9D1DA" stroke-width="1")");
    constexpr double line_height = 14;
    const auto lines = static_cast<double>(cell.lines.size());
    double line_y = y + cell_height / 2 - (lines - 1) * line_height / 2 + 4;
    for (std::size_t line = 0; line < cell.lines.size(); ++line) {
        text += svg::text_at(x + cell_width / 2,
                             line_y,
                             cell.lines[line],
                             {.size = line == 0 ? 13.0 : 10.5,
                              .anchor = Anchor::Middle,
                              .fill = shade.ink,
                              .bold = line == 0});
        line_y += line_height;
    }
    return text + "</g>\n";
}

}  // namespace

std::string render_heat_map(const HeatMapPicture& picture) {
    PIPETWIN_EXPECT(picture.cells.size() == picture.rows.size(), "a row of cells for each row");
    const auto columns = static_cast<double>(picture.columns.size());
    const auto rows = static_cast<double>(picture.rows.size());
    const double least_width = svg::text_width(picture.legend, 11) + 2 * map_margin;
    const double width = std::max(left + columns * cell_width + map_margin, least_width);
    const double height = top + rows * cell_height + legend_height + map_margin;
    std::string text = fmt::format(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{1}\" viewBox=\"0 0 {0} "
        "{1}\" font-family=\"DejaVu Sans, Helvetica, Arial, sans-serif\">\n",
        svg::number(width),
        svg::number(height));
    text += hatch;
    text += svg::rect({0, 0, width, height}, "#FFFFFF", "");
    text += svg::text_at(map_margin, 24, picture.title, {.size = 15, .bold = true});
    text += svg::text_at(left + columns * cell_width / 2,
                         top - 24,
                         picture.column_axis,
                         {.size = 12, .anchor = Anchor::Middle, .fill = svg::pale_ink});
    text += svg::text_at(left - 10,
                         top - 8,
                         picture.row_axis,
                         {.size = 12, .anchor = Anchor::End, .fill = svg::pale_ink});
    for (std::size_t column = 0; column < picture.columns.size(); ++column) {
        text += svg::text_at(left + (static_cast<double>(column) + 0.5) * cell_width,
                             top - 8,
                             picture.columns[column],
                             {.size = 12, .anchor = Anchor::Middle, .bold = true});
    }
    const Range range = range_of(picture);
    for (std::size_t row = 0; row < picture.rows.size(); ++row) {
        const double y = top + static_cast<double>(row) * cell_height;
        text += svg::text_at(left - 10,
                             y + cell_height / 2 + 4,
                             picture.rows[row],
                             {.size = 12, .anchor = Anchor::End, .bold = true});
        for (std::size_t column = 0; column < picture.cells[row].size(); ++column) {
            text += cell_svg(picture.cells[row][column],
                             left + static_cast<double>(column) * cell_width,
                             y,
                             range);
        }
    }
    text += svg::text_at(
        map_margin, height - map_margin, picture.legend, {.size = 11, .fill = svg::pale_ink});
    return text + "</svg>\n";
}

}  // namespace pipetwin
