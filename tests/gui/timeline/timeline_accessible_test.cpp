// SPDX-License-Identifier: Apache-2.0
#include "gui/timeline/timeline_accessible.h"

#include <gtest/gtest.h>

#include "tests/gui/canned.h"

namespace pipetwin::gui {
namespace timeline_accessible_test {

class TimelineAccessibleTest : public ::testing::Test {
  protected:
    TimelineAccessibleTest() {
        view_.resize(1000, 500);
        view_.show_run(
            std::make_shared<const RunData>(canned_run({.micro_batches = 3, .jitter = 0.1})));
        view_.show();
        table_ = dynamic_cast<TimelineAccessible*>(QAccessible::queryAccessibleInterface(&view_));
    }

    Selection selection_;
    TimelineView view_{&selection_};
    TimelineAccessible* table_ = nullptr;
};

TEST_F(TimelineAccessibleTest, IsATableOfTheRowsOnTheScreen) {
    ASSERT_NE(table_, nullptr);
    EXPECT_EQ(table_->role(), QAccessible::Table);
    EXPECT_NE(table_->tableInterface(), nullptr);
    EXPECT_EQ(table_->rowCount(), 4) << "two ranks, two sides";
    EXPECT_EQ(table_->rowDescription(1), "rank 0, measured");
    view_.set_mode(Mode::Predicted);
    EXPECT_EQ(table_->rowCount(), 2);
}

TEST_F(TimelineAccessibleTest, ACellSaysWhatTheActionIsAndHowFarOff) {
    QAccessibleInterface* const cell = table_->cellAt(1, 0);
    ASSERT_NE(cell, nullptr);
    const QString name = cell->text(QAccessible::Name);
    for (const char* const part : {"0F0", "forward", "rank 0", "measured", "predicted", "error"}) {
        EXPECT_TRUE(name.contains(part)) << part << " in " << name.toStdString();
    }
    EXPECT_EQ(cell->role(), QAccessible::Cell);
    EXPECT_EQ(cell->tableCellInterface()->rowIndex(), 1);
    EXPECT_EQ(cell->tableCellInterface()->columnIndex(), 0);
    EXPECT_EQ(cell->parent(), table_);
    EXPECT_EQ(table_->cellAt(1, 0), cell) << "the same one again";
    EXPECT_EQ(table_->cellAt(9, 0), nullptr);
}

TEST_F(TimelineAccessibleTest, ChildrenAreFoundByNumberAndByPlace) {
    for (const int index : {0, 3, table_->childCount() - 1}) {
        QAccessibleInterface* const child = table_->child(index);
        ASSERT_NE(child, nullptr) << index;
        EXPECT_EQ(table_->indexOfChild(child), index);
        const QPoint middle = child->rect().center();
        EXPECT_EQ(table_->childAt(middle.x(), middle.y()), child);
    }
    EXPECT_EQ(table_->child(table_->childCount()), nullptr);
}

TEST_F(TimelineAccessibleTest, TheSelectionIsTheSelectedCell) {
    EXPECT_EQ(table_->selectedCellCount(), 0);
    selection_.set_span(find(*view_.scene().run, Side::Measured, {.op = Op::Backward, .stage = 1}));
    ASSERT_EQ(table_->selectedCells().size(), 1);
    QAccessibleInterface* const cell = table_->selectedCells().front();
    EXPECT_TRUE(cell->text(QAccessible::Name).contains("1B0"));
    EXPECT_TRUE(cell->state().selected);
}

TEST_F(TimelineAccessibleTest, OnlyWhatIsSeenIsThereAndAnOldCellKnowsThatItIsGone) {
    const int all = table_->childCount();
    QAccessibleInterface* const cell = table_->cellAt(0, 0);
    view_.zoom(4);
    EXPECT_LT(table_->childCount(), all);
    view_.show_run(nullptr);
    EXPECT_EQ(table_->childCount(), 0);
    EXPECT_FALSE(cell->isValid());
    EXPECT_EQ(cell->text(QAccessible::Name), "");
}

}  // namespace timeline_accessible_test
}  // namespace pipetwin::gui
