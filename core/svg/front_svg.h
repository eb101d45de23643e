// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "core/svg/figure_look.h"

namespace pipetwin {

/// Choices as points of two quantities of which less is better, and the line of those that no other
/// choice beats.
struct FrontPicture {
    struct Point {
        double x = 0;
        double y = 0;
        double least_x = 0;  ///< of its likely range; equal to `most_x` where there is none
        double most_x = 0;
        std::string label{};
        std::string tooltip{};
        std::size_t group = 0;  ///< of the same colour and mark: 0 to groups.size() - 1
        bool is_answer = false;

        bool operator==(const Point&) const = default;
    };

    std::string title;
    std::string x_axis;
    std::string y_axis;
    std::vector<std::string> groups{};
    std::vector<Point> points{};
    std::vector<std::size_t> front{};  ///< indices of points, from the least x up
    std::optional<double> limit{};     ///< of x, drawn as a line
    std::string limit_name{};

    bool operator==(const FrontPicture&) const = default;
};

/// The picture as SVG: a mark for each point, its label beside it, its likely range as a line
/// through it, the front as steps. Groups differ by the shape of their mark, too.
std::string render_front(const FrontPicture& picture, const FigureLook& look = {});

}  // namespace pipetwin
