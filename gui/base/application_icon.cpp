// SPDX-License-Identifier: Apache-2.0
#include "gui/base/application_icon.h"

/// Resources of a static library are there once their initializer has been called, which stands in
/// no namespace.
static void load_icon() {
    Q_INIT_RESOURCE(icon);
}

namespace pipetwin::gui {

QIcon application_icon() {
    load_icon();
    return QIcon(QStringLiteral(":/pipetwin-gui.svg"));
}

}  // namespace pipetwin::gui
