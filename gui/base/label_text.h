// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <QPainter>
#include <QRect>
#include <QString>

namespace pipetwin::gui {

/// Draws one line of text as QPainter::drawText does, with the painter's font and pen, but finds
/// the glyphs and their places only once for each text and font. For words that each frame has
/// again.
void draw_label(QPainter& painter, const QRect& rect, Qt::Alignment alignment, const QString& text);

}  // namespace pipetwin::gui
