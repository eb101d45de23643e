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
#include "core/svg/paper.h"
#include "core/svg/svg_pieces.h"

namespace pipetwin {

namespace {

using svg::Anchor;

/// Sizes of a heat map, in pixels or points.
struct MapSizes {
    double cell_width = 0;
    double cell_height = 0;
    double left = 0;  ///< of the cells
    double top = 0;
    double margin = 0;
    double gap = 0;           ///< between a cell and its room
    double first = 0;         ///< size of a cell's first line
    double others = 0;        ///< size of its other lines
    double line = 0;          ///< from line to line
    double axis = 0;          ///< size of the axes' texts
    double legend = 0;        ///< size of the legend's text
    bool leaves_out = false;  ///< what has no room
};

constexpr double legend_height = 34;
constexpr MapSizes screen_map{.cell_width = 92,
                              .cell_height = 52,
                              .left = 74,
                              .top = 74,
                              .margin = 16,
                              .gap = 1,
                              .first = 13,
                              .others = 10.5,
                              .line = 14,
                              .axis = 12,
                              .legend = 11};

struct MapShade {
    std::string_view fill;
    std::string_view ink;
};

/// One hue, from little to much, so that it can be read in grey, too.
constexpr std::array<MapShade, 6> shades{{{"#F1F6FB", svg::ink},
                                          {"#D3E4F3", svg::ink},
                                          {"#A8CBE6", svg::ink},
                                          {"#6FA8D3", svg::ink},
                                          {"#2B78B5", "#FFFFFF"},
                                          {"#08519C", "#FFFFFF"}}};

/// The values between which the shades lie.
struct Range {
    double least = std::numeric_limits<double>::infinity();
    double most = -std::numeric_limits<double>::infinity();

