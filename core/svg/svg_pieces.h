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
    WaitForMessage,
    WaitForRoom,
};
constexpr std::size_t look_count = 9;

/// Letter, colours and pattern of a kind of rectangle.
struct Style {
    std::string_view letter;   ///< before the micro-batch, where there is room for it
    std::string_view words;    ///< legend
    std::string_view fill;     ///< Okabe and Ito's palette: clear to every kind of colour vision
    std::string_view ink;      ///< text on it
    std::string_view pattern;  ///< laid over the fill; empty for none
};

const Style& style_of(Look look);

/// A send or receive is drawn as the time it waits.
Look look_of(Op op);
bool is_wait(Look look);

/// Colour of text and lines; the others are of paler text, of the grid, and behind groups.
constexpr std::string_view ink = "#1B2430";
constexpr std::string_view pale_ink = "#5B6673";
constexpr std::string_view grid_ink = "#DDE2E8";
constexpr std::string_view group_fill = "#F3F5F8";

/// The patterns that `swatch` refers to; once per picture.
std::string_view definitions();

/// The text with XML's special characters escaped.
std::string escaped(std::string_view text);

enum class Anchor { Start, Middle, End };

struct TextStyle {
    double size = 11;
    Anchor anchor = Anchor::Start;
    std::string_view fill = ink;
    bool bold = false;
};

std::string text_at(double x, double y, std::string_view text, const TextStyle& style);

/// Within a group that sets size and anchor.
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

/// Lines across a rectangle that leave room for a name between them: one below it, one above it,
/// a second below.
constexpr int most_lines = 3;
std::string stage_lines(const Box& box, int lines, std::string_view colour);

/// At most two decimals, none that are zero.
std::string number(double value);

}  // namespace pipetwin::svg
