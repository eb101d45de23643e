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

std::optional<TimeRange> range_of(const TimelineScene& scene, const SpanRef& ref) {
    const std::optional<Span> span =
        scene.run == nullptr ? std::nullopt : scene.run->twin.span(ref);
    if (!span) {
        return std::nullopt;
    }
    const StepPlace& place = scene.places.of(ref.side, ref.step);
    return TimeRange{.begin = place.on_axis(span->begin), .end = place.on_axis(span->end)};
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
