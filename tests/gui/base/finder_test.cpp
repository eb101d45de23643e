// SPDX-License-Identifier: Apache-2.0
#include "gui/base/finder.h"

#include <QLineEdit>
#include <QSignalSpy>
#include <QTest>
#include <gtest/gtest.h>

namespace pipetwin::gui {
namespace finder_test {

TEST(Fits, WhatHasTheLettersInThisOrder) {
    EXPECT_TRUE(fits("Zoom in", "zi"));
    EXPECT_TRUE(fits("Zoom in", "ZOOM"));
    EXPECT_TRUE(fits("Zoom in", "zo in"));
    EXPECT_TRUE(fits("Zoom in", ""));
    EXPECT_FALSE(fits("Zoom in", "iz"));
    EXPECT_FALSE(fits("Zoom in", "zoomed"));
}

class FinderTest : public ::testing::Test {
  protected:
    FinderTest() {
        window_.resize(800, 600);
        window_.show();
        finder_.ask("What?",
                    {{.text = "Zoom in", .detail = "W", .take = [this] { taken_ = 1; }},
                     {.text = "Zoom out", .detail = "S", .take = [this] { taken_ = 2; }},
                     {.text = "Whole run", .detail = "Z", .take = [this] { taken_ = 3; }}});
        line_ = finder_.findChild<QLineEdit*>();
    }

    QWidget window_;
    Finder finder_{&window_};
    QLineEdit* line_ = nullptr;
    int taken_ = 0;
};

TEST_F(FinderTest, TypingLeavesWhatFits) {
    EXPECT_EQ(finder_.count(), 3);
    QTest::keyClicks(line_, "zoom");
    EXPECT_EQ(finder_.count(), 2);
    QTest::keyClicks(line_, "x");
    EXPECT_EQ(finder_.count(), 0);
}

TEST_F(FinderTest, WhatHoldsTheTextComesBeforeWhatHoldsItsLetters) {
    finder_.ask("What?",
                {{.text = "What was seen after", .detail = "", .take = [this] { taken_ = 1; }},
                 {.text = "Panel: Heat map", .detail = "", .take = [this] { taken_ = 2; }}});
    QTest::keyClicks(line_, "heat");
    EXPECT_EQ(finder_.count(), 2);
    QTest::keyClick(line_, Qt::Key_Return);
    EXPECT_EQ(taken_, 2);
}

TEST_F(FinderTest, EnterTakesTheOneThatDownWentTo) {
    QTest::keyClick(line_, Qt::Key_Down);
    QTest::keyClick(line_, Qt::Key_Return);
    EXPECT_EQ(taken_, 2);
    EXPECT_FALSE(finder_.isVisible());
}

TEST_F(FinderTest, WalkingEndsAtTheEnds) {
    QTest::keyClick(line_, Qt::Key_Up);
    QTest::keyClick(line_, Qt::Key_PageDown);
    QTest::keyClick(line_, Qt::Key_Down);
    QTest::keyClick(line_, Qt::Key_Return);
    EXPECT_EQ(taken_, 3);
}

TEST_F(FinderTest, EscapeLeavesEverythingAsItWas) {
    QTest::keyClick(line_, Qt::Key_Escape);
    EXPECT_FALSE(finder_.isVisible());
    EXPECT_EQ(taken_, 0);
}

TEST_F(FinderTest, EnterWithNothingToTakeIsHarmless) {
    QTest::keyClicks(line_, "nothing");
    QTest::keyClick(line_, Qt::Key_Return);
    EXPECT_EQ(taken_, 0);
}

TEST(SearchLineTest, SaysWhatWasTypedAndWhichWayToGo) {
    QWidget window;
    window.resize(800, 600);
    window.show();
    SearchLine search(&window);
    search.ask();
    QSignalSpy typed(&search, &SearchLine::typed);
    QSignalSpy next(&search, &SearchLine::next_wanted);
    QSignalSpy left(&search, &SearchLine::left);
    auto* const line = search.findChild<QLineEdit*>();
    QTest::keyClicks(line, "B2");
    EXPECT_EQ(typed.count(), 2);
    EXPECT_EQ(search.text(), "B2");
    QTest::keyClick(line, Qt::Key_Return);
    QTest::keyClick(line, Qt::Key_Return, Qt::ShiftModifier);
    ASSERT_EQ(next.count(), 2);
    EXPECT_EQ(next[0][0].toInt(), +1);
    EXPECT_EQ(next[1][0].toInt(), -1);
    QTest::keyClick(line, Qt::Key_Escape);
    EXPECT_EQ(left.count(), 1);
    EXPECT_FALSE(search.isVisible());
}

}  // namespace finder_test
}  // namespace pipetwin::gui
