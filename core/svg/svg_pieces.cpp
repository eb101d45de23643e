// SPDX-License-Identifier: Apache-2.0
#include "core/svg/svg_pieces.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "core/base/as_index.h"
#include "core/base/error.h"
#include "core/base/printable.h"

namespace pipetwin::svg {

namespace {

constexpr std::array<Style, look_count> styles{{
    {"F", "forward", "#0072B2", "#FFFFFF", ""},
    {"B", "backward", "#E69F00", "#1F1300", ""},
    {"I", "input gradient", "#D55E00", "#FFFFFF", "pt-thin"},
    {"W", "weight gradient", "#009E73", "#FFFFFF", "pt-dots"},
    {"R", "recompute", "#56B4E9", "#062033", "pt-slanted"},
    {"RG", "reduction", "#F0E442", "#2B2800", "pt-dots"},
    {"", "optimizer", "#CC79A7", "#2A0A1C", "pt-crossed"},
    {"", "idle", "#FFFFFF", "#000000", "pt-idle"},
    {"", "waits for room", "#FFFFFF", "#000000", "pt-room"},
}};

constexpr std::string_view patterns = R"svg(<defs>
<pattern id="pt-slanted" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)"><path d="M0 0V6" stroke="#FFFFFF" stroke-opacity=".45" stroke-width="2"/></pattern>
<pattern id="pt-thin" width="5" height="5" patternUnits="userSpaceOnUse" patternTransform="rotate(-45)"><path d="M0 0V5" stroke="#FFFFFF" stroke-opacity=".3" stroke-width="1"/></pattern>
<pattern id="pt-dots" width="5" height="5" patternUnits="userSpaceOnUse"><circle cx="2.5" cy="2.5" r=".8" fill="#FFFFFF" fill-opacity=".35"/></pattern>
<pattern id="pt-crossed" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)"><path d="M0 0V6M0 0H6" stroke="#FFFFFF" stroke-opacity=".6" stroke-width="1.2"/></pattern>
<pattern id="pt-idle" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)"><path d="M0 0V6" stroke="{0}" stroke-width="1"/></pattern>
<pattern id="pt-room" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(-45)"><path d="M0 0V6" stroke="{0}" stroke-width="3"/></pattern>
</defs>
)svg";

}  // namespace

std::string escaped(std::string_view text) {
    std::string result;
    for (const char c : printable_lines(text)) {  // XML has no place for control characters
        switch (c) {
            case '<':
                result += "&lt;";
                break;
            case '>':
                result += "&gt;";
                break;
            case '&':
                result += "&amp;";
                break;
            case '"':
                result += "&quot;";
                break;
            case '\n':
            case '\r':
            case '\t':
                result += ' ';
                break;
            default:
                result += c;
        }
    }
    return result;
}

const Style& style_of(Look look) {
    return styles.at(as_index(look));
}

Look look_of(Op op) {
    switch (op) {
        case Op::Forward:
            return Look::Forward;
        case Op::Backward:
            return Look::Backward;
        case Op::BackwardInput:
            return Look::BackwardInput;
        case Op::BackwardWeight:
            return Look::BackwardWeight;
        case Op::Recompute:
            return Look::Recompute;
        case Op::SendForward:
        case Op::SendBackward:
            return Look::WaitForRoom;
        case Op::RecvForward:
        case Op::RecvBackward:
            return Look::Idle;
        case Op::ReduceGradient:
        case Op::Unshard:
        case Op::Reshard:
            return Look::Reduction;
        case Op::GradientNorm:
        case Op::Optimizer:
            return Look::Optimizer;
    }
    PIPETWIN_EXPECT(false, "op out of range");
}

bool is_idle(Look look) {
    return look == Look::Idle || look == Look::WaitForRoom;
}

std::string definitions() {
    return fmt::format(patterns, idle_hatch);
}

std::string number(double value) {
    std::string text = fmt::format("{:.2f}", value);
    text.erase(text.find_last_not_of('0') + 1);
    if (text.back() == '.') {
        text.pop_back();
    }
    return text == "-0" ? "0" : text;
}

std::string text_at(double x, double y, std::string_view text, const TextStyle& style) {
    constexpr std::array<std::string_view, 3> anchors{
        "", R"( text-anchor="middle")", R"( text-anchor="end")"};
    return fmt::format("<text x=\"{}\" y=\"{}\" font-size=\"{}\" fill=\"{}\"{}{}>{}</text>\n",
                       number(x),
                       number(y),
                       number(style.size),
                       style.fill,
                       anchors.at(as_index(style.anchor)),
                       style.bold ? " font-weight=\"600\"" : "",
                       escaped(text));
}

std::string text_in_group(double x, double y, std::string_view text, std::string_view fill) {
    return fmt::format(
        "<text x=\"{}\" y=\"{}\" fill=\"{}\">{}</text>", number(x), number(y), fill, escaped(text));
}

double text_width(std::string_view text, double size) {
    double width = 0;
    for (const char c : text) {
        const bool is_widest = std::string_view("MWmw").find(c) != std::string_view::npos;
        width += is_widest ? 0.92 : c >= 'A' && c <= 'Z' ? 0.76 : 0.58;
    }
    return width * size;
}

std::string rect(const Box& box, std::string_view fill, std::string_view more) {
    return fmt::format("<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" fill=\"{}\"{}/>",
                       number(box.x),
                       number(box.y),
                       number(box.width),
                       number(box.height),
                       fill,
                       more);
}

std::string stage_lines(const Box& box, int lines, std::string_view colour) {
    const double inset = std::min(2.0, box.width / 4);
    const std::array heights{box.y + box.height - 2, box.y + 2, box.y + box.height - 4.5};
    std::string path;
    for (std::size_t line = 0; line < as_index(lines); ++line) {
        path += fmt::format("M{} {}h{}",
                            number(box.x + inset),
                            number(heights.at(line)),
                            number(box.width - 2 * inset));
    }
    return path.empty()
               ? path
               : fmt::format("<path d=\"{}\" stroke=\"{}\" stroke-width=\"1.4\"/>", path, colour);
}

std::string swatch(const Box& box, Look look) {
    const Style& style = style_of(look);
    const bool idle = is_idle(look);
    const std::string_view corners = box.width > 4 && !idle ? " rx=\"2\"" : "";
    std::string svg = idle ? "" : rect(box, style.fill, corners);
    if (!style.pattern.empty()) {
        svg += rect(box, fmt::format("url(#{})", style.pattern), corners);
    }
    return svg;
}

double tick_step(double least, double slack) {
    const double power = std::pow(10, std::floor(std::log10(least)));
    for (const double factor : {1.0, 2.0, 5.0}) {
        if (factor * power >= least * (1 - slack)) {
            return factor * power;
        }
    }
    return 10 * power;
}

int tick_decimals(double step) {
    return std::max(0, static_cast<int>(std::ceil(-std::log10(step) - 1e-9)));
}

}  // namespace pipetwin::svg
