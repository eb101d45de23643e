// SPDX-License-Identifier: Apache-2.0
#include "gui/timeline/track_panel.h"

#include <algorithm>

#include <QAbstractItemModelTester>
#include <QPushButton>
#include <QTableView>
#include <QTest>
#include <gtest/gtest.h>

#include "tests/gui/canned.h"
#include "tests/gui/panels.h"

namespace pipetwin::gui {
namespace track_panel_test {

class TrackPanelTest : public ::testing::Test {
  protected:
    TrackPanelTest() {
        timeline_.resize(1000, 600);
        timeline_.show_run(std::make_shared<const RunData>(canned_run({.ranks = 4})));
        timeline_.show();
    }

    const Track& track(int place) { return timeline_.tracks()[static_cast<std::size_t>(place)]; }

    Selection selection_;
    TimelineView timeline_{&selection_};
    TrackModel model_{&timeline_};
    QAbstractItemModelTester tester_{&model_,
                                     QAbstractItemModelTester::FailureReportingMode::Fatal};
};

TEST_F(TrackPanelTest, ListsTheRanksOfTheRun) {
    ASSERT_EQ(model_.rowCount(), 4);
    EXPECT_EQ(model_.index(2, TrackModel::Rank).data().toString(), "rank 2");
    EXPECT_TRUE(model_.index(2, TrackModel::Utilisation).data().toString().endsWith(" %"));
    timeline_.show_run(std::make_shared<const RunData>(canned_run({.ranks = 7})));
    EXPECT_EQ(model_.rowCount(), 7);
    timeline_.show_run(nullptr);
    EXPECT_EQ(model_.rowCount(), 0);
}

TEST_F(TrackPanelTest, ChecksHidePinAndFold) {
    const auto set = [&](int row, TrackModel::Column column, Qt::CheckState state) {
        EXPECT_TRUE(model_.setData(model_.index(row, column), state, Qt::CheckStateRole));
    };
    set(1, TrackModel::Rank, Qt::Unchecked);
    set(2, TrackModel::Pinned, Qt::Checked);
    set(3, TrackModel::Folded, Qt::Checked);
    EXPECT_TRUE(track(1).hidden);
    EXPECT_TRUE(track(2).pinned);
    EXPECT_TRUE(track(3).folded);
    const RowLayout& layout = timeline_.scene().layout;
    EXPECT_EQ(layout.row_of(Side::Measured, 1), nullptr);
    EXPECT_LT(layout.row_of(Side::Measured, 2)->y, layout.pinned_height);
    EXPECT_LT(layout.row_of(Side::Measured, 3)->height, layout.row_of(Side::Measured, 0)->height);
    EXPECT_FALSE(
        model_.setData(model_.index(0, TrackModel::Utilisation), Qt::Checked, Qt::CheckStateRole));
}

TEST_F(TrackPanelTest, FollowsWhatTheKeysDo) {
    selection_.set_span(SpanRef{.side = Side::Measured, .step = 0, .rank = 2, .cell = 0});
    timeline_.toggle_pin();
    timeline_.toggle_fold();
    EXPECT_EQ(model_.index(2, TrackModel::Pinned).data(Qt::CheckStateRole).toInt(), Qt::Checked);
    EXPECT_EQ(model_.index(2, TrackModel::Folded).data(Qt::CheckStateRole).toInt(), Qt::Checked);
}

TEST_F(TrackPanelTest, MovesARankAndStopsAtTheEnds) {
    EXPECT_EQ(model_.move(1, -1), 0);
    EXPECT_EQ(track(0).rank, 1);
    EXPECT_EQ(model_.move(0, -1), 0);
    EXPECT_EQ(model_.move(3, +1), 3);
    const RowLayout& layout = timeline_.scene().layout;
    EXPECT_LT(layout.row_of(Side::Measured, 1)->y, layout.row_of(Side::Measured, 0)->y);
}

TEST_F(TrackPanelTest, TheSpaceKeyChecks) {
    TrackPanel panel(&timeline_);
    panel.resize(400, 300);
    panel.show();
    auto* const table = panel.findChild<QTableView*>();
    table->setCurrentIndex(table->model()->index(0, TrackModel::Rank));
    QTest::keyClick(table, Qt::Key_Space);
    EXPECT_TRUE(track(0).hidden);
}

TEST_F(TrackPanelTest, ItsButtonsMoveShowAndFold) {
    TrackPanel panel(&timeline_);
    panel.show();
    auto* const table = panel.findChild<QTableView*>();
    table->setCurrentIndex(table->model()->index(1, TrackModel::Rank));
    press(panel, "Up");
    EXPECT_EQ(track(0).rank, 1);
    EXPECT_EQ(table->currentIndex().row(), 0) << "it stays the chosen one";
    press(panel, "Down");
    EXPECT_EQ(track(0).rank, 0);
    const auto all = [&](bool Track::*what) {
        return std::ranges::count_if(timeline_.tracks(),
                                     [what](const Track& track) { return track.*what; });
    };
    press(panel, "Fold all");
    EXPECT_EQ(all(&Track::folded), 4);
    press(panel, "Unfold all");
    EXPECT_EQ(all(&Track::folded), 0);
    QTest::keyClick(table, Qt::Key_Space);
    EXPECT_EQ(all(&Track::hidden), 1);
    press(panel, "Show all");
    EXPECT_EQ(all(&Track::hidden), 0);
}

TEST_F(TrackPanelTest, PinnedRanksStayWhenTheOthersScroll) {
    timeline_.show_run(std::make_shared<const RunData>(canned_run({.ranks = 24})));
    selection_.set_span(SpanRef{.side = Side::Measured, .step = 0, .rank = 20, .cell = 0});
    timeline_.toggle_pin();
    const QRect pinned = timeline_.place_of(*selection_.span());
    const SpanRef other{.side = Side::Measured, .step = 0, .rank = 3, .cell = 0};
    const int before = timeline_.place_of(other).y();
    timeline_.go_to({.side = Side::Measured, .step = 0, .rank = 23, .cell = 0});
    EXPECT_EQ(timeline_.place_of({.side = Side::Measured, .step = 0, .rank = 20, .cell = 0}).y(),
              pinned.y());
    EXPECT_LT(timeline_.place_of(other).y(), before);
}

}  // namespace track_panel_test
}  // namespace pipetwin::gui
