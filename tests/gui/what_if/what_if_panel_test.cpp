// SPDX-License-Identifier: Apache-2.0
#include "gui/what_if/what_if_panel.h"

#include <QComboBox>
#include <QDoubleSpinBox>
#include <QLabel>
#include <QPushButton>
#include <QSlider>
#include <QSpinBox>
#include <QUndoStack>
#include <QtTest>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gui/view/analysis/action_details.h"
#include "gui/view/what_if/what_if.h"
#include "gui/what_if/partition_editor.h"
#include "sim/calibration/step_range.h"
#include "tests/gui/canned.h"
#include "tests/gui/what_if_runs.h"

namespace pipetwin::gui {
namespace what_if_panel_test {

using ::testing::ElementsAre;

std::shared_ptr<const RunData> panel_run(const std::vector<std::string>& keys = {}) {
    std::vector<std::string> all{"training.batch = 8",
                                 "pipeline.stages = 2",
                                 "pipeline.micro_batches = 4",
                                 "pipeline.recompute = \"none\""};
    all.insert(all.end(), keys.begin(), keys.end());
    return run_of(weighted_profile({1, 1, 1, 1, 4, 4}), all, 1);
}

class WhatIfPanelTest : public ::testing::Test {
  protected:
    WhatIfPanelTest() {
        panel.resize(360, 800);
        QObject::connect(&panel, &WhatIfPanel::settled, [this] { ++settled; });
        QObject::connect(
            &panel, &WhatIfPanel::run_changed, [this](const std::shared_ptr<const RunData>& run) {
                drawn.push_back(run);
            });
    }

    void show(std::shared_ptr<const RunData> run) {
        settled = 0;
        panel.show_run(std::move(run));
        wait();
    }

    /// For the next result, unless it has come.
    void wait() {
        ASSERT_TRUE(QTest::qWaitFor([this] { return settled > 0; }));
        settled = 0;
    }

    template <class Widget>
    Widget* named(const QString& name) {
        for (Widget* const widget : panel.findChildren<Widget*>()) {
            if (widget->accessibleName() == name) {
                return widget;
            }
        }
        ADD_FAILURE() << "no control is called " << name.toStdString();
        return nullptr;
    }

