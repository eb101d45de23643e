// SPDX-License-Identifier: Apache-2.0
#include "gui/base/widget_style.h"

#include <QApplication>
#include <QCheckBox>
#include <QComboBox>
#include <QLineEdit>
#include <QPushButton>
#include <QSlider>
#include <QSpinBox>
#include <gtest/gtest.h>

#include "gui/base/palette.h"

namespace pipetwin::gui {
namespace widget_style_test {

constexpr double seen = 3;  // WCAG 2.1, 1.4.11: what is needed to see a control and its state

/// The largest contrast of any pixel of the widget, which shows no text, with `ground`.
double contrast_with(const QColor& ground, QWidget& widget) {
    widget.resize(widget.sizeHint());
    const QImage image = widget.grab().toImage();
    double largest = 1;
    for (int y = 0; y < image.height(); ++y) {
        for (int x = 0; x < image.width(); ++x) {
            largest = std::max(largest, contrast_ratio(image.pixelColor(x, y), ground));
        }
    }
    return largest;
}

/// In the dark theme the boxes of the list of ranks could not be seen at all.
TEST(WidgetStyle, ControlsAreSeenInEveryTheme) {
    for (const Theme theme : {Theme::Light, Theme::Dark, Theme::HighContrast, Theme::Print}) {
        const QPalette colors = widget_palette(palette_of(theme));
        QWidget window;
        window.setPalette(colors);
        QCheckBox box(&window);
        QLineEdit line(&window);
        QPushButton button(&window);
        QSlider slider(Qt::Horizontal, &window);
        for (QWidget* const control : {static_cast<QWidget*>(&box),
                                       static_cast<QWidget*>(&line),
                                       static_cast<QWidget*>(&button),
                                       static_cast<QWidget*>(&slider)}) {
            const char* const name = control->metaObject()->className();
            control->setPalette(colors);
            EXPECT_GE(contrast_with(colors.color(QPalette::Window), *control), seen) << name;
            EXPECT_GE(contrast_with(colors.color(QPalette::Base), *control), seen) << name;
        }
    }
}

TEST(WidgetStyle, EdgesAreNoBolderThanTheyMustBe) {
    for (const Theme theme : {Theme::Light, Theme::Dark}) {
        const QPalette colors = widget_palette(palette_of(theme));
        const QColor edge = edge_color(colors);
        double least = 21;
        for (const QColor& painted : {edge, edge.lighter(110)}) {  // the latter those of boxes
            least = std::min({least,
                              contrast_ratio(painted, colors.color(QPalette::Window)),
                              contrast_ratio(painted, colors.color(QPalette::Base))});
        }
        EXPECT_GE(least, seen);
        EXPECT_LT(least, 3.3);
    }
}

}  // namespace widget_style_test
}  // namespace pipetwin::gui
