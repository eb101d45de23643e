// SPDX-License-Identifier: Apache-2.0
#include "core/svg/front_svg.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>

#include <fmt/format.h>

#include "core/base/error.h"
#include "core/base/number_text.h"
#include "core/svg/paper.h"
#include "core/svg/svg_pieces.h"

namespace pipetwin {

namespace {

/// Sizes of the picture, in pixels or points.
struct FrontSizes {
    double width = 0;
    double height = 0;
    double left = 0;
    double right = 0;
    double top = 0;
    double bottom = 0;
    double text = 0;
    double mark = 0;  ///< half of a mark's width
    double line = 0;  ///< width of the front's line
};

constexpr std::array<std::string_view, 6> group_fills{
    "#0072B2", "#D55E00", "#009E73", "#7A4F9A", "#8A6D00", "#5B6673"};

/// A scale of numbers from 0 or above to the width or height of the plot.
struct FrontScale {
    double least = 0;
    double most = 1;
    double begin = 0;  ///< where `least` lies
    double end = 0;

    double operator()(double value) const {
        return begin + (value - least) / (most - least) * (end - begin);
    }
    double tick() const {
        constexpr double ticks = 5;
        return svg::tick_step((most - least) / ticks);
    }
};

/// The values with an eighth of their spread to both sides, and not below zero.
FrontScale scale_of(double least, double most, double begin, double end) {
    const double spread = most > least ? most - least : std::max(1e-9, most / 2);
    constexpr double part = 0.12;
    return {.least = std::max(0.0, least - part * spread),
            .most = most + part * spread,
            .begin = begin,
            .end = end};
}

/// "1,234", "12.5", "3.4 million": a number at an axis.
std::string axis_number(double value, double step) {
    if (value >= 1e6) {
        const double unit = value >= 1e9 ? 1e9 : 1e6;
        return fmt::format("{} {}",
                           fmt::format("{:.{}f}", value / unit, svg::tick_decimals(step / unit)),
                           unit == 1e9 ? "billion" : "million");
    }
    return step >= 1 ? with_separators(std::llround(value))
                     : fmt::format("{:.{}f}", value, svg::tick_decimals(step));
}

/// Circle, square, triangle or diamond around a place; the answer has a ring.
std::string mark_svg(double x, double y, const FrontPicture::Point& point, double half) {
    const std::string_view fill = group_fills.at(point.group % group_fills.size());
    constexpr std::size_t shapes = 4;
    std::string text;
    if (point.is_answer) {
        text += fmt::format(
            R"(<circle cx="{}" cy="{}" r="{}" fill="none" stroke="{}" stroke-width="{}"/>)",
            svg::number(x),
            svg::number(y),
            svg::number(2 * half),
            svg::ink,
            svg::number(half / 3));
    }
    switch (point.group % shapes) {
        case 0:
            return text + fmt::format(R"(<circle cx="{}" cy="{}" r="{}" fill="{}"/>)",
                                      svg::number(x),
                                      svg::number(y),
                                      svg::number(half),
                                      fill);
        case 1:
            return text + svg::rect({x - half, y - half, 2 * half, 2 * half}, fill, "");
        case 2:
            return text + fmt::format(R"(<path d="M{} {}l{} {}h{}z" fill="{}"/>)",
                                      svg::number(x),
                                      svg::number(y - half * 1.2),
                                      svg::number(half * 1.2),
                                      svg::number(half * 2.2),
                                      svg::number(-half * 2.4),
                                      fill);
        default:
            return text + fmt::format(R"(<path d="M{} {}l{} {}l{} {}l{} {}z" fill="{}"/>)",
                                      svg::number(x),
                                      svg::number(y - half * 1.3),
                                      svg::number(half * 1.3),
                                      svg::number(half * 1.3),
                                      svg::number(-half * 1.3),
                                      svg::number(half * 1.3),
                                      svg::number(-half * 1.3),
                                      svg::number(-half * 1.3),
                                      fill);
    }
}

std::string straight_line(double x1,
                          double y1,
                          double x2,
                          double y2,
                          std::string_view stroke,
                          double width,
                          std::string_view more = "") {
    return fmt::format(R"(<line x1="{}" y1="{}" x2="{}" y2="{}" stroke="{}" stroke-width="{}"{}/>)",
                       svg::number(x1),
                       svg::number(y1),
                       svg::number(x2),
                       svg::number(y2),
                       stroke,
                       svg::number(width),
                       more);
}

/// Ticks, grid and names of both axes.
std::string front_axes(const FrontPicture& picture,
                       const FrontScale& x,
                       const FrontScale& y,
                       const FrontSizes& sizes) {
    std::string text;
    const svg::TextStyle middle{.size = sizes.text, .anchor = svg::Anchor::Middle};
    const svg::TextStyle end{.size = sizes.text, .anchor = svg::Anchor::End};
    for (double at = std::ceil(x.least / x.tick()) * x.tick(); at <= x.most; at += x.tick()) {
        text += straight_line(x(at), y.begin, x(at), y.end, svg::grid_ink, sizes.line / 3);
        text += svg::text_at(x(at), y.begin + sizes.text * 1.5, axis_number(at, x.tick()), middle);
    }
    for (double at = std::ceil(y.least / y.tick()) * y.tick(); at <= y.most; at += y.tick()) {
        text += straight_line(x.begin, y(at), x.end, y(at), svg::grid_ink, sizes.line / 3);
        text += svg::text_at(
            x.begin - sizes.text * 0.5, y(at) + sizes.text * 0.36, axis_number(at, y.tick()), end);
    }
    text += straight_line(x.begin, y.begin, x.end, y.begin, svg::ink, sizes.line / 2);
    text += straight_line(x.begin, y.begin, x.begin, y.end, svg::ink, sizes.line / 2);
    text += svg::text_at((x.begin + x.end) / 2, y.begin + sizes.text * 3, picture.x_axis, middle);
    return text + svg::text_at(x.begin - sizes.text * 0.5,
                               y.end - sizes.text * 0.9,
                               picture.y_axis,
                               {.size = sizes.text, .anchor = svg::Anchor::Start});
}

/// Places of texts that are taken, so that no label lies on another.
struct Taken {
    std::vector<svg::Box> boxes{};

