// SPDX-License-Identifier: Apache-2.0
#include "gui/view/timeline/range_filter.h"

#include <algorithm>
#include <utility>

#include "core/base/as_index.h"

namespace pipetwin::gui {

RangeFilter::RangeFilter(StepPlaces places,
                         Duration begin,
                         Duration end,
                         std::vector<bool> is_shown)
    : places_(std::move(places)), begin_(begin), end_(end), is_shown_(std::move(is_shown)) {}

bool RangeFilter::shows(int rank) const {
    return rank >= static_cast<int>(is_shown_.size()) || is_shown_[as_index(rank)];
}

std::pair<int, int> RangeFilter::cells(const RowIndex& row, const SpanRef& of_row) const {
    if (!shows(of_row.rank) || of_row.step >= places_.step_count()) {
        return {0, 0};
    }
    if (!has_range()) {
        return {0, row.size()};
    }
    const StepPlace& place = places_.of(of_row.side, of_row.step);
    const Duration begin = place.in_step(begin_);
    const Duration end = place.in_step(end_);
    if (end <= Duration{} || begin >= row.last_end()) {
        return {0, 0};
    }
    const int first = row.first_ending_after(begin);
    int last = row.first_ending_after(end, first);
    if (last < row.size() && row.begin(last) < end) {
        ++last;
    }
    return {first, std::max(first, last)};
}

bool RangeFilter::touches(const SpanRef& of_row, Duration begin, Duration end) const {
    if (!shows(of_row.rank)) {
        return false;
    }
    if (!has_range()) {
        return true;
    }
    if (of_row.step >= places_.step_count()) {
        return false;
    }
    const StepPlace& place = places_.of(of_row.side, of_row.step);
    return begin < place.in_step(end_) && end > place.in_step(begin_);
}

}  // namespace pipetwin::gui
