#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "core/schedule/schedule.h"

namespace pipetwin {

/// "rank 0  ": padded so that the rows of ten and more ranks begin in one column.
std::string row_label(int rank, std::size_t rank_count);

/// A cell to point at; -1: the name of the rank.
struct CellMark {
    int rank = 0;
    int cell = 0;
};

/// The rows as a table, one cell per action ("1F2"; "1F2&" where it is issued together with the
/// next), ranks downwards, at most `max_cells` wide. Under every marked cell stands an arrow; a row
/// that is too long is shown from shortly before its first mark.
std::string render_schedule(const Schedule& schedule,
                            int max_cells = 24,
                            std::span<const CellMark> marks = {});

}  // namespace pipetwin
