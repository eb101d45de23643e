// SPDX-License-Identifier: Apache-2.0
#include "core/svg/paper.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include <fmt/format.h>

#include "core/base/as_index.h"
#include "core/base/ascii.h"
#include "core/base/error.h"
#include "core/base/printable.h"
#include "core/svg/figure_look.h"

namespace pipetwin::svg {

namespace {

using Colour = std::array<int, 3>;

/// Shades of the first and the last stage of a rank.
struct Shades {
    Colour first;
    Colour last;
};

/// By Look. CIE L* of forward 28 to 37, input gradient 47 to 57, backward 67 to 76, weight gradient
/// 86 to 94; the hues are those of Okabe and Ito.
constexpr std::array<Shades, look_count> paper_shades{{
    {{0x00, 0x45, 0x6F}, {0x00, 0x5D, 0x92}},
    {{0xD9, 0x96, 0x00}, {0xEA, 0xB3, 0x6E}},
    {{0xBA, 0x51, 0x00}, {0xD7, 0x6A, 0x35}},
    {{0xAB, 0xE4, 0xC2}, {0xDE, 0xF3, 0xE6}},
    {{0x56, 0xB4, 0xE9}, {0x8F, 0xCC, 0xF0}},
    {{0xF1, 0xE6, 0x63}, {0xF1, 0xE6, 0x63}},
    {{0xC8, 0x77, 0xA4}, {0xC8, 0x77, 0xA4}},
    {{0xFF, 0xFF, 0xFF}, {0xFF, 0xFF, 0xFF}},
    {{0xFF, 0xFF, 0xFF}, {0xFF, 0xFF, 0xFF}},
}};

constexpr std::string_view paper_patterns = R"svg(<defs>
<pattern id="pt-slanted" width="3" height="3" patternUnits="userSpaceOnUse" patternTransform="rotate(45)"><path d="M0 0V3" stroke="#FFFFFF" stroke-width="1"/></pattern>
<pattern id="pt-dots" width="2.5" height="2.5" patternUnits="userSpaceOnUse"><circle cx="1.25" cy="1.25" r=".4" fill="#FFFFFF"/></pattern>
<pattern id="pt-crossed" width="3" height="3" patternUnits="userSpaceOnUse" patternTransform="rotate(45)"><path d="M0 0V3M0 0H3" stroke="#FFFFFF" stroke-width=".6"/></pattern>
<pattern id="pt-idle" width="3" height="3" patternUnits="userSpaceOnUse" patternTransform="rotate(45)"><path d="M0 0V3" stroke="{0}" stroke-width=".35"/></pattern>
<pattern id="pt-room" width="3" height="3" patternUnits="userSpaceOnUse" patternTransform="rotate(-45)"><path d="M0 0V3" stroke="{0}" stroke-width="1.5"/></pattern>
</defs>
)svg";

Colour colour_of(std::string_view text) {
    PIPETWIN_EXPECT(text.size() == 7 && text.front() == '#', "a colour as #RRGGBB");
    Colour colour{};
    for (std::size_t i = 0; i < 3; ++i) {
        const char* const begin = text.data() + 1 + 2 * i;
        std::from_chars(begin, begin + 2, colour.at(i), 16);
    }
    return colour;
}

/// Relative luminance of WCAG 2 and of CIE's Y: 0 to 1.
double luminance(std::string_view text) {
    constexpr std::array weights{0.2126, 0.7152, 0.0722};
    double sum = 0;
    const Colour colour = colour_of(text);
    for (std::size_t i = 0; i < 3; ++i) {
        const double value = colour.at(i) / 255.0;
        sum += weights.at(i) *
               (value <= 0.04045 ? value / 12.92 : std::pow((value + 0.055) / 1.055, 2.4));
    }
    return sum;
}

}  // namespace

double lightness(std::string_view colour) {
    const double y = luminance(colour);
    return y > 216.0 / 24389 ? 116 * std::cbrt(y) - 16 : y * 24389 / 27;
}

double contrast(std::string_view one, std::string_view other) {
    const double first = luminance(one) + 0.05;
    const double second = luminance(other) + 0.05;
    return std::max(first, second) / std::min(first, second);
}

