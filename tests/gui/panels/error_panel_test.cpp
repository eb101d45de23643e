// SPDX-License-Identifier: Apache-2.0
#include "gui/panels/error_panel.h"

#include <random>

#include <QAbstractItemModelTester>
#include <QApplication>
#include <QLabel>
#include <QSignalSpy>
#include <QTest>
#include <QTreeView>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/gui/canned.h"
#include "tests/gui/panels.h"

namespace pipetwin::gui {
namespace error_panel_test {

using ::testing::HasSubstr;

class ErrorPanelTest : public ::testing::Test {
  protected:
    ErrorPanelTest() {
        panel_.resize(1200, 300);
        panel_.show();
    }

    void show_run(const std::shared_ptr<const RunData>& run) { show_settled(panel_, run); }

    static std::shared_ptr<const RunData> jittered() {
        return std::make_shared<const RunData>(
            canned_run({.ranks = 3, .micro_batches = 4, .jitter = 0.1, .steps = 2}));
    }

    QTreeView* view(const char* name) { return list_of(panel_, name); }

    std::string said() { return sentence_in(panel_); }

    Selection selection_;
    ErrorPanel panel_{&selection_};
};

TEST_F(ErrorPanelTest, SaysWhichCostIsFurthestOffAndListsTheRest) {
    const auto run = jittered();
    show_run(run);
    EXPECT_EQ(said(), sentence_of(error_summary(*run)));
    EXPECT_EQ(view("Errors by kind and stage")->model()->rowCount(), 9);  // F, B, OPT; 3 stages
}

TEST_F(ErrorPanelTest, ShowsAllOfItsListsInAWindowOf1280Pixels) {
    const Palette palette = palette_of(Theme::Light);
    panel_.setStyleSheet(style_sheet(palette));
    panel_.resize(1280, 150);
    show_run(jittered());
    expect_whole_columns(*view("Errors by kind and stage"));
    expect_whole_columns(*view("Largest differences"));
}

/// A run whose steps end with sums of gradients over replicas, which take four times less than
/// predicted.
std::shared_ptr<const RunData> run_of_replicas() {
    const CannedShape shape{.ranks = 3, .micro_batches = 4, .jitter = 0.1};
    const auto set_of = [&shape](Origin origin) {
        Timeline step = canned_timeline(origin, shape);
        for (auto& row : step.ranks) {
            Span& last = row.back();
            last.action.op = Op::ReduceGradient;
            last.end += origin == Origin::Predicted ? 3 * (last.end - last.ready) : Duration{};
        }
        TimelineSet set;
        set.steps = {step};
        return set;
    };
    RunData run = canned_run(shape);
    run.twin.predicted = drawn_side(set_of(Origin::Predicted)).steps;
    run.twin.measured = drawn_side(set_of(Origin::Measured)).steps;
    run.comparison = compare(set_of(Origin::Predicted), set_of(Origin::Measured));
    return std::make_shared<const RunData>(std::move(run));
}

/// A run with replicas has kinds with long names, and its errors have three digits: "Count" was cut
/// to "Cou", and both lists had a horizontal scroll bar.
TEST_F(ErrorPanelTest, ShowsTheNumbersOfReplicasWhole) {
    const auto shown = run_of_replicas();
    panel_.setStyleSheet(style_sheet(palette_of(Theme::Light)));
    panel_.resize(1280, 150);
    show_run(shown);
    QTreeView* const costs = view("Errors by kind and stage");
    const QModelIndex first = costs->model()->index(0, 0);
    EXPECT_FALSE(costs->model()->match(first, Qt::DisplayRole, "gradient reduction").empty());
    expect_whole_columns(*costs);
    expect_whole_columns(*view("Largest differences"));
    panel_.resize(1200, 150);  // here the kinds are cut, and the numbers are not
    QApplication::processEvents();
    expect_whole_columns(*costs, 1);
    expect_whole_columns(*view("Largest differences"), 1);
}

TEST_F(ErrorPanelTest, SaysInFullWhatItsShortHeadingsMean) {
    show_run(jittered());
    const QAbstractItemModel& costs = *view("Errors by kind and stage")->model();
    const auto tip = [&costs](int column) {
        return costs.headerData(column, Qt::Horizontal, Qt::ToolTipRole).toString().toStdString();
    };
    EXPECT_EQ(costs.headerData(4, Qt::Horizontal).toString(), "Error");
    EXPECT_THAT(tip(4), HasSubstr("Error of medians"));
    EXPECT_THAT(tip(6), HasSubstr("mean absolute percentage error")) << "from the glossary";
    EXPECT_EQ(costs.headerData(7, Qt::Horizontal).toString(), "Per step");
    EXPECT_THAT(tip(7), HasSubstr("Difference per step"));
}

TEST_F(ErrorPanelTest, AClickOnAWorstActionGoesThere) {
    const auto run = jittered();
    show_run(run);
    QTreeView* const worst = view("Largest differences");
    QSignalSpy went(&panel_, &ErrorPanel::go_to);
    QTest::mouseClick(worst->viewport(),
                      Qt::LeftButton,
                      {},
                      worst->visualRect(worst->model()->index(1, 0)).center());
    ASSERT_TRUE(selection_.span());
    EXPECT_EQ(*selection_.span(), error_summary(*run).worst[1].ref);
    EXPECT_EQ(went.count(), 1);
}

TEST_F(ErrorPanelTest, EnterOnACostGoesToItsWorstAction) {
    const auto run = jittered();
    show_run(run);
    QTreeView* const costs = view("Errors by kind and stage");
    costs->setFocus();
    costs->setCurrentIndex(costs->model()->index(0, 0));
    QTest::keyClick(costs, Qt::Key_Down);
    QTest::keyClick(costs, Qt::Key_Return);
    ASSERT_TRUE(selection_.span());
    EXPECT_EQ(*selection_.span(), error_summary(*run).costs[1].worst);
}

TEST_F(ErrorPanelTest, PaintsErrorsInTheColoursOfTheirSigns) {
    show_run(jittered());
    view("Errors by kind and stage")->setCurrentIndex({});  // all of them
    const Palette palette = palette_of(Theme::Dark);
    panel_.set_colors(palette);
    auto* const histogram = panel_.findChild<HistogramView*>();
    const QImage image = histogram->grab().toImage();
    bool faster = false;
    bool slower = false;
    for (int x = 0; x < image.width(); ++x) {
        for (int y = 0; y < image.height(); ++y) {
            faster = faster || (image.pixelColor(x, y) == palette.faster && x > image.width() / 2);
            slower = slower || (image.pixelColor(x, y) == palette.slower && x < image.width() / 2);
            EXPECT_FALSE(image.pixelColor(x, y) == palette.faster && x < image.width() / 2 - 1);
        }
    }
    EXPECT_TRUE(faster && slower);
    EXPECT_THAT(histogram->accessibleDescription().toStdString(), HasSubstr("all actions"));
}

TEST_F(ErrorPanelTest, ChangesItsHistogramWithTheChosenCost) {
    show_run(jittered());
    QTreeView* const costs = view("Errors by kind and stage");
    costs->setCurrentIndex(costs->model()->index(2, 0));
    EXPECT_THAT(panel_.findChild<HistogramView*>()->accessibleDescription().toStdString(),
                HasSubstr("of stage"));
}

/// The labels at the ends leave the 0 in the middle some room, in any width.
TEST_F(ErrorPanelTest, LabelsBelowTheHistogramDoNotTouch) {
    HistogramView view;
    ErrorHistogram errors{.bin_percent = 5, .counts = std::vector<std::int64_t>(40, 1)};
    for (const std::int64_t outside : {0, 3}) {
        errors.outside = outside;
        view.show_errors("all actions", errors);
        for (int width = view.minimumSizeHint().width(); width < 400; ++width) {
            view.resize(width, 100);
            const auto [left, right] = view.end_labels();
            EXPECT_TRUE(left.startsWith("-100 %")) << left.toStdString();
            EXPECT_TRUE(right.endsWith("+100 %")) << right.toStdString();
            const int longest = std::max(view.fontMetrics().horizontalAdvance(left),
                                         view.fontMetrics().horizontalAdvance(right));
            EXPECT_LE(2 * longest + view.fontMetrics().horizontalAdvance("  0  "), width) << width;
        }
        EXPECT_EQ(view.end_labels().first, "-100 %, slower");
        EXPECT_EQ(view.end_labels().second,
                  outside == 0 ? QString("faster, +100 %") : QString("faster, \u2265 +100 %"));
    }
}

TEST_F(ErrorPanelTest, OfOneSideSaysWhatIsMissing) {
    RunData run = canned_run();
    run.twin.measured.clear();
    run.measured.reset();
    run.comparison.reset();
    show_run(std::make_shared<const RunData>(run));
    EXPECT_THAT(said(), HasSubstr("need a predicted and a measured timeline"));
    show_run(nullptr);
    EXPECT_THAT(said(), HasSubstr("No run is open"));
}

TEST_F(ErrorPanelTest, SaysWhatWasEmulated) {
    RunData run = *jittered();
    const auto heading = [this] {
        return view("Errors by kind and stage")->model()->headerData(3, Qt::Horizontal).toString();
    };
    show_run(std::make_shared<const RunData>(run));
    EXPECT_EQ(heading(), "Measured");
    EXPECT_THAT(said(), HasSubstr(", measured "));
    run.measured->origin = Origin::Emulated;
    show_run(std::make_shared<const RunData>(run));
    EXPECT_EQ(heading(), "Emulated");
    EXPECT_THAT(said(), HasSubstr(", emulated "));
}

TEST_F(ErrorPanelTest, ItsModelsKeepTheRulesOfModels) {
    std::vector<std::unique_ptr<QAbstractItemModelTester>> testers;
    for (QTreeView* const view : panel_.findChildren<QTreeView*>()) {
        testers.push_back(std::make_unique<QAbstractItemModelTester>(
            view->model(), QAbstractItemModelTester::FailureReportingMode::Fatal));
    }
    show_run(jittered());
    show_run(nullptr);
}

}  // namespace error_panel_test
}  // namespace pipetwin::gui
