#pragma once

#include <algorithm>
#include <optional>
#include <vector>

#include "core/footprint.h"
#include "gui/row_index.h"
#include "gui/timeline_layout.h"

namespace pipetwin::gui {

/// Least and most of a stretch of time.
struct ByteRange {
    Bytes least;
    Bytes most;

    void add(Bytes bytes) {
        least = std::min(least, bytes);
        most = std::max(most, bytes);
    }
    bool operator==(const ByteRange&) const = default;
};

/// The bytes that a rank holds over a step: a step function.
///
/// Where they follow from the order of the row alone, two values stand for every cell, during the
/// action and after it, and the times are those of whatever row the curve is asked about. Where
/// stashes are copied to host memory they follow from the times, which then stand here, too.
class MemoryRow {
  public:
    MemoryRow() = default;

    /// From a curve of `footprint`; `cells` are those of the row.
    MemoryRow(const MemoryCurve& curve, int cells);

    /// From a rank's `memory_totals`.
    explicit MemoryRow(std::vector<Bytes> totals);

    bool empty() const { return totals_.empty(); }
    Bytes peak() const { return peak_; }

    /// What is held at a time of the step; before the first action what it begins with.
    Bytes at(const RowIndex& row, Duration time) const;

    /// Of all that is held from `begin` up to `end`.
    ByteRange between(const RowIndex& row, Duration begin, Duration end) const;

    /// The same of `count` pixels of a view of the step, from the one at `x` on. Where many actions
    /// share each pixel, one that is near its border may count to both sides of it.
    std::vector<ByteRange> columns(const RowIndex& row,
                                   const ViewTransform& view,
                                   int x,
                                   int count) const;

  private:
    static constexpr std::size_t block = 16;

    void add_ranges();
    std::size_t last_until(const RowIndex& row, Duration time, std::size_t near = 0) const;
    ByteRange of_values(std::size_t first, std::size_t last) const;

    std::vector<Bytes> totals_;
    std::vector<Duration> times_;  ///< empty: begin and end of each cell
    std::vector<ByteRange> of_block_;
    Bytes peak_;
};

}  // namespace pipetwin::gui
