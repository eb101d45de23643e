// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "gui/view/run/twin.h"
#include "gui/view/timeline/step_places.h"

/// The part of a run that every panel is about.
namespace pipetwin::gui {

/// A range of the axis, and the ranks that are shown: what lies in both counts.
class RangeFilter {
  public:
    /// Actions that touch the time from `begin` to `end` of the axis, or, where `end` is `begin`,
    /// those of the whole run; `is_shown` is [rank], and ranks beyond it are shown.
    RangeFilter(StepPlaces places, Duration begin, Duration end, std::vector<bool> is_shown);

    /// False where the whole axis is meant.
    bool has_range() const { return end_ > begin_; }
    bool shows(int rank) const;

    /// The cells of a row that touch the range, from the first up to the second. O(log cells).
    std::pair<int, int> cells(const RowIndex& row, const SpanRef& of_row) const;

    /// Whether a time of a step of a rank touches the range.
    bool touches(const SpanRef& of_row, Duration begin, Duration end) const;

  private:
    StepPlaces places_;
    Duration begin_{};
    Duration end_{};
    std::vector<bool> is_shown_;
};

/// The filter that a panel has; null: everything counts.
using RangeFilterPointer = std::shared_ptr<const RangeFilter>;

}  // namespace pipetwin::gui
