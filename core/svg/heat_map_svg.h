// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/svg/figure_look.h"

namespace pipetwin {

/// A table whose cells are coloured by a value.
struct HeatMapPicture {
    /// One cell of the table.
    struct Cell {
        std::optional<double> value{};     ///< more is better; none: infeasible, drawn hatched
        std::vector<std::string> lines{};  ///< written into the cell, top to bottom, three at most
        std::string tooltip{};
        bool best = false;  ///< framed
    };

    std::string title{};
    std::string row_axis{};     ///< "stages"
    std::string column_axis{};  ///< "micro-batches"
    std::vector<std::string> rows{};
    std::vector<std::string> columns{};
    std::vector<std::vector<Cell>> cells{};  ///< [row][column]
    std::string legend{};                    ///< what the colour, and the lines of a cell, mean
};

/// The heat map as a picture, from pale to dark blue in as many steps as the eye tells apart, by
/// the rank of the value between the least and the largest. Every cell says its value in letters,
/// too, and infeasible ones are hatched, so that colour is never the only carrier of meaning. In a
/// figure the cells share its width, and lines and names of columns that have no room in them are
/// left out.
std::string render_heat_map(const HeatMapPicture& picture, const FigureLook& look = {});

}  // namespace pipetwin
