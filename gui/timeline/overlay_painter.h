// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <QPainter>
#include <QPainterPath>

#include "gui/timeline/timeline_scene.h"

namespace pipetwin::gui {

/// Paints what lies over the rows: the selection, chains and arrows, the critical path, ranges and
/// marks.
class OverlayPainter {
  public:
    OverlayPainter(QPainter& painter, const TimelineScene& scene)
        : painter_(painter), scene_(scene) {}

    /// Within the time area.
    void paint();

    /// Paints the arcs of skip messages, which lie below the names of the actions.
    void paint_skips();

    /// In the ruler: the range and its length, the marks.
    void paint_in_ruler();

  private:
    const Palette& palette() const { return scene_.palette; }
    void paint_range(const TimeRange& range);
    void paint_ruler_line(const TimeRange& ruler);
    void paint_mark(Duration mark);
    void paint_alone();
    void paint_critical(const std::vector<SpanRef>& chain);
    int x_of_ready(const SpanRef& ref) const;
    void paint_arrow(const Arrow& arrow);
    QPainterPath path_of(const svg::SkipCurve& curve) const;
    void paint_selected_skip();
    void paint_selection();
    void outline(const SpanRef& ref, const QPen& pen);

    QPainter& painter_;
    const TimelineScene& scene_;
};

}  // namespace pipetwin::gui