    bool is_free(const svg::Box& box) const {
        return std::ranges::none_of(boxes, [&box](const svg::Box& other) {
            return box.x < other.x + other.width && other.x < box.x + box.width &&
                   box.y < other.y + other.height && other.y < box.y + box.height;
        });
    }
};

/// The label of a point at the first of eight places beside it that is free and inside of the plot;
/// nothing where none is.
std::string label_svg(const std::string& label,
                      double x,
                      double y,
                      const FrontScale& x_scale,
                      const FrontScale& y_scale,
                      const FrontSizes& sizes,
                      Taken& taken) {
    const double width = svg::text_width(label, sizes.text) + 1;
    const double gap = 2 * sizes.mark + 1;
    const double height = sizes.text * 1.1;
    constexpr std::array<double, 5> rises{-0.9, 0.9, -2.1, 2.1, 3.3};
    for (const double rise : rises) {
        for (const bool is_right : {true, false}) {
            const svg::Box box{is_right ? x + gap : x - gap - width,
                               y + rise * sizes.text - height / 2,
                               width,
                               height};
            const bool is_inside = box.x >= x_scale.begin && box.x + width <= sizes.width &&
                                   box.y >= y_scale.end && box.y + height <= y_scale.begin;
            if (is_inside && taken.is_free(box)) {
                taken.boxes.push_back(box);
                return svg::text_at(box.x, box.y + sizes.text * 0.9, label, {.size = sizes.text});
            }
        }
    }
    return "";
}

/// The front as steps: nothing is both earlier and cheaper than what lies on it.
std::string front_line(const FrontPicture& picture,
                       const FrontScale& x,
                       const FrontScale& y,
                       double width) {
    if (picture.front.empty()) {
        return "";
    }
    const FrontPicture::Point& first = picture.points[picture.front.front()];
    std::string path = fmt::format(
        "M{} {}V{}", svg::number(x(first.x)), svg::number(y.end), svg::number(y(first.y)));
    for (const std::size_t i : picture.front) {
        path += fmt::format(
            "H{}V{}", svg::number(x(picture.points[i].x)), svg::number(y(picture.points[i].y)));
    }
    return fmt::format(
        R"(<path d="{}H{}" fill="none" stroke="{}" stroke-width="{}" stroke-dasharray="{} {}"/>)",
        path,
        svg::number(x.end),
        svg::pale_ink,
        svg::number(width),
        svg::number(3 * width),
        svg::number(2 * width));
}

std::string front_body(const FrontPicture& picture, const FrontSizes& sizes) {
    double least_x = picture.limit.value_or(picture.points.front().x);
    double most_x = least_x;
    double least_y = picture.points.front().y;
    double most_y = least_y;
    for (const FrontPicture::Point& point : picture.points) {
        least_x = std::min({least_x, point.x, point.least_x});
        most_x = std::max({most_x, point.x, point.most_x});
        least_y = std::min(least_y, point.y);
        most_y = std::max(most_y, point.y);
    }
    const FrontScale x = scale_of(least_x, most_x, sizes.left, sizes.width - sizes.right);
    const FrontScale y = scale_of(least_y, most_y, sizes.height - sizes.bottom, sizes.top);
    std::string text = front_axes(picture, x, y, sizes);
    Taken taken;
    if (picture.limit) {
        const double at = x(*picture.limit);
        text += straight_line(at, y.begin, at, y.end, "#B3261E", sizes.line);
        const double width = svg::text_width(picture.limit_name, sizes.text);
        const bool is_right = at + width + sizes.text < x.end;
        taken.boxes.push_back(
            {is_right ? at : at - width - sizes.text, y.end, width + sizes.text, sizes.text * 1.4});
        text += svg::text_at(is_right ? at + sizes.text * 0.4 : at - sizes.text * 0.4,
                             y.end + sizes.text,
                             picture.limit_name,
                             {.size = sizes.text,
                              .anchor = is_right ? svg::Anchor::Start : svg::Anchor::End,
                              .fill = "#B3261E"});
    }
    text += front_line(picture, x, y, sizes.line);
    for (const FrontPicture::Point& point : picture.points) {
        taken.boxes.push_back(
            {x(point.x) - sizes.mark, y(point.y) - sizes.mark, 2 * sizes.mark, 2 * sizes.mark});
    }
    std::string labels;
    for (const FrontPicture::Point& point : picture.points) {
        const double at_x = x(point.x);
        const double at_y = y(point.y);
        text += "<g>";
        if (!point.tooltip.empty()) {
            text += fmt::format("<title>{}</title>", svg::escaped(point.tooltip));
        }
        if (point.most_x > point.least_x) {
            text += straight_line(x(point.least_x),
                                  at_y,
                                  x(point.most_x),
                                  at_y,
                                  group_fills.at(point.group % group_fills.size()),
                                  sizes.line * 0.8);
        }
        text += mark_svg(at_x, at_y, point, sizes.mark) + "</g>\n";
        labels += label_svg(point.label, at_x, at_y, x, y, sizes, taken);
    }
    return text + labels;
}

/// A mark and a name for each group, in as many lines as they need; moves `y` below them.
std::string group_legend(const FrontPicture& picture,
                         const FrontSizes& sizes,
                         double margin,
                         double& y) {
    std::string text;
    double x = margin;
    for (std::size_t group = 0; group < picture.groups.size(); ++group) {
        const double width =
            svg::text_width(picture.groups[group], sizes.text) + 4 * sizes.mark + sizes.text;
        if (x > margin && x + width > sizes.width - margin) {
            x = margin;
            y += sizes.text * 1.5;
        }
        text += mark_svg(x + sizes.mark, y - sizes.text * 0.36, {.group = group}, sizes.mark);
        text += svg::text_at(x + 3 * sizes.mark, y, picture.groups[group], {.size = sizes.text});
        x += width;
    }
    return text;
}

constexpr std::string_view front_legend =
    "Dashed: the front, nothing is both earlier and cheaper. Line through a mark: 90 % range. "
    "Ring: the answer.";

}  // namespace

std::string render_front(const FrontPicture& picture, const FigureLook& look) {
    PIPETWIN_EXPECT(!picture.points.empty(), "a choice that can be drawn");
    const bool is_paper = look.is_paper();
    const double margin = is_paper ? 1 : 16;
    const double text_size = is_paper ? svg::paper_text : 12;
    const double title_size = is_paper ? svg::paper_title : 15;
    FrontSizes sizes{.width = is_paper ? look.width : 900.0,
                     .right = is_paper ? 4.0 : 20.0,
                     .text = text_size,
                     .mark = is_paper ? 2.2 : 5.0,
                     .line = is_paper ? 0.8 : 1.6};
    std::string text;
    double y = is_paper ? 1 : 8;
    const std::string title = look.title.value_or(is_paper ? "" : picture.title);
    for (const std::string& line : svg::wrapped(title, title_size, sizes.width - 2 * margin)) {
        y += title_size * 1.25;
        text += svg::text_at(margin, y, line, {.size = title_size, .bold = true});
    }
    double widest = 0;
    double most_y = 0;
    for (const FrontPicture::Point& point : picture.points) {
        most_y = std::max(most_y, point.y);
    }
    widest = svg::text_width(axis_number(most_y * 1.1, most_y / 50), text_size);
    sizes.left = margin + widest + text_size;
    sizes.top = y + text_size * 2.4;
    sizes.bottom = 0;
    const double plot = is_paper ? look.width * 0.62 : 420;
    sizes.height = sizes.top + plot;
    text += front_body(picture, sizes);
    y = sizes.height + text_size * 3.6;
    if (!is_paper || look.legend || picture.groups.size() > 1) {
        y += text_size * 1.2;
        text += group_legend(picture, sizes, margin, y);
    }
    if (!is_paper || look.legend) {
        for (const std::string& line :
             svg::wrapped(front_legend, text_size, sizes.width - 2 * margin)) {
            y += text_size * 1.5;
            text += svg::text_at(
                margin, y, line, {.size = text_size, .fill = is_paper ? svg::ink : svg::pale_ink});
        }
    }
    const double height = y + (is_paper ? 3 : 14);
    if (is_paper) {
        return svg::paper_head(look.width, height, "") + text + "</svg>\n";
    }
    return fmt::format(
               "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{1}\" "
               "viewBox=\"0 0 {0} {1}\" font-family=\"DejaVu Sans, Helvetica, Arial, "
               "sans-serif\">\n",
               svg::number(sizes.width),
               svg::number(height)) +
           svg::rect({0, 0, sizes.width, height}, "#FFFFFF", "") + text + "</svg>\n";
}

}  // namespace pipetwin
