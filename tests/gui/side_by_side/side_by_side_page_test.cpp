// SPDX-License-Identifier: Apache-2.0
#include "gui/side_by_side/side_by_side_page.h"

#include <QApplication>
#include <QLabel>
#include <QPushButton>
#include <QSignalSpy>
#include <QTest>
#include <QToolButton>
#include <QWheelEvent>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gui/timeline/legend.h"
#include "gui/view/playground/playground.h"
#include "tests/gui/canned.h"
#include "tests/support/places.h"

namespace pipetwin::gui {
namespace side_by_side_page_test {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

std::string figures_of(const RunTile& tile) {
    return tile.findChild<QLabel*>()->text().replace(QChar::Nbsp, ' ').toStdString();
}

class SideBySideTest : public ::testing::Test {
  protected:
    SideBySideTest() {
        page_.resize(1280, 660);
        page_.show();
    }

    /// A simulated step of four ranks, under a name of its own.
    void add(const std::string& schedule, int micro_batches = 8) {
        const PlaygroundStep step =
            play(fitted({.schedule = schedule, .micro_batches = micro_batches, .factors = {}}));
        RunData run = *step.run;
        run.path = schedule + std::to_string(micro_batches);
        page_.add(std::make_shared<const RunData>(std::move(run)));
        QApplication::processEvents();
    }

