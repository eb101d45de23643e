#pragma once

#include <QColor>
#include <QStyle>

class QPalette;

namespace pipetwin::gui {

/// Qt's Fusion, the edges of whose controls stand out from what is around them in every theme: its
/// own are darker than the window, which on a dark one nobody sees. The caller owns it.
QStyle* make_widget_style();

/// Of these colours the edge that stands out by 3:1 (WCAG 2.1, 1.4.11) from window and ground.
QColor edge_color(const QPalette& colors);

}  // namespace pipetwin::gui
