// SPDX-License-Identifier: Apache-2.0
#include "gui/panels/critical_path_panel.h"

#include <random>

#include <QAbstractItemModelTester>
#include <QLabel>
#include <QSignalSpy>
#include <QTest>
#include <QTreeView>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/base/short_number.h"
#include "core/plan/plain_plan.h"
#include "core/schedule/generators/generate.h"
#include "gui/base/palette.h"
#include "gui/base/widget_style.h"
#include "tests/gui/canned.h"
#include "tests/gui/panels.h"
#include "tests/gui/planned.h"
#include "tests/support/plain_plan.h"

namespace pipetwin::gui {
namespace critical_path_panel_test {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

class CriticalPathPanelTest : public ::testing::Test {
  protected:
    CriticalPathPanelTest() {
        panel_.resize(1100, 300);
        panel_.show();
        QObject::connect(&panel_,
                         &CriticalPathPanel::critical_changed,
                         [this](const std::vector<SpanRef>& refs) { critical_ = refs; });
    }

    static std::shared_ptr<const RunData> run() {
        PlainCosts costs = pipetwin::testing::plain(ScheduleKind::OneFOneB, 3, 4);
        costs.link.latency = std::chrono::microseconds(200);
        const Plan plan = make_plan(costs);
        std::mt19937 random(3);
        return planned_run(plan, {jittered_step(plan, random), jittered_step(plan, random)});
    }

    void show_run(const std::shared_ptr<const RunData>& run) { show_settled(panel_, run); }

    QTreeView* view(const char* name) { return list_of(panel_, name); }

    std::string said() { return sentence_in(panel_); }

    std::vector<SpanRef> critical_;
    Selection selection_;
    CriticalPathPanel panel_{&selection_};
};

TEST_F(CriticalPathPanelTest, ShowsBothSidesAndTellsTheTimeline) {
    const auto shown = run();
    show_run(shown);
    const auto predicted = analysis_of(shown, Side::Predicted, 0);
    const auto measured = analysis_of(shown, Side::Measured, shown->main_step());
    EXPECT_EQ(critical_.size(),
              predicted->critical_path().size() + measured->critical_path().size());
    for (const SpanRef& ref : critical_) {
        EXPECT_EQ(ref.step, shown->main_step());
        EXPECT_TRUE(shown->twin.span(ref));
    }
    const auto* const model = view("Shares of the critical path")->model();
    EXPECT_EQ(model->columnCount(), 7);
    EXPECT_EQ(model->index(0, 0).data().toString(), "By kind");
    EXPECT_THAT(said(), HasSubstr("step. Predicted: "));
    EXPECT_THAT(said(), HasSubstr(" parts. Measured: "));
    EXPECT_EQ(model->headerData(1, Qt::Horizontal).toString(), "Predicted");
    EXPECT_EQ(model->headerData(4, Qt::Horizontal).toString(), "Measured, simulated");
    EXPECT_THAT(said(),
                HasSubstr(". The simulation with the measured durations and the predicted message "
                          "times takes " +
                          short_time(measured->replayed_length()) + ", in "));
    panel_.resize(1280, 150);
    QApplication::processEvents();
    for (const QTreeView* const list : panel_.findChildren<QTreeView*>()) {
        expect_whole_columns(*list);
    }
}

/// For want of a few pixels all three lists had a horizontal scroll bar.
TEST_F(CriticalPathPanelTest, ShowsAllOfItsListsInAWindowOf1280Pixels) {
    panel_.setStyleSheet(style_sheet(palette_of(Theme::Light)));
    panel_.resize(1280, 150);
    show_run(run());
    for (const char* const name :
         {"Shares of the critical path", "Predicted critical path", "Measured critical path"}) {
        expect_whole_columns(*view(name));
    }
    panel_.resize(1220, 150);  // here names are cut, and numbers are not
    QApplication::processEvents();
    for (const char* const name :
         {"Shares of the critical path", "Predicted critical path", "Measured critical path"}) {
        expect_whole_columns(*view(name), 1);
    }
}

TEST_F(CriticalPathPanelTest, FollowsTheStepOfTheSelection) {
    show_run(run());
    QSignalSpy settled(&panel_, &CriticalPathPanel::settled);
    const int other = 1 - critical_.front().step;
    selection_.set_span(SpanRef{.side = Side::Measured, .step = other});
    ASSERT_TRUE(!settled.isEmpty() || settled.wait(20'000));
    EXPECT_EQ(critical_.front().step, other);
}

TEST_F(CriticalPathPanelTest, EnterOnAnActionGoesThere) {
    const auto shown = run();
    show_run(shown);
    QTreeView* const path = view("Measured critical path");
    path->setFocus();
    path->setCurrentIndex(path->model()->index(0, 0));
    QTest::keyClick(path, Qt::Key_Down);
    QTest::keyClick(path, Qt::Key_Return);
    ASSERT_TRUE(selection_.span());
    EXPECT_EQ(to_string(shown->twin.span(*selection_.span())->action),
              path->model()->index(1, 0).data().toString().toStdString());
}

TEST_F(CriticalPathPanelTest, SaysWhatIsMissing) {
    show_run(std::make_shared<const RunData>(canned_run()));
    EXPECT_THAT(said(), HasSubstr("No file says which rank computes which stage"));
    EXPECT_THAT(critical_, IsEmpty());
    show_run(nullptr);
    EXPECT_THAT(said(), HasSubstr("No run is open"));
}

TEST_F(CriticalPathPanelTest, ItsModelsKeepTheRulesOfModels) {
    std::vector<std::unique_ptr<QAbstractItemModelTester>> testers;
    for (QTreeView* const view : panel_.findChildren<QTreeView*>()) {
        testers.push_back(std::make_unique<QAbstractItemModelTester>(
            view->model(), QAbstractItemModelTester::FailureReportingMode::Fatal));
    }
    ASSERT_EQ(testers.size(), 3U);
    show_run(run());
    show_run(std::make_shared<const RunData>(canned_run()));
    show_run(nullptr);
}

}  // namespace critical_path_panel_test
}  // namespace pipetwin::gui