    SideBySidePage page_;
};

TEST_F(SideBySideTest, SixRunsAreSixPicturesThatFitAWindow) {
    for (const char* const schedule :
         {"gpipe", "1f1b", "interleaved-1f1b", "zb-h1", "zb-v", "looped-bfs"}) {
        add(schedule);
    }
    ASSERT_THAT(page_.tiles(), SizeIs(6));
    for (const RunTile* const tile : page_.tiles()) {
        EXPECT_FALSE(tile->visibleRegion().isEmpty());
        EXPECT_EQ(tile->visibleRegion(), QRegion(tile->rect())) << "all of it, without scrolling";
        EXPECT_THAT(figures_of(*tile), HasSubstr("bubble"));
        EXPECT_THAT(figures_of(*tile), HasSubstr("step"));
    }
    const double row = page_.tiles()[0]->picture()->scene().layout.rows.front().height;
    EXPECT_GT(row, page_.tiles()[0]->picture()->least_row_height()) << "they fill the window";
    EXPECT_EQ(page_.tiles()[5]->picture()->scene().layout.rows.front().height, row);
    EXPECT_THAT(figures_of(*page_.tiles()[1]), HasSubstr("1f1b, 4 ranks, 8 micro-batches"));
    EXPECT_THAT(figures_of(*page_.tiles()[1]), HasSubstr("bubble 27.3 %"));
}

/// A span of 1 ms is as wide in every picture, and every step begins at the same pixel.
TEST_F(SideBySideTest, AllPicturesHaveOneTimeAxis) {
    add("1f1b", 4);
    add("1f1b", 64);
    const TimelineScene& shorter = page_.tiles()[0]->picture()->scene();
    const TimelineScene& longer = page_.tiles()[1]->picture()->scene();
    EXPECT_DOUBLE_EQ(shorter.view.ns_per_pixel, longer.view.ns_per_pixel);
    EXPECT_EQ(shorter.label_width, longer.label_width);
    EXPECT_EQ(shorter.x_of({}), longer.x_of({}));
    // (64 + 3) x 3 ms fill the width.
    EXPECT_EQ(page_.part().end, Duration(std::chrono::milliseconds(201)));
    EXPECT_GT(shorter.ruler_height, 0);
    EXPECT_EQ(longer.ruler_height, 0) << "the times stand above the first rows";
}

/// On 4 equal stages GPipe of 8 micro-batches takes (8 + 3) x 3 ms, ZB-H1 8 x 3 + 3 ms.
TEST_F(SideBySideTest, SaysHowMuchFasterOrSlowerThanTheFirstARunIs) {
    add("gpipe");  // 33 ms
    add("zb-h1");  // 27 ms
    EXPECT_THAT(figures_of(*page_.tiles()[1]), HasSubstr("1.22 times as fast as the first"));
}

TEST_F(SideBySideTest, SaysThatARunIsSlower) {
    add("zb-h1");
    add("gpipe");
    EXPECT_THAT(figures_of(*page_.tiles()[1]), HasSubstr("1.22 times as long as the first"));
    EXPECT_THAT(figures_of(*page_.tiles()[1]), Not(HasSubstr("different sources")));
}

/// 1F1B of m micro-batches takes (m + 3) x 3 ms: 9 in 36 ms, 21 in 72.
TEST_F(SideBySideTest, ComparesRatesWhereStepsDoDifferentWork) {
    add("1f1b", 9);
    add("1f1b", 21);
    EXPECT_THAT(figures_of(*page_.tiles()[1]),
                HasSubstr("1.17 times the micro-batches/s of the first"));
}

/// A step at unit costs stood beside a measured one with a ratio and no word about the costs.
TEST_F(SideBySideTest, SaysWhichCostsARunHasAndThatAnotherHasOthers) {
    RunData measured = canned_run({.jitter = 0.1});
    measured.path = "measured";
    page_.add(std::make_shared<const RunData>(measured));
    add("1f1b", 21);
    EXPECT_THAT(figures_of(*page_.tiles()[1]),
                AllOf(HasSubstr("unit costs     "), HasSubstr("not compared with the first")));
    EXPECT_THAT(figures_of(*page_.tiles()[1]), Not(HasSubstr(" times ")));
}

TEST_F(SideBySideTest, SaysThatTheModelsOfTwoRunsDiffer) {
    const auto add_scenario = [this](const char* name) {
        page_.add(std::make_shared<const RunData>(
            load_run(places::source_folder() + "/scenarios/" + name)));
    };
    add_scenario("gpt-text.toml");
    add_scenario("own-schedule.toml");
    add_scenario("paced-k4.toml");
    EXPECT_THAT(figures_of(*page_.tiles()[1]), Not(HasSubstr("models differ")));
    EXPECT_THAT(figures_of(*page_.tiles()[2]), HasSubstr("the first; their models differ"));
}

/// They ended at the edge of the window.
TEST_F(SideBySideTest, FiguresGoOnInASecondLineWhereOneHasNoRoom) {
    page_.resize(500, 660);
    add("gpipe");
    add("1f1b", 21);
    for (const RunTile* const tile : page_.tiles()) {
        const QLabel& figures = *tile->findChild<QLabel*>();
        EXPECT_GE(figures.height(), figures.heightForWidth(figures.width()));
        EXPECT_GE(figures.height(), 2 * figures.fontMetrics().height());
        EXPECT_GE(tile->picture()->y(), figures.geometry().bottom());
    }
}

TEST_F(SideBySideTest, ExplainsTheColoursOfAllItsRuns) {
    add("1f1b");
    auto* const legend = page_.findChild<Legend*>();
    EXPECT_TRUE(legend->accessibleDescription().contains("F: forward"));
    EXPECT_FALSE(legend->accessibleDescription().contains("W:"));
    add("zb-h1");
    EXPECT_TRUE(legend->accessibleDescription().contains("W:"));
}

TEST_F(SideBySideTest, MeasuredStepsBeginAtTheSameTimeAsPredictedOnes) {
    RunData measured = canned_run({.jitter = 0.1, .steps = 3});
    measured.path = "measured";
    page_.add(std::make_shared<const RunData>(measured));
    add("1f1b");
    const TimelineScene& scene = page_.tiles()[0]->picture()->scene();
    EXPECT_EQ(scene.view.origin, Duration{});
    ASSERT_EQ(scene.places.step_count(), 1);
    EXPECT_EQ(scene.places.length(), measured.measured->step);
    EXPECT_THAT(figures_of(*page_.tiles()[0]), HasSubstr("measured step"));
}

TEST_F(SideBySideTest, AClickOnAPictureOrANameMakesTheRunTheMainOne) {
    add("gpipe");
    add("1f1b");
    std::shared_ptr<const RunData> chosen;
    QObject::connect(&page_, &SideBySidePage::chosen, [&](const auto& run) { chosen = run; });
    QTest::mouseClick(page_.tiles()[1]->picture(), Qt::LeftButton);
    EXPECT_EQ(chosen, page_.tiles()[1]->run());
    QTest::mouseClick(page_.tiles()[0]->findChild<QPushButton*>(), Qt::LeftButton);
    EXPECT_EQ(chosen, page_.tiles()[0]->run());
}

TEST_F(SideBySideTest, ZoomingInOneZoomsAll) {
    add("gpipe");
    add("1f1b");
    RunPicture* const picture = page_.tiles()[1]->picture();
    const QPoint middle = picture->rect().center();
    QWheelEvent wheel(middle,
                      picture->mapToGlobal(middle),
                      {},
                      QPoint(0, 240),
                      Qt::NoButton,
                      Qt::ControlModifier,
                      Qt::NoScrollPhase,
                      false);
    const TimeRange all = page_.part();
    QApplication::sendEvent(picture, &wheel);
    EXPECT_LT(page_.part().end - page_.part().begin, all.end - all.begin);
    EXPECT_GT(page_.part().begin, all.begin);
    EXPECT_DOUBLE_EQ(page_.tiles()[0]->picture()->scene().view.ns_per_pixel,
                     picture->scene().view.ns_per_pixel);
    page_.show_all_of_it();
    EXPECT_EQ(page_.part(), all);
}

TEST_F(SideBySideTest, TheSameRunIsShownOnceAndARunCanBeRemoved) {
    add("gpipe");
    add("1f1b");
    add("gpipe");
    ASSERT_THAT(page_.tiles(), SizeIs(2));
    QTest::mouseClick(page_.tiles()[0]->findChild<QToolButton*>(), Qt::LeftButton);
    ASSERT_THAT(page_.tiles(), SizeIs(1));
    EXPECT_EQ(page_.tiles()[0]->run()->schedule_name, "1f1b");
    page_.clear();
    EXPECT_THAT(page_.tiles(), IsEmpty());
}

TEST_F(SideBySideTest, WhatCannotBeReadSaysWhyAndTheOthersAreShown) {
    QSignalSpy settled(&page_, &SideBySidePage::settled);
    page_.open({"/not/there.toml"});
    ASSERT_TRUE(!settled.isEmpty() || settled.wait(20'000));
    add("1f1b");
    ASSERT_THAT(page_.tiles(), SizeIs(2));
    EXPECT_EQ(page_.tiles()[0]->picture(), nullptr);
    EXPECT_THAT(figures_of(*page_.tiles()[0]), HasSubstr("/not/there.toml"));
    EXPECT_NE(page_.tiles()[1]->picture(), nullptr);
}

}  // namespace side_by_side_page_test
}  // namespace pipetwin::gui