    Selection selection;
    WhatIfPanel panel{&selection};
    int settled = 0;
    std::vector<std::shared_ptr<const RunData>> drawn;
};

/// The controls are scrolled instead.
TEST_F(WhatIfPanelTest, WhatComesOfItIsSeenInALowWindow) {
    panel.resize(panel.minimumSizeHint().width(), 340);
    panel.show();
    show(panel_run());
    QApplication::processEvents();
    for (const char* const name : {"Step", "Bubble", "Throughput", "Peak memory"}) {
        const QLabel* const value = named<QLabel>(name);
        ASSERT_NE(value, nullptr);
        EXPECT_TRUE(value->isVisible()) << name;
        EXPECT_TRUE(panel.rect().contains(QRect(value->mapTo(&panel, QPoint(0, 0)), value->size())))
            << name;
    }
}

TEST_F(WhatIfPanelTest, BeginsWithTheSettingsOfTheRunAndDrawsNothingAnew) {
    show(panel_run());
    EXPECT_EQ(named<QSpinBox>("Ranks (K)")->value(), 2);
    EXPECT_EQ(named<QSpinBox>("Micro-batches (M)")->value(), 4);
    EXPECT_EQ(named<QComboBox>("Schedule")->currentText(), "gpipe");
    EXPECT_EQ(named<QDoubleSpinBox>("Link bandwidth")->text(), "unchanged");
    EXPECT_TRUE(drawn.empty());
    EXPECT_FALSE(panel.undo_stack()->canUndo());
    // Balanced is 1 1 1 1 | 4 4. With F = 4 and 8 and B twice that, T = 4 + 4 * 8 + 4 * 16 + 8 =
    // 108, and 4 * (12 + 24) = 144 of 2 * 108 are work.
    EXPECT_EQ(named<QLabel>("Bubble")->text(), "33.3 %");
}

/// T = 108 (below) in units of a forward of two samples, 216 ms; a measured step may be as far off
/// as published runs are.
TEST_F(WhatIfPanelTest, SaysWhereAMeasuredStepIsToBeExpected) {
    Profile profile = weighted_profile({1, 1, 1, 1, 4, 4});
    const std::vector<std::string> keys{"training.batch = 8",
                                        "pipeline.stages = 2",
                                        "pipeline.micro_batches = 4",
                                        "pipeline.recompute = \"none\""};
    const ErrorRange range = estimate_error({});
    const std::string expected =
        " (likely " + sim::range_text(std::chrono::milliseconds(216), range) + ")";
    profile.source = CostSource::Estimated;
    const auto estimated = run_of(profile, keys);
    show(estimated);
    EXPECT_EQ(named<QLabel>("Step")->text().toStdString(), "216 ms" + expected);
    EXPECT_EQ(expected_range(*estimated), expected);
    profile.source = CostSource::Measured;
    const auto measured = run_of(profile, keys);
    show(measured);
    EXPECT_EQ(named<QLabel>("Step")->text().toStdString(), "216 ms");
    EXPECT_EQ(expected_range(*measured), "");
}

TEST_F(WhatIfPanelTest, ChangesAreDrawnAndCanBeUndone) {
    const auto run = panel_run();
    show(run);
    named<QSpinBox>("Micro-batches (M)")->setValue(8);
    wait();
    ASSERT_EQ(drawn.size(), 1U);
    EXPECT_EQ(drawn.back()->micro_batches, 8);
    EXPECT_EQ(named<QSlider>("Micro-batches (M)")->value(), 8);
    panel.undo_stack()->undo();
    wait();
    EXPECT_EQ(panel.settings().micro_batches, 4);
    EXPECT_EQ(drawn.back(), run) << "with nothing turned, it is the run itself";
    panel.undo_stack()->redo();
    wait();
    EXPECT_EQ(drawn.back()->micro_batches, 8);
}

TEST_F(WhatIfPanelTest, ADragIsOneChange) {
    show(panel_run());
    auto* const slider = named<QSlider>("Micro-batches (M)");
    slider->setSliderDown(true);
    for (const int value : {5, 6, 7}) {
        slider->setValue(value);
    }
    slider->setSliderDown(false);
    EXPECT_EQ(panel.undo_stack()->count(), 1);
    slider->setSliderDown(true);
    slider->setValue(2);
    slider->setSliderDown(false);
    EXPECT_EQ(panel.undo_stack()->count(), 2);
    panel.undo_stack()->undo();
    EXPECT_EQ(panel.settings().micro_batches, 7);
    panel.undo_stack()->undo();
    EXPECT_EQ(panel.settings().micro_batches, 4);
}

TEST_F(WhatIfPanelTest, KeysTurnTheSliders) {
    show(panel_run());
    auto* const slider = named<QSlider>("Ranks (K)");
    QTest::keyClick(slider, Qt::Key_Right);
    EXPECT_EQ(panel.settings().stages, 3);
    QTest::keyClick(slider, Qt::Key_Right);
    EXPECT_EQ(panel.settings().stages, 4);
    panel.undo_stack()->undo();
    EXPECT_EQ(panel.settings().stages, 3) << "each key is a change of its own";
}

TEST_F(WhatIfPanelTest, ResetCanBeUndoneToo) {
    show(panel_run());
    panel.choose(3, 8);
    named<QDoubleSpinBox>("Link latency")->setValue(50);
    panel.reset();
    EXPECT_EQ(panel.settings(), panel.source()->settings());
    panel.undo_stack()->undo();
    EXPECT_EQ(panel.settings().stages, 3);
    EXPECT_EQ(panel.settings().latency_us, 50);
}

TEST_F(WhatIfPanelTest, WhatCannotBePlannedLeavesWhatIsDrawn) {
    show(panel_run());
    panel.choose(3, 8);
    wait();
    const std::size_t before = drawn.size();
    named<QComboBox>("Schedule")->setCurrentText("naive");  // takes one micro-batch
    wait();
    EXPECT_EQ(drawn.size(), before);
    // It was once set on a label that nobody saw.
    EXPECT_FALSE(named<QLabel>("What-if")->isHidden());
    EXPECT_TRUE(named<QLabel>("What-if")->text().startsWith("Infeasible: "));
    EXPECT_TRUE(
        named<QLabel>("What-if")->text().contains("The timeline shows the last feasible what-if."));
    EXPECT_TRUE(named<QLabel>("Step")->isHidden() ||
                named<QLabel>("Step")->parentWidget()->isHidden());
}

TEST_F(WhatIfPanelTest, AScheduleComesWithItsChunks) {
    show(panel_run());
    named<QComboBox>("Schedule")->setCurrentText("zb-v");
    EXPECT_EQ(panel.settings().chunks, 2);
    wait();
    ASSERT_FALSE(drawn.empty());
    EXPECT_EQ(drawn.back()->schedule_name, "zb-v");
}

TEST_F(WhatIfPanelTest, CostsAreScaledStageByStage) {
    show(panel_run());
    named<QSpinBox>("Stage whose costs are scaled")->setValue(1);
    auto* const scale = named<QDoubleSpinBox>("Scale of the stage's costs");
    scale->setValue(2);
    EXPECT_THAT(panel.settings().cost_scale, ElementsAre(1, 2));
    named<QSpinBox>("Stage whose costs are scaled")->setValue(0);
    EXPECT_EQ(scale->value(), 1);
    EXPECT_EQ(panel.undo_stack()->count(), 1) << "to look at another stage is no change";
}

// Layers of 1 1 1 1 4 4: 4 | 8 and 8 | 4 are as good as each other, and the earlier cut is taken.
TEST_F(WhatIfPanelTest, CutsMoveByKeysAndBalanceTakesThemBack) {
    show(panel_run());
    auto* const editor = panel.findChild<PartitionEditor*>();
    ASSERT_NE(editor, nullptr);
    EXPECT_THAT(editor->pieces(), ElementsAre(4, 2));
    QTest::keyClick(editor, Qt::Key_Left);
    wait();
    ASSERT_TRUE(panel.settings().partition);
    EXPECT_THAT(*panel.settings().partition, ElementsAre(3, 3));
    EXPECT_TRUE(editor->summary().contains("stage 1 with"));
    for (int i = 0; i < 3; ++i) {
        QTest::keyClick(editor, Qt::Key_Right);
    }
    EXPECT_THAT(*panel.settings().partition, ElementsAre(5, 1)) << "no piece may be empty";
    for (QPushButton* const button : panel.findChildren<QPushButton*>()) {
        if (button->text().contains("Bala")) {
            button->click();
        }
    }
    EXPECT_FALSE(panel.settings().partition);
}

TEST_F(WhatIfPanelTest, APieceHasItsTimeWhereThatFits) {
    show(panel_run());
    auto* const editor = panel.findChild<PartitionEditor*>();
    std::ptrdiff_t least = 2;
    for (const int width : {400, 160, 110, 80, 60, 40, 20}) {
        editor->resize(width, 60);
        const std::vector<QString> labels = editor->time_labels();
        EXPECT_EQ(labels.size(), editor->pieces().size());
        int sum = 0;
        for (const QString& label : labels) {
            sum += editor->fontMetrics().horizontalAdvance(label);
        }
        EXPECT_LT(sum, width);
        const auto shown = std::ranges::count_if(labels, &QString::size);
        EXPECT_LE(shown, least) << "what fits a narrow one fits a wider one";
        least = shown;
    }
    EXPECT_EQ(least, 0);
    editor->resize(400, 60);
    bool says_unit =
        false;  // beside the bar: below a narrow piece there is room for a number alone
    for (const QLabel* const label : panel.findChildren<QLabel*>()) {
        says_unit = says_unit || label->text() == "&Partition (times in ms, without dispatch)";
    }
    EXPECT_TRUE(says_unit);
}

/// A stage that is too narrow for its time took the times of all others away.
TEST_F(WhatIfPanelTest, OnlyTheTimeOfANarrowPieceIsLeftOut) {
    using std::chrono::microseconds;
    PartitionEditor editor;
    editor.resize(400, 60);
    editor.show_partition({{.name = "a", .time = microseconds(1)},
                           {.name = "b", .time = microseconds(5000)},
                           {.name = "c", .time = microseconds(4000)}},
                          {1, 1, 1});
    EXPECT_EQ(editor.time_labels(), (std::vector<QString>{"", "5.00", "4.00"}));
}

TEST_F(WhatIfPanelTest, CutsCanBeDragged) {
    show(panel_run());
    auto* const editor = panel.findChild<PartitionEditor*>();
    editor->resize(330, 60);
    const int y = 20;
    const QPoint cut(editor->place_of_cut(0), y);
    QTest::mousePress(editor, Qt::LeftButton, {}, cut);
    QTest::mouseMove(editor, QPoint(editor->width() / 3, y));
    QTest::mouseMove(editor, QPoint(6, y));
    QTest::mouseRelease(editor, Qt::LeftButton, {}, QPoint(6, y));
    ASSERT_TRUE(panel.settings().partition);
    EXPECT_THAT(*panel.settings().partition, ElementsAre(1, 5));
    EXPECT_EQ(panel.undo_stack()->count(), 1);
}

TEST_F(WhatIfPanelTest, ARunWithoutWhatIfsSaysWhy) {
    RunData run = canned_run();
    run.schedule_name = "mine.csv";
    show(std::make_shared<const RunData>(std::move(run)));
    EXPECT_TRUE(named<QLabel>("What-if")->text().contains("mine.csv"));
    show(nullptr);
    EXPECT_EQ(named<QLabel>("What-if")->text(), "No run is open.");
}

/// The page of the glossary promised it of the whole window.
TEST_F(WhatIfPanelTest, WordsOfTheGlossaryAreExplainedWhereTheyArePointedAt) {
    for (const char* const word : {"Step", "Pipeline", "Bubble", "Peak memory"}) {
        const auto labels = panel.findChildren<QLabel*>();
        EXPECT_TRUE(std::ranges::any_of(labels, [&](const QLabel* label) {
            return label->text() == QLatin1String(word) && label->toolTip().contains(": ");
        })) << word;
    }
}

TEST_F(WhatIfPanelTest, EveryControlHasAName) {
    show(panel_run());
    for (QWidget* const control : panel.findChildren<QWidget*>()) {
        const bool is_control = qobject_cast<QSlider*>(control) != nullptr ||
                                qobject_cast<QAbstractSpinBox*>(control) != nullptr ||
                                qobject_cast<QComboBox*>(control) != nullptr ||
                                qobject_cast<PartitionEditor*>(control) != nullptr;
        if (is_control) {
            EXPECT_FALSE(control->accessibleName().isEmpty()) << control->metaObject()->className();
        }
    }
}

TEST_F(WhatIfPanelTest, KnowsLinkRowsWhereTheyAreShown) {
    show(panel_run());
    named<QSlider>("Micro-batches (M)")->setValue(8);
    wait();
    EXPECT_FALSE(linked_side(drawn.back()->twin));
    panel.show_links(true);
    wait();
    EXPECT_EQ(drawn.back()->micro_batches, 8);
    EXPECT_EQ(linked_side(drawn.back()->twin), Side::Predicted);
    named<QSlider>("Micro-batches (M)")->setValue(2);
    wait();
    EXPECT_EQ(linked_side(drawn.back()->twin), Side::Predicted);
}

TEST(SimulationController, TheLastOfManyWishesComes) {
    SimulationController controller;
    controller.show_run(panel_run());
    std::vector<WhatIf> results;
    QObject::connect(&controller,
                     &SimulationController::simulated,
                     [&](const WhatIfResult& result) { results.push_back(result.settings); });
    WhatIf settings = controller.source()->settings();
    for (const int micro_batches : {1, 2, 3, 5, 7, 8}) {
        settings.micro_batches = micro_batches;
        controller.want(settings);
    }
    ASSERT_TRUE(QTest::qWaitFor([&] { return !controller.is_working() && !results.empty(); }));
    EXPECT_EQ(results.back(), settings);
    EXPECT_EQ(results.size(), 1U) << "what was outdated does not come";
}

TEST(SimulationController, NothingComesAfterItsEnd) {
    int results = 0;
    {
        SimulationController controller;
        controller.show_run(panel_run());
        QObject::connect(&controller, &SimulationController::simulated, [&] { ++results; });
        controller.want(controller.source()->settings());
    }
    QTest::qWait(1);
    QCoreApplication::processEvents();
    EXPECT_EQ(results, 0);
}

}  // namespace what_if_panel_test
}  // namespace pipetwin::gui
