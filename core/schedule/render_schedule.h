// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "core/schedule/schedule.h"

namespace pipetwin {

/// "rank 0  ": padded so that the rows of ten and more ranks begin in one column.
std::string row_label(int rank, std::size_t rank_count);

/// With a label and the two counts, at most 100 columns.
constexpr int columns_of_cells = 70;

/// A cell to point at; -1: the name of the rank.
struct CellMark {
    int rank = 0;
    int cell = 0;
};

/// The rows as a table, one cell per action ("1F2"; "1F2&" where it is issued together with the
/// next), ranks downwards, the cells at most `columns` wide in all. Arrows are below every marked
/// cell; a row that is too long is shown from shortly before its first mark. "(3 before)" and
/// "(2 more)" count the cells that are left out.
std::string render_schedule(const Schedule& schedule,
                            int columns = columns_of_cells,
                            std::span<const CellMark> marks = {});

}  // namespace pipetwin
