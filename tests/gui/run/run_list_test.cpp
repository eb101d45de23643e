// SPDX-License-Identifier: Apache-2.0
#include "gui/run/run_list.h"

#include <algorithm>

#include <QAbstractItemModelTester>
#include <QApplication>
#include <QHeaderView>
#include <QPushButton>
#include <QSignalSpy>
#include <QTableView>
#include <QTest>
#include <gtest/gtest.h>

#include "core/base/short_number.h"
#include "tests/gui/canned.h"
#include "tests/gui/panels.h"
#include "tests/gui/what_if_runs.h"

namespace pipetwin::gui {
namespace run_list_test {

RunData run_at(const char* path, int micro_batches) {
    RunData run = canned_run({.ranks = 2, .micro_batches = micro_batches, .jitter = 0.1});
    run.path = path;
    return run;
}

class RunListTest : public ::testing::Test {
  protected:
    QString text(int row, RunListModel::Column column) const {
        return model_.index(row, column).data().toString();
    }

    RunListModel model_;
    QAbstractItemModelTester tester_{&model_,
                                     QAbstractItemModelTester::FailureReportingMode::Fatal};
};

TEST_F(RunListTest, HoldsEachRunOnce) {
    model_.add(run_at("runs/a", 3));
    model_.add(run_at("runs/b", 6));
    model_.add(run_at("runs/a", 4));
    ASSERT_EQ(model_.rowCount(), 2);
    EXPECT_EQ(text(0, RunListModel::Name), "a");
    EXPECT_TRUE(text(0, RunListModel::Plan).contains("4 micro-batches"));
}

/// Only the first file of such a run was opened again.
TEST_F(RunListTest, ARunOfSeveralFilesIsOpenedFromAllOfThem) {
    RunData over = run_at("plan.csv", 3);
    over.over = {"traces/rank0.json"};
    model_.add(run_at("plan.csv", 3));
    model_.add(over);
    ASSERT_EQ(model_.rowCount(), 2);
    EXPECT_EQ(text(1, RunListModel::Name), "plan.csv + rank0.json");
    EXPECT_EQ(model_.runs()[1].paths,
              (std::vector<std::filesystem::path>{"plan.csv", "traces/rank0.json"}));
}

TEST_F(RunListTest, SaysWhichRunsWereEmulated) {
    RunData run = run_at("a", 3);
    model_.add(run);
    EXPECT_FALSE(text(0, RunListModel::MeasuredStep).contains("emulated"));
    run.measured->origin = Origin::Emulated;
    model_.add(run);
    EXPECT_TRUE(text(0, RunListModel::MeasuredStep).endsWith(" (emulated)"));
}

TEST_F(RunListTest, TheBubbleIsThatOfGPipe) {
    const RunHeadline headline = headline_of(run_at("a", 3));
    EXPECT_DOUBLE_EQ(*headline.predicted_bubble, 1.0 / 4);  // (K - 1) / (K - 1 + M)
}

TEST_F(RunListTest, DiffersFromTheBaselineByTheMeasuredStep) {
    const RunData a = run_at("a", 3);
    const RunData b = run_at("b", 6);
    model_.add(a);
    model_.add(b);
    EXPECT_EQ(text(0, RunListModel::ToBaseline), "baseline");
    const double longer = 100 * (to_seconds(b.measured->step) / to_seconds(a.measured->step) - 1);
    EXPECT_EQ(text(1, RunListModel::ToBaseline),
              QString::fromStdString("+" + short_percent(longer / 100)));
    model_.set_baseline(1);
    EXPECT_EQ(text(1, RunListModel::ToBaseline), "baseline");
    EXPECT_TRUE(text(0, RunListModel::ToBaseline).startsWith("-"));
}

/// GPipe's step grows by less than its micro-batches, as its bubble shrinks: two ranks take
/// (M + 1) (F + B) + OPT, 3 (M + 1) + 0.5 ms.
TEST_F(RunListTest, RunsOfDifferentMiniBatchesCompareByTheirThroughput) {
    for (const int micro_batches : {3, 7}) {
        RunData run = canned_run({.ranks = 2, .micro_batches = micro_batches});
        run.path = std::to_string(micro_batches);
        model_.add(run);
    }
    EXPECT_EQ(text(0, RunListModel::PerSecondToBaseline), "baseline");
    EXPECT_EQ(text(0, RunListModel::PerSecond), "240 micro-batches/s");  // 3 in 12.5 ms
    EXPECT_EQ(text(1, RunListModel::PerSecondToBaseline), "+19.0 %");    // 7 in 24.5 ms
}

TEST_F(RunListTest, TakingTheBaselineOffMakesTheFirstOneIt) {
    for (const char* const path : {"a", "b", "c"}) {
        model_.add(run_at(path, 3));
    }
    model_.set_baseline(2);
    model_.remove(0);
    EXPECT_EQ(model_.baseline(), 1);
    model_.remove(1);
    EXPECT_EQ(model_.baseline(), 0);
    model_.remove(0);
    EXPECT_EQ(model_.rowCount(), 0);
    model_.remove(0);
}

TEST(CompareRunsPanelTest, OpensARunAgainByKeyAndMakesItTheBaseline) {
    CompareRunsPanel panel;
    panel.resize(900, 200);
    panel.add(run_at("a", 3));
    panel.add(run_at("b", 4));
    panel.show();
    auto* const table = panel.findChild<QTableView*>();
    QSignalSpy wanted(&panel, &CompareRunsPanel::open_wanted);
    table->setCurrentIndex(table->model()->index(1, 0));
    QTest::keyClick(table, Qt::Key_Return);
    ASSERT_EQ(wanted.count(), 1);
    panel.make_baseline(run_at("b", 4));
    EXPECT_EQ(panel.model().baseline(), 1);
}

TEST(CompareRunsPanelTest, ItsButtonsAreAboutTheChosenRun) {
    CompareRunsPanel panel;
    for (const char* const path : {"a", "b", "c"}) {
        panel.add(run_at(path, 3));
    }
    panel.show();
    auto* const table = panel.findChild<QTableView*>();
    std::vector<std::string> wanted;
    const auto take = [&](const RunHeadline& run) { wanted.push_back(run.paths.front().string()); };
    QObject::connect(&panel, &CompareRunsPanel::baseline_wanted, take);
    QObject::connect(&panel, &CompareRunsPanel::open_wanted, take);
    QObject::connect(&panel, &CompareRunsPanel::remove_wanted, take);
    table->setCurrentIndex(table->model()->index(2, 0));
    for (const char* const text : {"Make baseline", "Open", "Remove"}) {
        press(panel, text);
    }
    EXPECT_EQ(wanted, (std::vector<std::string>{"c", "c", "c"}));
    panel.make_baseline(run_at("b", 3));
    EXPECT_EQ(panel.model().baseline(), 1);
    panel.make_baseline(run_at("elsewhere", 3));
    EXPECT_EQ(panel.model().baseline(), 1);
    panel.remove(run_at("c", 3));
    EXPECT_EQ(panel.model().rowCount(), 2);
}

/// Their headings left the names two letters.
TEST(CompareRuns, HidesColumnsThatNoRunHas) {
    CompareRunsPanel panel;
    RunData predicted = run_at("a", 3);
    predicted.twin.measured.clear();
    predicted.measured.reset();
    predicted.comparison.reset();
    panel.add(predicted);
    const auto* const table = panel.findChild<QTableView*>();
    EXPECT_TRUE(table->isColumnHidden(RunListModel::MeasuredStep));
    EXPECT_TRUE(table->isColumnHidden(RunListModel::Error));
    EXPECT_TRUE(table->isColumnHidden(RunListModel::ToBaseline));
    EXPECT_FALSE(table->isColumnHidden(RunListModel::PredictedStep));
    panel.add(run_at("b", 3));
    EXPECT_FALSE(table->isColumnHidden(RunListModel::ToBaseline));
    EXPECT_FALSE(table->isColumnHidden(RunListModel::MeasuredStep));
    EXPECT_FALSE(table->isColumnHidden(RunListModel::Error));
}

/// At 1280 pixels the column of the names was "Ru", and no run had a name.
TEST(CompareRuns, NamesHaveRoomAndTheListIsScrolled) {
    CompareRunsPanel panel;
    for (const char* const path : {"runs/interleaved-with-four-chunks", "runs/b"}) {
        panel.add(run_at(path, 3));
    }
    const auto* const table = panel.findChild<QTableView*>();
    for (const int width : {500, 700, 2000}) {
        panel.resize(width, 200);
        panel.show();
        QApplication::processEvents();
        EXPECT_GE(table->columnWidth(RunListModel::Name),
                  table->fontMetrics().averageCharWidth() * 20)
            << width;
    }
    EXPECT_LE(table->horizontalHeader()->length(), table->viewport()->width())
        << "a wide list is not scrolled";
    EXPECT_GE(table->horizontalHeader()->length(), table->viewport()->width() - 1)
        << "and the names have the rest";
}

TEST(CompareRuns, ButtonsNeedARun) {
    CompareRunsPanel panel;
    const auto are_enabled = [&] {
        const auto buttons = panel.findChildren<QPushButton*>();
        return std::ranges::all_of(buttons, &QPushButton::isEnabled);
    };
    const auto any_is_enabled = [&] {
        const auto buttons = panel.findChildren<QPushButton*>();
        return std::ranges::any_of(buttons, &QPushButton::isEnabled);
    };
    EXPECT_FALSE(any_is_enabled());
    panel.add(run_at("a", 3));
    auto* const table = panel.findChild<QTableView*>();
    table->setCurrentIndex(table->model()->index(0, 0));
    EXPECT_TRUE(are_enabled());
    panel.remove(run_at("a", 3));
    EXPECT_FALSE(any_is_enabled());
}

/// "+17520 %" stood beside a run of another model.
TEST(CompareRuns, RunsOfOtherModelsHaveNoDifference) {
    RunListModel model;
    const auto add = [&](const char* path, const std::vector<int>& weights) {
        RunData run =
            *run_of(weighted_profile(weights), {"training.batch = 8", "pipeline.stages = 2"});
        run.path = path;
        model.add(run);
    };
    add("a", {1, 1, 1, 1});
    add("same", {1, 1, 1, 1});
    add("other", {1, 1, 1, 1, 4, 4});
    const auto text = [&](int row, RunListModel::Column column, int role = Qt::DisplayRole) {
        return model.index(row, column).data(role).toString();
    };
    EXPECT_TRUE(text(1, RunListModel::ToBaseline).endsWith(" %"));
    for (const auto column : {RunListModel::ToBaseline, RunListModel::PerSecondToBaseline}) {
        EXPECT_EQ(text(2, column), QString(QChar(0x2013)));
        EXPECT_EQ(text(2, column, Qt::ToolTipRole), "Another model than the baseline's");
    }
}

}  // namespace run_list_test
}  // namespace pipetwin::gui