    const MapShade& shade_of(double value) const {
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

std::string cell_svg(const HeatMapPicture::Cell& cell,
                     double x,
                     double y,
                     const Range& range,
                     const MapSizes& sizes) {
    const MapShade shade =
        cell.value ? range.shade_of(*cell.value) : MapShade{"url(#none)", svg::pale_ink};
    std::string text = "<g>";
    if (!cell.tooltip.empty()) {
        text += fmt::format("<title>{}</title>", svg::escaped(cell.tooltip));
    }
    const svg::Box box{x + sizes.gap,
                       y + sizes.gap,
                       sizes.cell_width - 2 * sizes.gap,
                       sizes.cell_height - 2 * sizes.gap};
    const bool is_paper = sizes.leaves_out;
    text += svg::rect(box,
                      shade.fill,
                      cell.best  ? (is_paper ? R"( stroke="#D55E00" stroke-width="1.5")"
                                             : R"( stroke="#D55E00" stroke-width="3")")
                      : is_paper ? R"( stroke="#7A828C" stroke-width="0.4")"
                                 : R"( stroke="#C9D1DA" stroke-width="1")");
    const auto lines = static_cast<double>(cell.lines.size());
    double line_y = y + sizes.cell_height / 2 - (lines - 1) * sizes.line / 2 +
                    (is_paper ? sizes.first * 0.36 : 4);
    for (std::size_t line = 0; line < cell.lines.size(); ++line) {
        const double size = line == 0 ? sizes.first : sizes.others;
        if (!is_paper || svg::text_width(cell.lines[line], size) <= box.width - 1) {
            text +=
                svg::text_at(x + sizes.cell_width / 2,
                             line_y,
                             cell.lines[line],
                             {.size = size,
                              .anchor = Anchor::Middle,
                              .fill = is_paper && shade.ink == svg::pale_ink ? svg::ink : shade.ink,
                              .bold = line == 0});
        }
        line_y += sizes.line;
    }
    return text + "</g>\n";
}

/// The sizes of a figure of this width.
MapSizes paper_map(const HeatMapPicture& picture, double width, double header) {
    double left = svg::text_width(picture.row_axis, svg::paper_text);
    for (const std::string& row : picture.rows) {
        left = std::max(left, svg::text_width(row, svg::paper_text));
    }
    std::size_t lines = 1;
    for (const auto& row : picture.cells) {
        for (const HeatMapPicture::Cell& cell : row) {
            lines = std::max(lines, cell.lines.size());
        }
    }
    MapSizes sizes{.left = left + 5,
                   .top = header + 2 * svg::paper_line + 2,
                   .margin = 1,
                   .gap = 0.3,
                   .first = svg::paper_text,
                   .others = svg::paper_text,
                   .line = svg::paper_line,
                   .axis = svg::paper_text,
                   .legend = svg::paper_text,
                   .leaves_out = true};
    const auto columns = static_cast<double>(std::max<std::size_t>(1, picture.columns.size()));
    sizes.cell_width = (width - sizes.left - 1) / columns;
    sizes.cell_height = static_cast<double>(lines) * sizes.line + 3;
    return sizes;
}

/// Axes and cells.
std::string map_body(const HeatMapPicture& picture, const MapSizes& sizes) {
    const auto columns = static_cast<double>(picture.columns.size());
    const bool is_paper = sizes.leaves_out;
    const double rise = is_paper ? 3 : 8;     // of the names of columns above the cells
    const double beside = is_paper ? 3 : 10;  // of the names of rows
    const double axis_rise = is_paper ? rise + svg::paper_line : 24;
    const std::string_view axis_ink = is_paper ? svg::ink : svg::pale_ink;
    std::string text;
    text += svg::text_at(sizes.left + columns * sizes.cell_width / 2,
                         sizes.top - axis_rise,
                         picture.column_axis,
                         {.size = sizes.axis, .anchor = Anchor::Middle, .fill = axis_ink});
    text += svg::text_at(sizes.left - beside,
                         sizes.top - rise,
                         picture.row_axis,
                         {.size = sizes.axis, .anchor = Anchor::End, .fill = axis_ink});
    for (std::size_t column = 0; column < picture.columns.size(); ++column) {
        if (!is_paper ||
            svg::text_width(picture.columns[column], sizes.axis) <= sizes.cell_width - 1) {
            text +=
                svg::text_at(sizes.left + (static_cast<double>(column) + 0.5) * sizes.cell_width,
                             sizes.top - rise,
                             picture.columns[column],
                             {.size = sizes.axis, .anchor = Anchor::Middle, .bold = true});
        }
    }
    const Range range = range_of(picture);
    for (std::size_t row = 0; row < picture.rows.size(); ++row) {
        const double y = sizes.top + static_cast<double>(row) * sizes.cell_height;
        text += svg::text_at(sizes.left - beside,
                             y + sizes.cell_height / 2 + (is_paper ? sizes.axis * 0.36 : 4),
                             picture.rows[row],
                             {.size = sizes.axis, .anchor = Anchor::End, .bold = true});
        for (std::size_t column = 0; column < picture.cells[row].size(); ++column) {
            text += cell_svg(picture.cells[row][column],
                             sizes.left + static_cast<double>(column) * sizes.cell_width,
                             y,
                             range,
                             sizes);
        }
    }
    return text;
}

std::string paper_heat_map(const HeatMapPicture& picture, const FigureLook& look) {
    std::string text;
    const double room = look.width - 2;
    double y = 1;
    for (const std::string& line : svg::wrapped(look.title.value_or(""), svg::paper_title, room)) {
        y += svg::paper_line + 2;
        text += svg::text_at(1, y - 3, line, {.size = svg::paper_title, .bold = true});
    }
    const MapSizes sizes = paper_map(picture, look.width, y);
    text += map_body(picture, sizes);
    y = sizes.top + static_cast<double>(picture.rows.size()) * sizes.cell_height + 2;
    if (look.legend) {
        for (const std::string& line : svg::wrapped(picture.legend, svg::paper_text, room)) {
            y += svg::paper_line;
            text += svg::text_at(1, y, line, {.size = svg::paper_text});
        }
    }
    constexpr std::string_view thin_hatch =
        R"svg(<defs><pattern id="none" width="4" height="4" patternUnits="userSpaceOnUse" patternTransform="rotate(45)"><rect width="4" height="4" fill="#FFFFFF"/><line x1="0" y1="0" x2="0" y2="4" stroke="#B8BFC8" stroke-width="0.8"/></pattern></defs>)svg";
    return svg::paper_head(look.width, y + 2, thin_hatch) + text + "</svg>\n";
}

}  // namespace

std::string render_heat_map(const HeatMapPicture& picture, const FigureLook& look) {
    PIPETWIN_EXPECT(picture.cells.size() == picture.rows.size(), "a row of cells for each row");
    if (look.is_paper()) {
        return paper_heat_map(picture, look);
    }
    const MapSizes& sizes = screen_map;
    const auto columns = static_cast<double>(picture.columns.size());
    const auto rows = static_cast<double>(picture.rows.size());
    const double least_width = svg::text_width(picture.legend, 11) + 2 * sizes.margin;
    const double width =
        std::max(sizes.left + columns * sizes.cell_width + sizes.margin, least_width);
    const double height = sizes.top + rows * sizes.cell_height + legend_height + sizes.margin;
    std::string text = fmt::format(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{1}\" viewBox=\"0 0 {0} "
        "{1}\" font-family=\"DejaVu Sans, Helvetica, Arial, sans-serif\">\n",
        svg::number(width),
        svg::number(height));
    text += hatch;
    text += svg::rect({0, 0, width, height}, "#FFFFFF", "");
    text += svg::text_at(
        sizes.margin, 24, look.title.value_or(picture.title), {.size = 15, .bold = true});
    text += map_body(picture, sizes);
    text += svg::text_at(sizes.margin,
                         height - sizes.margin,
                         picture.legend,
                         {.size = sizes.legend, .fill = svg::pale_ink});
    return text + "</svg>\n";
}

}  // namespace pipetwin
