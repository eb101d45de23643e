// SPDX-License-Identifier: Apache-2.0
#include "gui/view/timeline/step_places.h"

#include <algorithm>
#include <cmath>

#include "core/base/as_index.h"
#include "gui/view/timeline/row_boxes.h"

namespace pipetwin::gui {

namespace {

Duration scaled(Duration duration, double factor) {
    return factor == 1 ? duration
                       : Duration{std::llround(static_cast<double>(duration.count()) * factor)};
}

/// By how much the predicted step has to be moved so that both sides of an action begin together.
Duration shift_for(const Twin& twin, const SpanRef& selected, int step) {
    SpanRef here = selected;
    here.step = step;
    const std::optional<SpanRef> there = twin_of(twin, here);
    if (!there) {
        return Duration{0};
    }
    const SpanRef& measured = here.side == Side::Measured ? here : *there;
    const SpanRef& predicted = here.side == Side::Predicted ? here : *there;
    return twin.span(measured)->begin - twin.span(predicted)->begin;
}

/// The row of a rank under `y` of the layout; null beside the rows, and where there is no step.
const Row* row_of_steps(const StepPlaces& places, const RowLayout& layout, double y) {
    return places.step_count() == 0 ? nullptr : layout.row_at(y);
}

}  // namespace

Alignment next(Alignment alignment) {
    switch (alignment) {
        case Alignment::Start:
            return Alignment::Selected;
        case Alignment::Selected:
            return Alignment::Stretched;
        case Alignment::Stretched:
            break;
    }
    return Alignment::Start;
}

Duration StepPlace::on_axis(Duration in_step) const {
    return begin + scaled(in_step, stretch);
}

Duration StepPlace::in_step(Duration on_axis) const {
    return scaled(on_axis - begin, 1 / stretch);
}

ViewTransform StepPlace::inside(const ViewTransform& view) const {
    return {.origin = in_step(view.origin), .ns_per_pixel = view.ns_per_pixel / stretch};
}

StepPlaces::StepPlaces(const Twin& twin,
                       Alignment alignment,
                       const std::optional<SpanRef>& selected) {
    for (int step = 0; step < twin.step_count(); ++step) {
        const StepRows* const predicted = twin.step(Side::Predicted, step);
        const StepRows* const measured = twin.step(Side::Measured, step);
        const bool both = predicted != nullptr && measured != nullptr;
        StepPlace upper{.begin = borders_.back()};
        StepPlace lower = upper;
        if (both && alignment == Alignment::Selected && selected) {
            const Duration shift = shift_for(twin, *selected, step);
            upper.begin += std::max(Duration{0}, shift);
            lower.begin += std::max(Duration{0}, -shift);
        }
        if (both && alignment == Alignment::Stretched && predicted->length > Duration{0} &&
            measured->length > Duration{0}) {
            upper.stretch = to_seconds(measured->length) / to_seconds(predicted->length);
        }
        Duration end = borders_.back();
        if (predicted != nullptr) {
            end = std::max(end, upper.on_axis(predicted->length));
        }
        if (measured != nullptr) {
            end = std::max(end, lower.on_axis(measured->length));
        }
        predicted_.push_back(upper);
        measured_.push_back(lower);
        borders_.push_back(end);
    }
}

const StepPlace& StepPlaces::of(Side side, int step) const {
    return (side == Side::Predicted ? predicted_ : measured_)[as_index(step)];
}

int StepPlaces::step_at(Duration time) const {
    const auto next = std::upper_bound(borders_.begin() + 1, borders_.end() - 1, time);
    return static_cast<int>(next - borders_.begin()) - 1;
}

std::optional<SpanRef> hit(const Twin& twin,
                           const StepPlaces& places,
                           const RowLayout& layout,
                           const ViewTransform& view,
                           double x,
                           double y) {
    const Row* const row = row_of_steps(places, layout, y);
    if (row == nullptr) {
        return std::nullopt;
    }
    const int middle = places.step_at(view.time_at(x));
    // Near a border the nearest action may be one of the step beside it.
    for (const int step : {middle, middle + 1, middle - 1}) {
        const RowIndex* const spans = twin.row(row->side, step, row->rank);
        if (spans == nullptr) {
            continue;
        }
        const ViewTransform inside = places.of(row->side, step).inside(view);
        if (const std::optional<int> cell = cell_at(*spans, inside, x)) {
            return SpanRef{.side = row->side, .step = step, .rank = row->rank, .cell = *cell};
        }
    }
    return std::nullopt;
}

std::optional<SpanRef> idle_at(const Twin& twin,
                               const StepPlaces& places,
                               const RowLayout& layout,
                               const ViewTransform& view,
                               double x,
                               double y) {
    const Row* const row = row_of_steps(places, layout, y);
    if (row == nullptr) {
        return std::nullopt;
    }
    const Duration on_axis = view.time_at(x);
    const int step = places.step_at(on_axis);
    const StepRows* const rows = twin.step(row->side, step);
    const RowIndex* const spans = twin.row(row->side, step, row->rank);
    if (rows == nullptr || spans == nullptr) {
        return std::nullopt;
    }
    const Duration time = places.of(row->side, step).inside(view).time_at(x);
    if (time < Duration{} || time >= rows->length) {
        return std::nullopt;
    }
    int cell = spans->first_ending_after(time);
    while (cell < spans->size() && is_message(spans->action(cell).op)) {
        ++cell;
    }
    const bool works = cell < spans->size() && spans->ready(cell) <= time;
    return works ? std::nullopt
                 : std::optional(
                       SpanRef{.side = row->side, .step = step, .rank = row->rank, .cell = cell});
}

}  // namespace pipetwin::gui
