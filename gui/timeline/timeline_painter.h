#pragma once

#include <QPainter>

#include "gui/timeline/timeline_scene.h"

namespace pipetwin::gui {

/// The whole scene: rows, what lies over them, labels and ruler.
void paint_timeline(QPainter& painter, const TimelineScene& scene);

/// How wide the labels at the left need to be, and how high the ruler above the rows.
int label_width_for(const RunData& run, const QFont& font);
int ruler_height_for(const RunData* run, const QFont& font);

}  // namespace pipetwin::gui
