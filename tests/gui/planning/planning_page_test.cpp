// SPDX-License-Identifier: Apache-2.0
#include "gui/planning/planning_page.h"

#include <QAbstractItemModelTester>
#include <QApplication>
#include <QLabel>
#include <QLineEdit>
#include <QPushButton>
#include <QSignalSpy>
#include <QTest>
#include <QThreadPool>
#include <QTreeView>
#include <gtest/gtest.h>

#include "gui/base/workers.h"
#include "gui/planning/plan_table.h"
#include "gui/planning/planning_form.h"
#include "gui/timeline/timeline_view.h"
#include "gui/view/planning/planning.h"

namespace pipetwin::gui {
namespace planning_page_test {

class PlanningPageTest : public ::testing::Test {
  protected:
    PlanningPageTest() {
        page_.resize(1280, 680);
        page_.show();
        page_.form().set_model("llama-3-8b");
        page_.form().set_cluster("8x-h100-sxm");
        line("Tokens per sample")->setText("8192");
        line("Tokens per step")->setText("32k");
    }

    QLineEdit* line(const char* name) {
        for (QLineEdit* const one : page_.findChildren<QLineEdit*>()) {
            if (one->accessibleName() == QLatin1String(name)) {
                return one;
            }
        }
        return nullptr;
    }

    QPushButton* button(const char* text) {
        for (QPushButton* const one : page_.findChildren<QPushButton*>()) {
            if (one->text() == QLatin1String(text)) {
                return one;
            }
        }
        return nullptr;
    }

    bool says(const QString& text) {
        for (const QLabel* const label : page_.findChildren<QLabel*>()) {
            if (label->isVisible() && label->text().contains(text)) {
                return true;
            }
        }
        return false;
    }

    void plan() {
        QSignalSpy shown(&page_, &PlanningPage::plan_shown);
        QTest::mouseClick(button("&Plan"), Qt::LeftButton);
        ASSERT_TRUE(!shown.isEmpty() || shown.wait(120'000));
    }

    PlanningPage page_;
};

TEST_F(PlanningPageTest, AnswersWithASortedTableAndOpensAPlan) {
    const QAbstractItemModelTester tester(&page_.table(),
                                          QAbstractItemModelTester::FailureReportingMode::Fatal);
    plan();
    PlanTable& table = page_.table();
    ASSERT_GT(table.rowCount(), 1);
    EXPECT_EQ(table.plan_at(0), 0U) << "the fastest first";
    EXPECT_TRUE(says("llama-3-8b on 8x-h100-sxm"));
    EXPECT_TRUE(says("Nearest published run"));
    int memory = -1;
    for (int column = 0; column < table.columnCount(); ++column) {
        const QString head = table.headerData(column, Qt::Horizontal, Qt::DisplayRole).toString();
        memory = head == "Peak memory" ? column : memory;
    }
    ASSERT_GE(memory, 0);
    table.sort(memory, Qt::AscendingOrder);
    for (int row = 1; row < table.rowCount(); ++row) {
        EXPECT_LE(page_.answer()->rows[table.plan_at(row - 1)].plan.peak,
                  page_.answer()->rows[table.plan_at(row)].plan.peak);
    }
    QSignalSpy wanted(&page_, &PlanningPage::run_wanted);
    QTest::mouseClick(button("Open with all panels"), Qt::LeftButton);
    ASSERT_EQ(wanted.count(), 1);
    EXPECT_NE(page_.timeline().scene().run, nullptr);
    EXPECT_TRUE(page_.timeline().shows_memory());
}

TEST_F(PlanningPageTest, ASelectedRowIsShownOverTime) {
    plan();
    auto* const view = page_.findChild<QTreeView*>();
    QTreeView* plans = nullptr;
    for (QTreeView* const one : page_.findChildren<QTreeView*>()) {
        plans = one->model() == &page_.table() ? one : plans;
    }
    ASSERT_NE(plans, nullptr) << view;
    const int last = page_.table().rowCount() - 1;
    QSignalSpy shown(&page_, &PlanningPage::plan_shown);
    plans->setCurrentIndex(page_.table().index(last, 0));
    ASSERT_TRUE(!shown.isEmpty() || shown.wait(20'000));
    EXPECT_EQ(page_.seen()->run->predicted->step,
              page_.answer()->rows[page_.table().plan_at(last)].plan.step);
}

TEST_F(PlanningPageTest, CancelEndsTheQuestion) {
    page_.form().set_model("llama-3-70b");
    page_.form().set_nodes(8);
    line("Tokens per step")->clear();
    QSignalSpy settled(&page_, &PlanningPage::settled);
    QTest::mouseClick(button("&Plan"), Qt::LeftButton);
    EXPECT_TRUE(page_.is_busy());
    EXPECT_TRUE(button("Cancel")->isEnabled());
    QTest::mouseClick(button("Cancel"), Qt::LeftButton);
    ASSERT_TRUE(!settled.isEmpty() || settled.wait(120'000));
    EXPECT_TRUE(page_.answer()->ended_early);
    EXPECT_TRUE(says("Cancelled"));
}

TEST_F(PlanningPageTest, ANumberThatIsNotUnderstoodIsNamed) {
    line("Tokens per step")->setText("4 millions");
    QTest::mouseClick(button("&Plan"), Qt::LeftButton);
    EXPECT_FALSE(page_.is_busy());
    EXPECT_TRUE(says("Tokens per step: '4 millions', expected a number above 0, such as 4M"));
}

TEST_F(PlanningPageTest, AScenarioSaysTheRestItself) {
    page_.form().set_model("mine.toml");
    EXPECT_FALSE(line("Tokens per step")->isEnabled());
    page_.form().set_model("llama-3-8b");
    EXPECT_TRUE(line("Tokens per step")->isEnabled());
}

}  // namespace planning_page_test
}  // namespace pipetwin::gui
