// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <QStyle>

namespace pipetwin::gui {

/// Qt's Fusion, the edges of whose controls stand out from what is around them in every theme: its
/// own are darker than the window, which cannot be seen on a dark one. The caller owns it.
QStyle* make_widget_style();

}  // namespace pipetwin::gui
