// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/svg/svg_pieces.h"

/// The look of figures of papers (core/svg/figure_look.h): everything in points, shades that a
/// printer without colours tells apart.
namespace pipetwin::svg {

/// Size of the texts of a figure, and of its title, in points.
constexpr double paper_text = 7;
constexpr double paper_title = 8;
/// From one line of text to the next, in points.
constexpr double paper_line = 9;

/// Fill and text colour of a rectangle.
struct Shade {
    std::string fill;
    std::string_view ink;
};

/// The shade of a kind of rectangle of the `place`-th of a rank's `places` stages: the first is the
/// darkest. Forward, input gradient, backward and weight gradient follow each other from dark to
/// light without overlap, so that they differ in grey, too; other kinds have patterns.
Shade paper_shade(Look look, int place, int places);

/// Lightness of a colour "#RRGGBB" to the eye, CIE L*: 0 (black) to 100 (white).
double lightness(std::string_view colour);
/// Ratio of the luminances of two colours as WCAG 2 defines it: 1 (none) to 21.
double contrast(std::string_view one, std::string_view other);

/// The patterns that `paper_swatch` refers to; once per picture.
std::string paper_definitions();

/// A rectangle in the look of its kind, with a hair line around it.
std::string paper_swatch(const Box& box, Look look, int place, int places);

/// The beginning of a figure's document, up to its white ground. Width and height in points; the
/// document says the width in millimetres.
std::string paper_head(double width, double height, std::string_view definitions);

/// The text in lines of at most `width`, broken at blanks, but not behind a
/// number, whose unit follows. A single word that is wider stays whole.
std::vector<std::string> wrapped(std::string_view text, double size, double width);

}  // namespace pipetwin::svg
