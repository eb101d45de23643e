#pragma once

#include <QPainter>
#include <QRect>
#include <QString>

namespace pipetwin::gui {

/// As QPainter::drawText draws one line, with the painter's font and pen, which has to find the
/// glyphs of the text and their places; here once for each text and font. For words that each frame
/// has again.
void draw_label(QPainter& painter, const QRect& rect, Qt::Alignment alignment, const QString& text);

}  // namespace pipetwin::gui
