// SPDX-License-Identifier: Apache-2.0
#include "gui/view/timeline/place_in_run.h"

#include <algorithm>
#include <cmath>

namespace pipetwin::gui {

std::optional<int> step_of(const RunData& run, const LinkedPlace& place) {
    if (!place.step) {
        return run.empty() ? std::nullopt : std::optional(run.main_step());
    }
    for (int step = 0; step < run.twin.step_count(); ++step) {
        if (run.step_number(step) == *place.step) {
            return step;
        }
    }
    return std::nullopt;
}

std::optional<SpanRef> action_at(const RunData& run, const LinkedPlace& place) {
    const std::optional<int> step = step_of(run, place);
    if (!step || !place.rank) {
        return std::nullopt;
    }
    const Side side = run.measured ? Side::Measured : Side::Predicted;
    const RowIndex* const row = run.twin.row(side, *step, *place.rank);
    if (row == nullptr || row->empty()) {
        return std::nullopt;
    }
    constexpr double nanoseconds_per_ms = 1e6;
    const double ns = std::min(place.ms.value_or(0) * nanoseconds_per_ms,
                               static_cast<double>(row->last_end().count()));
    int cell = row->first_ending_after(Duration{std::llround(ns)});
    while (cell < row->size() && !row->takes_time(cell)) {
        ++cell;
    }
    return SpanRef{
        .side = side, .step = *step, .rank = *place.rank, .cell = std::min(cell, row->size() - 1)};
}

LinkedPlace place_of(const RunData& run, const SpanRef& action) {
    LinkedPlace place{.step = run.step_number(action.step), .rank = action.rank};
    if (const auto span = run.twin.span(action)) {
        constexpr double microseconds_per_ms = 1e3;
        place.ms =
            std::ceil(to_milliseconds(span->ready) * microseconds_per_ms) / microseconds_per_ms;
    }
    return place;
}

}  // namespace pipetwin::gui
