// SPDX-License-Identifier: Apache-2.0
#include "gui/timeline/minimap_view.h"

#include <QApplication>
#include <QMouseEvent>
#include <QTest>
#include <gtest/gtest.h>

#include "tests/gui/canned.h"

namespace pipetwin::gui {
namespace minimap_view_test {

class MinimapTest : public ::testing::Test {
  protected:
    MinimapTest() {
        timeline_.resize(1000, 400);
        minimap_.resize(1000, 60);
        timeline_.show_run(std::make_shared<const RunData>(canned_run({.steps = 8})));
        timeline_.show();
        minimap_.show();
    }

    int left() const { return timeline_.scene().label_width; }
    int width() const { return minimap_.width() - left(); }
    Duration length() const { return timeline_.scene().places.length(); }

    void mouse(QEvent::Type type, int x) {
        const QPointF at(x, 30);
        const bool moves = type == QEvent::MouseMove;
        QMouseEvent event(type,
                          at,
                          minimap_.mapToGlobal(at),
                          moves ? Qt::NoButton : Qt::LeftButton,
                          type == QEvent::MouseButtonRelease ? Qt::NoButton : Qt::LeftButton,
                          Qt::NoModifier);
        QApplication::sendEvent(&minimap_, &event);
    }

    void drag(int from, int to) {
        mouse(QEvent::MouseButtonPress, from);
        mouse(QEvent::MouseMove, to);
        mouse(QEvent::MouseButtonRelease, to);
    }

    double middle() const {
        const TimelineScene& scene = timeline_.scene();
        return to_seconds(scene.view.time_at(scene.time_width() / 2.0)) / to_seconds(length());
    }

    Selection selection_;
    TimelineView timeline_{&selection_};
    MinimapView minimap_{&timeline_};
};

TEST_F(MinimapTest, AClickBesideTheWindowBringsItThere) {
    timeline_.show_step(0);
    const double scale = timeline_.transform().ns_per_pixel;
    drag(left() + width() * 3 / 4, left() + width() * 3 / 4);
    EXPECT_NEAR(middle(), 0.75, 0.01);
    EXPECT_NEAR(timeline_.transform().ns_per_pixel, scale, scale * 0.01);
}

TEST_F(MinimapTest, DraggingTheWindowMovesTheTimeline) {
    timeline_.show_step(3);
    const double before = middle();
    const int at = left() + static_cast<int>(before * width());
    drag(at, at + width() / 4);
    EXPECT_NEAR(middle(), before + 0.25, 0.01);
}

TEST_F(MinimapTest, DraggingAnEdgeZooms) {
    timeline_.show_exactly({.begin = length() / 4, .end = length() / 2});
    drag(left() + width() / 2, left() + width() * 3 / 4);
    const TimelineScene& scene = timeline_.scene();
    EXPECT_NEAR(to_seconds(scene.view.origin) / to_seconds(length()), 0.25, 0.01);
    EXPECT_NEAR(
        to_seconds(scene.view.time_at(scene.time_width())) / to_seconds(length()), 0.75, 0.01);
}

TEST_F(MinimapTest, ShowsTheWindowBrightAndTheRestVeiled) {
    timeline_.show_exactly({.begin = Duration{0}, .end = length() / 2});
    const QImage image = minimap_.grab().toImage();
    const Palette palette = palette_of(Theme::Light);
    EXPECT_EQ(image.pixelColor(left() + width() / 4, image.height() - 8), palette.memory_fill);
    EXPECT_NE(image.pixelColor(left() + width() * 3 / 4, image.height() - 8), palette.memory_fill);
}

TEST_F(MinimapTest, WithoutARunNothingHappens) {
    timeline_.show_run(nullptr);
    drag(300, 500);
    EXPECT_FALSE(minimap_.grab().isNull());
}

}  // namespace minimap_view_test
}  // namespace pipetwin::gui
