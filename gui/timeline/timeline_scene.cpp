// SPDX-License-Identifier: Apache-2.0
#include "gui/timeline/timeline_scene.h"

#include <algorithm>
#include <cmath>

namespace pipetwin::gui {

TimelineScene::Steps TimelineScene::steps_in_sight() const {
    if (places.step_count() == 0) {
        return {};
    }
    return {.first = places.step_at(view.time_at(0)),
            .last = places.step_at(view.time_at(time_width()))};
}

Sight TimelineScene::sight() const {
    return {.view = view,
            .width = static_cast<double>(time_width()),
            .height = static_cast<double>(size.height() - ruler_height),
            .scroll = static_cast<double>(scroll)};
}

QRect TimelineScene::rect_at(double y, double height) const {
    const double top = layout.on_screen(y, scroll);
    return {label_width,
            ruler_height + static_cast<int>(std::lround(top)),
            time_width(),
            static_cast<int>(std::lround(height))};
}

int TimelineScene::x_of(Duration on_axis) const {
    const double x = std::clamp(view.x_of(on_axis), -8.0, time_width() + 8.0);
    return label_width + static_cast<int>(std::lround(x));
}

namespace {

/// The time from the last action of a row that is no message to the end of the step; none where the
/// cell is not the one after the last.
std::optional<TimeRange> rest_of_step(const Twin& twin, const SpanRef& ref) {
    const StepRows* const step = twin.step(ref.side, ref.step);
    const RowIndex* const row = twin.row(ref);
    if (step == nullptr || row == nullptr || ref.cell != row->size()) {
        return std::nullopt;
    }
    int last = row->size() - 1;
    while (last >= 0 && is_message(row->action(last).op)) {
        --last;
    }
    return TimeRange{.begin = last < 0 ? Duration{} : row->end(last), .end = step->length};
}

}  // namespace

std::optional<TimeRange> range_of(const TimelineScene& scene, const SpanRef& ref) {
    if (scene.run == nullptr) {
        return std::nullopt;
    }
    const std::optional<Span> span = scene.run->twin.span(ref);
    const std::optional<TimeRange> in_step =
        span ? std::optional(TimeRange{.begin = span->begin, .end = span->end})
             : rest_of_step(scene.run->twin, ref);
    if (!in_step) {
        return std::nullopt;
    }
    const StepPlace& place = scene.places.of(ref.side, ref.step);
    return TimeRange{.begin = place.on_axis(in_step->begin), .end = place.on_axis(in_step->end)};
}

QRect rect_of(const TimelineScene& scene, const SpanRef& ref) {
    const Row* const row = scene.layout.row_of(ref.side, ref.rank);
    const std::optional<TimeRange> range = range_of(scene, ref);
    if (row == nullptr || !range) {
        return {};
    }
    QRect rect = scene.rect_at(row->y, row->height);
    const int left = scene.x_of(range->begin);
    rect.setLeft(left);
    rect.setWidth(std::max(1, scene.x_of(range->end) - left));
    return rect;
}

}  // namespace pipetwin::gui
