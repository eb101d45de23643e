// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <QImage>

#include "gui/base/palette.h"
#include "gui/view/run/run_data.h"

class QPainter;

namespace pipetwin::gui {

/// Paints the rows of a run's main step into a rectangle, each pixel in the colour of what its rank
/// does then: the measured side, else the predicted one. Of many ranks it shows as many as have two
/// pixels, the first ones.
void paint_rows(QPainter& painter, const QRect& area, const RunData& run, const Palette& palette);

/// A small picture of a run.
QImage thumbnail_of(const RunData& run, const QSize& size, const Palette& palette);

}  // namespace pipetwin::gui
