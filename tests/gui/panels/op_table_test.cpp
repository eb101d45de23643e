// SPDX-License-Identifier: Apache-2.0
#include "gui/panels/op_table.h"

#include <QAbstractItemModelTester>
#include <QHeaderView>
#include <QLabel>
#include <QLineEdit>
#include <QSignalSpy>
#include <QTableView>
#include <QTest>
#include <gtest/gtest.h>

#include "tests/gui/canned.h"

namespace pipetwin::gui {
namespace op_table_test {

class OpTableTest : public ::testing::Test {
  protected:
    OpTableTest() {
        panel_.resize(1200, 300);
        panel_.show();
        show_run(run_);
    }

    template <class Act>
    void settle(Act act) {
        QSignalSpy settled(&panel_, &OpTablePanel::settled);
        act();
        if (settled.isEmpty()) {
            ASSERT_TRUE(settled.wait(20'000));
        }
        QApplication::processEvents();
    }

    void show_run(const std::shared_ptr<const RunData>& run) {
        settle([&] { panel_.show_run(run); });
    }

    void type(const char* text) {
        settle([&] { panel_.findChild<QLineEdit*>()->setText(QString::fromLatin1(text)); });
    }

    QTableView* view() { return panel_.findChild<QTableView*>(); }
    QString cell(int row, OpColumn column) {
        return view()->model()->index(row, static_cast<int>(column)).data().toString();
    }
    QString count() { return panel_.findChild<QLabel*>()->text(); }

    std::shared_ptr<const RunData> run_ = std::make_shared<const RunData>(
        canned_run({.ranks = 2, .micro_batches = 3, .jitter = 0.1, .steps = 2}));
    Selection selection_;
    OpTablePanel panel_{&selection_};
};

/// Starts were in nanoseconds: the number of the step in its training was taken for its place in
/// the trace.
TEST_F(OpTableTest, StartsHaveTheUnitOfTheStepWhateverItsNumber) {
    RunData run = canned_run({.ranks = 2, .micro_batches = 3});
    run.measured->step_numbers = {24};
    show_run(std::make_shared<const RunData>(std::move(run)));
    EXPECT_EQ(cell(0, OpColumn::Step), "24");
    for (const OpColumn column : {OpColumn::PredictedBegin, OpColumn::MeasuredBegin}) {
        EXPECT_TRUE(cell(1, column).endsWith(" ms")) << cell(1, column).toStdString();
    }
}

TEST_F(OpTableTest, ShowsEveryActionOfEveryStep) {
    EXPECT_EQ(view()->model()->rowCount(), OpRows(run_).size());
    EXPECT_EQ(cell(0, OpColumn::Action), "0F0");
    EXPECT_EQ(cell(0, OpColumn::PredictedDuration), "1.00 ms");
    EXPECT_EQ(count(), QStringLiteral("%1 actions").arg(OpRows(run_).size()));
}

/// A scenario without a measurement had four empty columns.
TEST_F(OpTableTest, HasNoColumnsOfASideThatIsMissing) {
    const auto hidden = [this](OpColumn column) {
        return view()->isColumnHidden(static_cast<int>(column));
    };
    EXPECT_FALSE(hidden(OpColumn::MeasuredBegin) || hidden(OpColumn::Error));
    RunData predicted = canned_run({.ranks = 2, .micro_batches = 3});
    predicted.twin.measured.clear();
    predicted.measured.reset();
    predicted.comparison.reset();
    show_run(std::make_shared<const RunData>(std::move(predicted)));
    EXPECT_TRUE(hidden(OpColumn::MeasuredBegin) && hidden(OpColumn::MeasuredDuration) &&
                hidden(OpColumn::MeasuredWait) && hidden(OpColumn::Error));
    EXPECT_FALSE(hidden(OpColumn::PredictedBegin) || hidden(OpColumn::PredictedWait));
    show_run(run_);
    EXPECT_FALSE(hidden(OpColumn::MeasuredBegin) || hidden(OpColumn::Error));
}

/// They said "measured" of runs on paced devices, too.
TEST_F(OpTableTest, SaysWhatWasEmulated) {
    const auto heading = [this](OpColumn column) {
        return view()->model()->headerData(static_cast<int>(column), Qt::Horizontal).toString();
    };
    EXPECT_EQ(heading(OpColumn::MeasuredDuration), "Duration, measured");
    RunData run = *run_;
    run.measured->origin = Origin::Emulated;
    show_run(std::make_shared<const RunData>(run));
    for (const OpColumn column :
         {OpColumn::MeasuredBegin, OpColumn::MeasuredDuration, OpColumn::MeasuredWait}) {
        EXPECT_TRUE(heading(column).endsWith("emulated")) << heading(column).toStdString();
    }
    EXPECT_EQ(heading(OpColumn::PredictedDuration), "Duration, predicted");
}

TEST_F(OpTableTest, FiltersWhatIsTyped) {
    type("1B2");
    ASSERT_EQ(view()->model()->rowCount(), 2);  // of two steps
    EXPECT_EQ(cell(1, OpColumn::Action), "1B2");
    EXPECT_EQ(cell(1, OpColumn::Step), "1");
    EXPECT_TRUE(count().startsWith(QLatin1String("2 of ")));
    panel_.findChild<QLineEdit*>()->setText(QStringLiteral("gibberish"));
    EXPECT_EQ(count(), "unknown filter; try 1F2 or wait > 0.2");
    EXPECT_EQ(view()->model()->rowCount(), 2);  // as before
    type("");
    EXPECT_EQ(view()->model()->rowCount(), OpRows(run_).size());
}

TEST_F(OpTableTest, OfVeryManyListsTheFirst) {
    auto* const proxy = panel_.findChild<OpFilterProxy*>();
    settle([&] { proxy->set_most_rows(5); });
    const int all = OpRows(run_).size();
    EXPECT_EQ(view()->model()->rowCount(), 5);
    EXPECT_EQ(count(), QStringLiteral("%1 actions, the first 5 listed").arg(all));
    selection_.set_span(find(*run_, Side::Measured, {.op = Op::Backward, .stage = 1}));
    EXPECT_FALSE(view()->currentIndex().isValid()) << "it is not among them";
    settle([&] {
        view()->sortByColumn(static_cast<int>(OpColumn::PredictedDuration), Qt::DescendingOrder);
    });
    EXPECT_EQ(view()->model()->rowCount(), 5);
    EXPECT_EQ(cell(0, OpColumn::PredictedDuration), "2.00 ms") << "of all of them";
    type("1B2");
    EXPECT_EQ(view()->model()->rowCount(), 2);
    EXPECT_TRUE(count().startsWith(QLatin1String("2 of ")));
}

TEST_F(OpTableTest, SortsByAColumn) {
    settle([&] {
        view()->sortByColumn(static_cast<int>(OpColumn::PredictedDuration), Qt::DescendingOrder);
    });
    EXPECT_EQ(cell(0, OpColumn::PredictedDuration), "2.00 ms");
}

TEST_F(OpTableTest, GoesWhereTheSelectionIs) {
    const SpanRef b1 =
        find(*run_, Side::Predicted, {.op = Op::Backward, .stage = 1, .micro_batch = 1});
    selection_.set_span(b1);
    EXPECT_EQ(view()->currentIndex().siblingAtColumn(static_cast<int>(OpColumn::Action)).data(),
              "1B1");
    EXPECT_EQ(*selection_.span(), b1);  // and leaves it as it is
    type("F");
    EXPECT_FALSE(view()->currentIndex().isValid());
    EXPECT_EQ(*selection_.span(), b1);
    selection_.clear();
}

TEST_F(OpTableTest, TakesTheSelectionWhereItGoes) {
    type("F");
    selection_.set_span(find(*run_, Side::Predicted, {.op = Op::Forward}));
    view()->setFocus();
    QTest::keyClick(view(), Qt::Key_Down);
    ASSERT_TRUE(selection_.span());
    EXPECT_EQ(to_string(run_->twin.span(*selection_.span())->action), "0F1");
    EXPECT_EQ(selection_.span()->side, Side::Predicted);  // as before
    QSignalSpy went(&panel_, &OpTablePanel::go_to);
    QTest::keyClick(view(), Qt::Key_Return);
    EXPECT_EQ(went.count(), 1);
}

TEST_F(OpTableTest, KeepsTheSelectedActionWhenSorted) {
    const SpanRef b1 =
        find(*run_, Side::Measured, {.op = Op::Backward, .stage = 1, .micro_batch = 1});
    selection_.set_span(b1);
    settle([&] { view()->sortByColumn(static_cast<int>(OpColumn::Error), Qt::AscendingOrder); });
    EXPECT_EQ(view()->currentIndex().siblingAtColumn(static_cast<int>(OpColumn::Action)).data(),
              "1B1");
}

TEST_F(OpTableTest, WithoutARunIsEmpty) {
    show_run(nullptr);
    EXPECT_EQ(view()->model()->rowCount(), 0);
    EXPECT_EQ(count(), "No run is open.");
}

TEST_F(OpTableTest, ItsModelsKeepTheRulesOfModels) {
    const auto fatal = QAbstractItemModelTester::FailureReportingMode::Fatal;
    const QAbstractItemModelTester proxy(view()->model(), fatal);
    const QAbstractItemModelTester model(panel_.findChild<OpTableModel*>(), fatal);
    type("B");
    settle([&] { view()->sortByColumn(4, Qt::DescendingOrder); });
    show_run(run_);
    show_run(nullptr);
}

TEST_F(OpTableTest, TheLastThingAskedForWins) {
    auto* const proxy = panel_.findChild<OpFilterProxy*>();
    settle([&] {
        for (const char* const text : {"F", "B", "OPT", "1F0"}) {
            proxy->set_filter(*parse_filter(text));
        }
    });
    ASSERT_EQ(proxy->rowCount(), 2);
    EXPECT_EQ(cell(0, OpColumn::Action), "1F0");
}

TEST_F(OpTableTest, MayGoWhileAWorkerIsBusy) {
    auto* const panel = new OpTablePanel(&selection_);
    panel->show_run(run_);
    delete panel;
    QTest::qWait(1);
}

}  // namespace op_table_test
}  // namespace pipetwin::gui
