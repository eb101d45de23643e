// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <string>
#include <string_view>

#include "core/schedule/action.h"

/// Parts of the pictures of core/svg/svg.h: the look of each kind of span, and pieces of SVG.
namespace pipetwin::svg {

/// Kinds of rectangles, in the order of the legend.
enum class Look {
    Forward,
    Backward,
    BackwardInput,
    BackwardWeight,
    Recompute,
    Reduction,
    Optimizer,
    Idle,
    WaitForRoom,
};
/// Number of values of Look.
constexpr std::size_t look_count = 9;

/// Letter, colours and pattern of a kind of rectangle.
struct Style {
    /// Before the micro-batch, where there is room for it; of a reduction its short name.
    std::string_view letter;
    std::string_view words;    ///< legend
    std::string_view fill;     ///< Okabe and Ito's palette: clear to every kind of colour vision
    std::string_view ink;      ///< text on it
    std::string_view pattern;  ///< laid over the fill; empty for none
};

/// The style of a kind of rectangle.
const Style& style_of(Look look);

/// A send is drawn as the time it waits for room, a receive as idle time.
Look look_of(Op op);
/// Whether the rectangle is time in which a rank computes nothing.
bool is_idle(Look look);

/// Ground of idle time, in pictures and in the window's light theme.
constexpr std::string_view idle_fill = "#F3F4F6";
/// Lines of idle time, at least 3 : 1 on `idle_fill` and on white.
constexpr std::string_view idle_hatch = "#7A828C";

/// Colour of text and lines.
constexpr std::string_view ink = "#1B2430";
/// Colour of secondary text.
constexpr std::string_view pale_ink = "#5B6673";
/// Colour of grid lines.
constexpr std::string_view grid_ink = "#DDE2E8";
/// Colour of the area behind a group of rows.
constexpr std::string_view group_fill = idle_fill;

/// The patterns that `swatch` refers to; once per picture.
std::string definitions();

/// The text with XML's special characters escaped, made `printable`.
std::string escaped(std::string_view text);

/// The point of a text that its x coordinate names: SVG's text-anchor.
enum class Anchor { Start, Middle, End };

/// Size in pixels, anchor, colour and weight of a text.
struct TextStyle {
    double size = 11;
    Anchor anchor = Anchor::Start;
    std::string_view fill = ink;
    bool bold = false;
};

/// A text element at (x, y), in pixels, with the text escaped.
std::string text_at(double x, double y, std::string_view text, const TextStyle& style);

/// A text element at (x, y) in a group that sets its size and anchor.
std::string text_in_group(double x, double y, std::string_view text, std::string_view fill);

/// Width of a text in pixels, near enough to decide whether it fits.
double text_width(std::string_view text, double size);

/// A rectangle: its upper left corner and its size, in pixels.
struct Box {
    double x = 0;
    double y = 0;
    double width = 0;
    double height = 0;
};

/// `more` is further attributes, with a blank before each.
std::string rect(const Box& box, std::string_view fill, std::string_view more);

/// A rectangle in the look of its kind.
std::string swatch(const Box& box, Look look);

/// The most lines that `stage_lines` draws.
constexpr int most_lines = 3;
/// Lines across a rectangle, which leave room for a name between them: the first near its lower
/// edge, the second near its upper edge, the third above the first. `lines` is 0 to `most_lines`.
std::string stage_lines(const Box& box, int lines, std::string_view colour);

/// At most two decimals, none that are zero.
std::string number(double value);

/// Distance between the ticks of an axis: the smallest of 1, 2 or 5 times a power of ten that is no
/// less than `least`, which is above 0; by a share of `slack` it may be less.
double tick_step(double least, double slack = 0);

/// Decimals that tell ticks apart which are `step` of their unit apart.
int tick_decimals(double step);

}  // namespace pipetwin::svg
