// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "core/timeline/timeline.h"

/// Curves of skip messages in pictures of timelines: where each begins and ends, and which are
/// drawn where they are many.
namespace pipetwin::svg {

/// Colour of a skip message that carries an output: black, the colour of Okabe and Ito's palette
/// that no kind of rectangle has.
constexpr std::string_view skip_ink = "#000000";
/// Colour of a skip message that carries a gradient: Okabe and Ito's reddish purple, darkened so
/// that a thin line stands out by 5:1 from white.
constexpr std::string_view skip_gradient_ink = "#A5377B";

/// A place in a picture, in pixels.
struct Point {
    double x = 0;
    double y = 0;

    bool operator==(const Point&) const = default;
};

/// The curve of a skip message, from the end of its send at the edge of the sender's row to the end
/// of its receive at the edge of the receiver's row.
struct SkipCurve {
    Point begin;
    Point end;
    bool gradient = false;  ///< it carries a gradient, to an earlier stage

    /// The two control points of the cubic curve: it leaves the one row and reaches the other at
    /// right angles.
    std::array<Point, 2> controls() const;
};

/// A curve's end on a row that reaches from `top` to `bottom`: at the edge that faces the row
/// from `other_top` on.
constexpr double facing_edge(double top, double bottom, double other_top) {
    return other_top < top ? top : bottom;
}

/// The most curves of a picture; of more some are left out.
constexpr std::size_t most_curves = 300;

/// Indices of the curves to draw, ascending: all of them where they are at most `most`. Of more,
/// curves between the same two rows whose ends are less than 3 pixels apart are represented by one,
/// and where these are still too many the distance grows until they are at most `most`.
std::vector<std::size_t> curves_apart(std::span<const SkipCurve> curves,
                                      std::size_t most = most_curves);

/// True if a send or receive of the timeline is a skip message's.
bool has_skip_messages(const Timeline& timeline);

/// Collects the ends of a picture's skip messages row by row and draws a curve for each message
/// that has both.
class SkipCurves {
  public:
    /// Place of a row's rectangles: the x of the span's end, and the y of their edges, in pixels.
    struct Place {
        double x = 0;
        double top = 0;
        double bottom = 0;
    };

    /// Adds a send or receive of a skip message. `side` tells the timelines of a picture apart.
    void add(int side, const Span& span, const Place& place);

    /// The curves as SVG, over a pale edge that parts them from what they cross; "" where there
    /// are none. Call it once, when all ends are added.
    std::string draw();

    /// Curves that carry outputs, or gradients; known once they are drawn.
    bool any(bool gradient) const { return counts_[gradient ? 1 : 0] > 0; }

    /// "300 of 1200 skip messages drawn: ..." where some are left out, else "". Known once they
    /// are drawn.
    std::string left_out_words() const;

  private:
    /// Side of the picture, and the send of the message.
    using Key = std::tuple<int, Action>;
    struct End {
        Place place;
        Duration time{};
    };
    struct Found {
        SkipCurve curve;
        Action send;
        Duration sent{};
        Duration taken{};
    };
    std::vector<Found> matched() const;

    std::map<Key, End> sends_;
    std::vector<std::pair<Key, End>> receives_;
    std::array<std::size_t, 2> counts_{};  ///< all, drawn or not: outputs, gradients
    std::size_t drawn_ = 0;
};

/// The SVG path of a curve with an arrow head at its end.
std::string curve_path(const SkipCurve& curve);

/// The stroke of a curve as attributes of SVG: its colour, and dashes for a gradient.
std::string curve_stroke(bool gradient);

}  // namespace pipetwin::svg
