// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <QPainter>

#include "gui/timeline/timeline_scene.h"

namespace pipetwin::gui {

/// Paints the whole scene: rows, what lies over them, labels and ruler.
void paint_timeline(QPainter& painter, const TimelineScene& scene);

/// Width that the labels at the left need, with or without the figures of their rows.
int label_width_for(const RunData& run, const QFont& font, bool has_figures = true);
/// Height that the ruler above the rows needs.
int ruler_height_for(const RunData* run, const QFont& font);

}  // namespace pipetwin::gui
