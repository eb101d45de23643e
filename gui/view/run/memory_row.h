// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "core/timeline/footprint.h"
#include "gui/view/run/row_index.h"
#include "gui/view/run/view_transform.h"

namespace pipetwin::gui {

/// The bytes that a rank holds over a step: a step function.
///
/// Where they follow from the order of the row alone, two values stand for every cell, during the
/// action and after it, and the times are those of whatever row the curve is asked about. Where
/// stashes are copied to host memory they follow from the times, which then stand here, too.
///
/// Copies share what they hold, which never changes.
class MemoryRow {
  public:
    MemoryRow() = default;

    /// The memory of a curve of `footprint`; `cells` are those of the row.
    MemoryRow(const MemoryCurve& curve, int cells);

    /// The memory of a rank's `memory_totals`.
    explicit MemoryRow(RankTotals totals);

    bool empty() const { return values_ == nullptr || values_->totals.empty(); }
    Bytes peak() const { return values_ == nullptr ? Bytes{} : values_->peak; }

    /// Bytes that are held at a time of the step; before the first action what it begins with.
    Bytes at(const RowIndex& row, Duration time) const;

    /// Least and most bytes that are held from `begin` up to `end`.
    ByteRange between(const RowIndex& row, Duration begin, Duration end) const;

    /// Least and most bytes in each of `count` pixels of a view of the step, from the one at `x`
    /// on. Where many actions share each pixel, one that is near its border may count to both sides
    /// of it.
    std::vector<ByteRange> columns(const RowIndex& row,
                                   const ViewTransform& view,
                                   int x,
                                   int count) const;

  private:
    static constexpr std::size_t block = RankTotals::block;

    struct Values {
        std::vector<Bytes> totals;
        std::vector<ByteRange> of_block;
        std::vector<Duration> times;  ///< empty: begin and end of each cell
        Bytes peak;
    };

    void take(Values values);
    std::size_t last_until(const RowIndex& row, Duration time, std::size_t near = 0) const;
    ByteRange of_values(std::size_t first, std::size_t last) const;
    void walk(const RowIndex& row,
              const ViewTransform& view,
              int x,
              std::span<ByteRange> columns) const;

    std::shared_ptr<const Values> values_;  ///< null: none
};

}  // namespace pipetwin::gui
