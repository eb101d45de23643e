// SPDX-License-Identifier: Apache-2.0
#include "gui/playground/playground_page.h"

#include <algorithm>

#include <QApplication>
#include <QComboBox>
#include <QDoubleSpinBox>
#include <QLabel>
#include <QLineEdit>
#include <QPushButton>
#include <QScrollArea>
#include <QSignalSpy>
#include <QSpinBox>
#include <QTableView>
#include <QTest>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/schedule/generators/generate.h"
#include "gui/playground/playground_controls.h"
#include "gui/timeline/timeline_view.h"

namespace pipetwin::gui {
namespace playground_page_test {

using ::testing::HasSubstr;

class PlaygroundPageTest : public ::testing::Test {
  protected:
    PlaygroundPageTest() {
        page_.resize(1280, 680);
        page_.show();
        QApplication::processEvents();
    }

    template <class Widget>
    Widget& control(const char* name) {
        for (Widget* const widget : page_.findChildren<Widget*>()) {
            if (widget->accessibleName() == QLatin1String(name)) {
                return *widget;
            }
        }
        throw std::runtime_error(std::string("no control ") + name);
    }

    template <class Act>
    void change(Act act) {
        QSignalSpy settled(&page_, &PlaygroundPage::settled);
        act();
        ASSERT_TRUE(!settled.isEmpty() || settled.wait(20'000));
    }

    std::string text_of_label(const char* name) {
        return control<QLabel>(name).text().replace(QChar::Nbsp, ' ').toStdString();
    }

    std::string cell(int row, int column) {
        const QAbstractItemModel* const model = page_.findChild<QTableView*>()->model();
        return model->index(row, column).data().toString().toStdString();
    }

    PlaygroundPage page_;
};

/// 1f1b with K 4 and M 8: the bubble is 3 / 11.
TEST_F(PlaygroundPageTest, BeginsWithAStepItsBubbleAndTheFormulaWithItsNumbers) {
    ASSERT_NE(page_.step(), nullptr);
    EXPECT_EQ(page_.timeline().scene().run, page_.step()->run.get());
    EXPECT_THAT(text_of_label("Bubble as simulated"), HasSubstr("27.3 %"));
    EXPECT_EQ(text_of_label("Bubble by the formula"), "(K - 1) / (M + K - 1) = 3 / 11 = 27.3 %");
    EXPECT_THAT(text_of_label("Largest cause of idle time"),
                HasSubstr("The only cause is fill and drain"));
    EXPECT_EQ(cell(0, 4), "4 of 8") << "rank 0 keeps K micro-batches";
    EXPECT_THAT(cell(0, 1), HasSubstr("Rank 0 waits"));
}

TEST_F(PlaygroundPageTest, EveryScheduleCanBeChosenAndIsShown) {
    auto& schedules = control<QComboBox>("Schedule");
    EXPECT_EQ(schedules.count(), static_cast<int>(known_schedules().size()));
    for (int i = 0; i < schedules.count(); ++i) {
        if (i == schedules.currentIndex()) {
            continue;
        }
        change([&] { schedules.setCurrentIndex(i); });
        ASSERT_NE(page_.step()->run, nullptr) << schedules.currentText().toStdString();
        EXPECT_EQ(page_.step()->settings.schedule, schedules.currentText().toStdString());
    }
}

/// A sentence that filled its column to the last pixel ended in dots.
TEST_F(PlaygroundPageTest, RowsHaveRoomForTheirSentences) {
    const auto* const table = page_.findChild<QTableView*>();
    auto& schedules = control<QComboBox>("Schedule");
    for (const char* const schedule : {"zb-h2", "zb-auto", "zb-v", "pipedream"}) {
        change([&] { schedules.setCurrentText(schedule); });
        for (int width = 1000; width < 1300; width += 3) {
            page_.resize(width, 680);
            QApplication::processEvents();
            for (int row = 0; row < table->model()->rowCount(); ++row) {
                constexpr int margins = 8;
                const QRect room(0, 0, table->columnWidth(1) - margins, 1000);
                const QString text = QString::fromStdString(cell(row, 1));
                const QRect needed =
                    table->fontMetrics().boundingRect(room, Qt::TextWordWrap, text);
                EXPECT_GE(table->rowHeight(row), needed.height())
                    << schedule << ", row " << row << ", width " << width;
            }
        }
    }
}

TEST_F(PlaygroundPageTest, TurningASizeShowsTheNewStepAndItsFormula) {
    change([&] { control<QSpinBox>("Micro-batches (M)").setValue(16); });
    EXPECT_THAT(text_of_label("Bubble by the formula"), HasSubstr("3 / 19 = 15.8 %"));
    change([&] { control<QSpinBox>("Ranks (K)").setValue(2); });
    EXPECT_EQ(page_.timeline().scene().run->twin.rank_count(), 2);
}

TEST_F(PlaygroundPageTest, OnlyTheLatestOfManyChangesIsShown) {
    auto& micro_batches = control<QSpinBox>("Micro-batches (M)");
    change([&] {
        for (int m = 9; m <= 64; ++m) {
            micro_batches.setValue(m);
        }
    });
    while (page_.step()->settings.micro_batches != 64) {
        QSignalSpy settled(&page_, &PlaygroundPage::settled);
        ASSERT_TRUE(settled.wait(20'000));
    }
    EXPECT_EQ(page_.step()->run->micro_batches, 64);
}

TEST_F(PlaygroundPageTest, VirtualStagesApplyWhereTheScheduleTakesSeveral) {
    auto& chunks = control<QSpinBox>("Chunks per rank (v)");
    EXPECT_FALSE(chunks.isEnabled());
    change([&] { control<QComboBox>("Schedule").setCurrentText("interleaved-1f1b"); });
    EXPECT_TRUE(chunks.isEnabled());
    EXPECT_EQ(chunks.value(), 2);
    EXPECT_THAT(text_of_label("Bubble by the formula"), HasSubstr("3 / 19"));
    change([&] { control<QComboBox>("Schedule").setCurrentText("zb-v"); });
    EXPECT_FALSE(chunks.isEnabled());
}

TEST_F(PlaygroundPageTest, UnevenStagesHaveNoClosedFormAndAreNamed) {
    auto& factors = control<QLineEdit>("Stage factors");
    change([&] {
        factors.setText("1, 1, 3, 1");
        emit factors.editingFinished();
    });
    EXPECT_THAT(text_of_label("Bubble by the formula"), HasSubstr("No formula"));
    EXPECT_THAT(text_of_label("Largest cause of idle time"), HasSubstr("is imbalance: rank 2"));
}

TEST_F(PlaygroundPageTest, FactorsThatAreNotUnderstoodAreNamedAndChangeNothing) {
    auto& factors = control<QLineEdit>("Stage factors");
    factors.setText("1 2");
    emit factors.editingFinished();
    EXPECT_TRUE(page_.controls().settings().factors.empty());
    QStringList texts;
    for (const QLabel* const label : page_.findChildren<QLabel*>()) {
        texts += label->text();
    }
    EXPECT_THAT(texts.join('\n').toStdString(), HasSubstr("Expected 4 numbers"));
}

TEST_F(PlaygroundPageTest, LatencyBecomesTheLargestCauseWhenItIs) {
    change([&] { control<QDoubleSpinBox>("Link latency (c)").setValue(5); });
    EXPECT_THAT(text_of_label("Largest cause of idle time"),
                HasSubstr("is communication: a message takes"));
}

TEST_F(PlaygroundPageTest, AClickedActionSaysWhyItWaited) {
    // The backward of micro-batch 0 on rank 0 waits for those of the later stages.
    const RunData& run = *page_.step()->run;
    const RowIndex& row = *run.twin.row(Side::Predicted, 0, 0);
    int backward = 0;
    while (row.action(backward).op != Op::Backward) {
        ++backward;
    }
    page_.timeline().go_to({.side = Side::Predicted, .step = 0, .rank = 0, .cell = backward});
    QStringList texts;
    for (const QLabel* const label : page_.findChildren<QLabel*>()) {
        texts += label->text().replace(QChar::Nbsp, ' ');
    }
    EXPECT_THAT(texts.join('\n').toStdString(), HasSubstr("0B0 waited"));
}

TEST_F(PlaygroundPageTest, ResetGivesTheFirstSettingsBack) {
    change([&] { control<QSpinBox>("Ranks (K)").setValue(7); });
    change([&] { page_.controls().set_settings({}); });
    EXPECT_EQ(page_.controls().settings(), PlaygroundSettings{});
}

/// 64 typed into a box up to 32 became 6.
TEST_F(PlaygroundPageTest, ANumberAboveTheLimitBecomesTheLimitWhichTheTooltipNames) {
    auto& ranks = control<QSpinBox>("Ranks (K)");
    QApplication::setActiveWindow(&page_);
    change([&] {
        ranks.setFocus();
        ranks.selectAll();
        QTest::keyClicks(&ranks, "64");
        QTest::keyClick(&ranks, Qt::Key_Return);
    });
    EXPECT_EQ(page_.controls().settings().stages, most_playground_stages);
    EXPECT_THAT(ranks.toolTip().toStdString(), HasSubstr("(1 to 32)"));
}

/// `naive` allows one micro-batch alone. The next schedule has the typed number of them again.
TEST_F(PlaygroundPageTest, NumbersThatAScheduleDoesNotAllowComeBackWithTheNextOne) {
    auto& schedules = control<QComboBox>("Schedule");
    const auto& settings = page_.controls().settings();
    change([&] { schedules.setCurrentText("naive"); });
    EXPECT_EQ(settings.micro_batches, 1);
    change([&] { schedules.setCurrentText("gpipe"); });
    EXPECT_EQ(settings.micro_batches, 8);
    change([&] { schedules.setCurrentText("interleaved-1f1b"); });
    change([&] { control<QSpinBox>("Chunks per rank (v)").setValue(4); });
    change([&] { schedules.setCurrentText("1f1b"); });
    EXPECT_EQ(settings.chunks, 1);
    change([&] { schedules.setCurrentText("looped-bfs"); });
    EXPECT_EQ(settings.chunks, 4);
    EXPECT_EQ(settings.micro_batches, 8);
}

TEST_F(PlaygroundPageTest, WordsOfTheGlossaryAreExplainedWhereTheyArePointedAt) {
    const QAbstractItemModel* const table = page_.findChild<QTableView*>()->model();
    EXPECT_THAT(table->headerData(4, Qt::Horizontal, Qt::ToolTipRole).toString().toStdString(),
                HasSubstr("stashed: the largest number of stashes"));
    EXPECT_THAT(control<QLabel>("Largest cause of idle time").toolTip().toStdString(),
                HasSubstr("fill and drain: idle time that would remain"));
    change([&] { control<QDoubleSpinBox>("Link latency (c)").setValue(5); });
    EXPECT_THAT(control<QLabel>("Largest cause of idle time").toolTip().toStdString(),
                HasSubstr("communication wait: "));
}

TEST_F(PlaygroundPageTest, TheStepCanBeShownWithAllPanels) {
    std::shared_ptr<const RunData> wanted;
    QObject::connect(&page_, &PlaygroundPage::run_wanted, [&](const auto& run) { wanted = run; });
    for (QPushButton* const button : page_.findChildren<QPushButton*>()) {
        if (button->text() == "Show all panels") {
            QTest::mouseClick(button, Qt::LeftButton);
        }
    }
    EXPECT_EQ(wanted, page_.step()->run);
}

/// At a fixed width of the settings, larger fonts cut their fields.
TEST_F(PlaygroundPageTest, SettingsAreWholeInALargeFont) {
    const auto is_whole = [](const QWidget& widget) {
        return widget.width() >= widget.minimumSizeHint().width();
    };
    const auto settings_are_whole = [&] {
        const QScrollArea& area = *page_.findChild<QScrollArea*>();
        const QList<QLabel*> labels = page_.controls().findChildren<QLabel*>();
        return area.viewport()->width() >= page_.controls().width() &&
               std::ranges::all_of(labels, [&](const QLabel* label) {
                   return label->buddy() == nullptr ||
                          (is_whole(*label) && is_whole(*label->buddy()));
               });
    };
    for (const int points : {9, 16, 20}) {
        QFont font = page_.font();
        font.setPointSize(points);
        page_.setFont(font);
        EXPECT_TRUE(QTest::qWaitFor(settings_are_whole)) << points;
    }
}

}  // namespace playground_page_test
}  // namespace pipetwin::gui
