// SPDX-License-Identifier: Apache-2.0
#include <QApplication>
#include <gtest/gtest.h>

#include "gui/base/widget_style.h"

/// All tests of the desktop program share one application and need no display.
int main(int argc, char** argv) {
    qputenv("QT_QPA_PLATFORM", "offscreen");
    ::testing::InitGoogleTest(&argc, argv);
    QApplication::setStyle(pipetwin::gui::make_widget_style());
    QApplication const application(argc, argv);
    return RUN_ALL_TESTS();
}