Shade paper_shade(Look look, int place, int places) {
    const Shades& shades = paper_shades.at(as_index(look));
    const double share = places > 1 ? std::min(1.0, double{1} * place / (places - 1)) : 0;
    Colour colour{};
    for (std::size_t i = 0; i < 3; ++i) {
        const int first = shades.first.at(i);
        colour.at(i) = first + static_cast<int>(std::lround(share * (shades.last.at(i) - first)));
    }
    const std::string fill = fmt::format("#{:02X}{:02X}{:02X}", colour[0], colour[1], colour[2]);
    constexpr std::string_view white = "#FFFFFF";
    constexpr std::string_view black = "#000000";
    return {.fill = fill, .ink = contrast(fill, white) > contrast(fill, black) ? white : black};
}

std::string paper_definitions() {
    return fmt::format(paper_patterns, idle_hatch);
}

std::string paper_swatch(const Box& box, Look look, int place, int places) {
    const std::string_view pattern = style_of(look).pattern;
    const bool has_pattern = is_idle(look) || look == Look::Recompute || look == Look::Reduction ||
                             look == Look::Optimizer;
    std::string svg = is_idle(look) ? "" : rect(box, paper_shade(look, place, places).fill, "");
    if (has_pattern) {
        svg += rect(box, fmt::format("url(#{})", pattern), "");
    }
    const double line = std::min(0.3, box.width / 8);
    return svg + rect({box.x + line / 2, box.y + line / 2, box.width - line, box.height - line},
                      "none",
                      fmt::format(" stroke=\"{}\" stroke-width=\"{}\"", ink, number(line)));
}

std::string paper_head(double width, double height, std::string_view definitions) {
    constexpr double millimetres_per_point = 25.4 / 72;
    return fmt::format(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}mm\" height=\"{1}mm\" viewBox=\"0 0 "
        "{2} {3}\" font-family=\"Helvetica, Arial, 'Liberation Sans', 'DejaVu Sans', "
        "sans-serif\">\n{4}<rect width=\"{2}\" height=\"{3}\" fill=\"#FFFFFF\"/>\n",
        number(width * millimetres_per_point),
        number(height * millimetres_per_point),
        number(width),
        number(height),
        definitions);
}

std::vector<std::string> wrapped(std::string_view text, double size, double width) {
    std::vector<std::string> lines;
    while (!text.empty()) {
        std::size_t end = std::min(text.find(' '), text.size());
        if (end > 0 && end < text.size() && ascii::is_digit(text[end - 1])) {
            end = std::min(text.find(' ', end + 1), text.size());  // a number with its unit
        }
        const std::string_view word = text.substr(0, end);
        text.remove_prefix(std::min(end + 1, text.size()));
        if (word.empty()) {
            continue;
        }
        if (!lines.empty() && text_width(fmt::format("{} {}", lines.back(), word), size) <= width) {
            lines.back() += fmt::format(" {}", word);
        } else {
            lines.emplace_back(word);
        }
    }
    return lines;
}

}  // namespace pipetwin::svg

namespace pipetwin {

double figure_width(std::string_view text, std::string_view where) {
    struct Unit {
        std::string_view name;
        double points;
    };
    constexpr std::array<Unit, 4> units{
        {{"mm", 72 / 25.4}, {"cm", 720 / 25.4}, {"in", 72}, {"pt", 1}}};
    double value = 0;
    const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), value);
    std::string_view unit = text.substr(static_cast<std::size_t>(end - text.data()));
    while (unit.starts_with(' ')) {
        unit.remove_prefix(1);
    }
    const bool has_number = problem == std::errc() && std::isfinite(value);
    for (const Unit& known : units) {
        if (has_number && unit == known.name) {
            const double points = value * known.points;
            if (points < FigureLook::narrowest || points > FigureLook::widest) {
                throw Error(ErrorKind::Usage,
                            std::string(where),
                            fmt::format("'{}' is outside of 20mm to 2000mm", printable(text)),
                            "a column of a paper with two is 84mm wide");
            }
            return points;
        }
    }
    throw Error(
        ErrorKind::Usage,
        std::string(where),
        fmt::format("'{}' is no width: expected a number with mm, cm, in or pt", printable(text)),
        has_number && unit.empty() ? Hint(fmt::format("write the unit: {}mm", text))
                                   : Hint("write it like 84mm, 8.4cm, 3.3in or 240pt"));
}

}  // namespace pipetwin
