#pragma once

#include <optional>

#include <QFont>
#include <QPainter>
#include <QSize>

#include "gui/palette.h"
#include "gui/run_data.h"
#include "gui/timeline_layout.h"

namespace pipetwin::gui {

/// Everything that decides what the timeline looks like. The same scene gives the same pixels.
///
///     +--------------+------------------------------------------+
///     | utilisation  | 0 ms        10 ms        20 ms           |  ruler_height
///     +--------------+------------------------------------------+
///     |      predicted| F0 F1 F2 F3 ///////// B3 B2 B1 B0        |  rows, moved up by `scroll`
///     | rank 0        | error strip                              |
///     |      measured | F0 F1  F2 F3 ////////  B3 B2  B1 B0      |
///     +--------------+------------------------------------------+
///       label_width
struct TimelineScene {
    const RunData* run = nullptr;  ///< null paints an empty area
    Palette palette;
    Sides sides{};
    ViewTransform view;
    RowLayout layout;
    std::optional<SpanRef> selection;
    std::optional<SpanRef> hovered;
    std::optional<int> cursor_x;  ///< of the time area: a line with the time at the mouse
    QSize size;
    int label_width = 0;
    int ruler_height = 0;
    int scroll = 0;

    int time_width() const { return size.width() - label_width; }
};

void paint_timeline(QPainter& painter, const TimelineScene& scene);

/// Where a span lies on the scene, at least a pixel wide; empty where its row is not shown.
QRect rect_of(const TimelineScene& scene, const SpanRef& ref);

/// How wide the labels at the left need to be.
int label_width_for(const RunData& run, const QFont& font);

/// Hatching as in the rows, for the legend.
void paint_sample(QPainter& painter, const QRect& rect, const OpStyle& style);
void paint_wait(QPainter& painter, const QRect& rect, const Palette& palette);

}  // namespace pipetwin::gui
