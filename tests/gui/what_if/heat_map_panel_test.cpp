// SPDX-License-Identifier: Apache-2.0
#include "gui/what_if/heat_map_panel.h"

#include <QComboBox>
#include <QLabel>
#include <QtTest>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gui/view/what_if/what_if.h"
#include "gui/what_if/left_out.h"
#include "tests/gui/what_if_runs.h"

namespace pipetwin::gui {
namespace heat_map_panel_test {

class HeatMapPanelTest : public ::testing::Test {
  protected:
    HeatMapPanelTest() {
        panel.resize(800, 300);
        panel.show();
        QObject::connect(&panel, &HeatMapPanel::settled, [this] { ++settled; });
        QObject::connect(&panel, &HeatMapPanel::chosen, [this](int stages, int micro_batches) {
            chosen.emplace_back(stages, micro_batches);
        });
        const auto run = run_of(weighted_profile({1, 1, 1, 1, 1, 1}),
                                {"training.batch = 8",
                                 "pipeline.stages = 2",
                                 "pipeline.micro_batches = 4",
                                 "pipeline.recompute = \"none\"",
                                 "cluster.memory_limit = \"80 MB\""},
                                1);
        source = std::make_shared<const WhatIfSource>(run);
        panel.show_what_if(source, source->settings());
        EXPECT_TRUE(QTest::qWaitFor([this] { return settled > 0; }));
    }

    /// One stage needs 144 MB, so the map has its row only where it is set.
    void set_one_stage() {
        settled = 0;
        panel.show_what_if(source, with_pieces(source->settings(), 1, 1));
        EXPECT_TRUE(QTest::qWaitFor([this] { return settled > 0; }));
    }

    Selection selection;
    HeatMapPanel panel{&selection};
    std::shared_ptr<const WhatIfSource> source;
    int settled = 0;
    std::vector<std::pair<int, int>> chosen;
};

TEST_F(HeatMapPanelTest, AClickTakesTheCell) {
    const auto cell = panel.view().cell_of(3, 8);
    ASSERT_TRUE(cell);
    QTest::mouseClick(&panel.view(), Qt::LeftButton, {}, panel.view().place_of(*cell).center());
    EXPECT_THAT(chosen, ::testing::ElementsAre(std::pair(3, 8)));
}

TEST_F(HeatMapPanelTest, KeysGoFromTheSettingsToACell) {
    HeatMapView& view = panel.view();
    EXPECT_EQ(view.focused_cell(), *view.cell_of(2, 4));
    QTest::keyClick(&view, Qt::Key_Down);
    QTest::keyClick(&view, Qt::Key_Right);
    EXPECT_EQ(view.accessibleDescription(), view.sentence_of(*view.cell_of(3, 5)));
    QTest::keyClick(&view, Qt::Key_Return);
    EXPECT_THAT(chosen, ::testing::ElementsAre(std::pair(3, 5)));
    for (int i = 0; i < 20; ++i) {
        QTest::keyClick(&view, Qt::Key_Left);
    }
    EXPECT_EQ(view.focused_cell().column, 0U);
}

// GPipe on six stages with eight micro-batches of one sample: 5 / 13 are idle.
TEST_F(HeatMapPanelTest, ACellSaysItsNumbersOrWhyItHasNone) {
    HeatMapView& view = panel.view();
    EXPECT_FALSE(view.cell_of(1, 8)) << "no cell of one stage is feasible";
    set_one_stage();
    ASSERT_TRUE(view.cell_of(1, 8));
    EXPECT_TRUE(view.sentence_of(*view.cell_of(6, 8)).contains("bubble 38.5 %"));
    EXPECT_TRUE(view.sentence_of(*view.cell_of(1, 8)).contains("rank 0 needs"));
    EXPECT_TRUE(view.sentence_of(*view.cell_of(2, 4)).contains("(measured)"));
}

TEST_F(HeatMapPanelTest, CountsInWordsAndRoundsLargeNumbersToThreeDigits) {
    HeatMapView& view = panel.view();
    set_one_stage();
    ASSERT_TRUE(view.cell_of(1, 8));
    EXPECT_TRUE(view.sentence_of(*view.cell_of(1, 8)).startsWith("1 rank, 8 micro-batches"));
    HeatMap map = view.map();
    map.cells.front().reason.clear();
    map.cells.front().per_second = 23456.7;
    map.machine_stages = 6;
    view.show_map(map);
    EXPECT_TRUE(view.summary().contains("23500 samples/s")) << view.summary().toStdString();
}

TEST_F(HeatMapPanelTest, SaysWhichCellIsTheBest) {
    const HeatMap& map = panel.view().map();
    auto* const value = panel.findChild<QComboBox*>();
    for (const auto& [index, what] : {std::pair{0, HeatValue::Throughput},
                                      std::pair{1, HeatValue::Bubble},
                                      std::pair{2, HeatValue::PeakMemory}}) {
        value->setCurrentIndex(index);
        // The scenario states no number of devices: the machine has those of its two stages.
        std::vector<double> values;
        const auto counts = [&](std::size_t row, std::size_t column) {
            return map.at(row, column).fits() && map.stages[row] <= 2;
        };
        for (std::size_t row = 0; row < map.stages.size(); ++row) {
            for (std::size_t column = 0; column < map.micro_batches.size(); ++column) {
                if (counts(row, column)) {
                    values.push_back(map.at(row, column).value(what));
                }
            }
        }
        ASSERT_FALSE(values.empty());
        const double best = index == 0 ? std::ranges::max(values) : std::ranges::min(values);
        std::vector<QString> best_ones;
        for (std::size_t row = 0; row < map.stages.size(); ++row) {
            for (std::size_t column = 0; column < map.micro_batches.size(); ++column) {
                if (counts(row, column) && map.at(row, column).value(what) == best) {
                    best_ones.push_back(QString("with %1 ranks and %2 micro-batches")
                                            .arg(map.stages[row])
                                            .arg(map.micro_batches[column]));
                }
            }
        }
        const QString said = panel.findChild<QLabel*>()->text();
        EXPECT_TRUE(said.contains(index == 0 ? "highest" : "lowest")) << said.toStdString();
        EXPECT_TRUE(said.contains(best_ones.at(0))) << said.toStdString();
        EXPECT_TRUE(said.contains("hatched: infeasible"));
    }
}

/// The machine has devices for two of the six stages; a cluster of four devices has them for four.
TEST_F(HeatMapPanelTest, TheBestCellIsOneThatTheMachineHasDevicesFor) {
    HeatMapView& view = panel.view();
    ASSERT_TRUE(view.best());
    EXPECT_LE(view.map().stages[view.best()->row], 2);
    EXPECT_TRUE(view.sentence_of(*view.best()).contains("(best)"));
    EXPECT_TRUE(view.sentence_of(*view.cell_of(6, 8)).contains("devices for 2 ranks"));
    EXPECT_TRUE(panel.findChild<QLabel*>()->text().contains("for up to 2 ranks"));
}

/// Numbers are read in every cell that fits, however small the view is: it shows fewer of them.
TEST_F(HeatMapPanelTest, EveryCellHasRoomForItsNumber) {
    HeatMapView& view = panel.view();
    for (const QSize size : {QSize(1600, 600), QSize(900, 230), QSize(420, 170)}) {
        panel.resize(size);
        for (std::size_t row = 0; row < view.map().stages.size(); ++row) {
            for (std::size_t column = 0; column < view.map().micro_batches.size(); ++column) {
                const HeatMapView::Cell cell{row, column};
                const QString label = view.label_of(cell);
                EXPECT_EQ(label.isEmpty(), !view.map().at(row, column).fits());
                EXPECT_LE(view.fontMetrics().horizontalAdvance(label), view.place_of(cell).width());
                EXPECT_GE(view.place_of(cell).height(), view.fontMetrics().height());
            }
        }
        EXPECT_TRUE(view.cell_of(2, 4)) << "the current settings are among them";
        EXPECT_TRUE(view.best()) << "and so is the best";
        EXPECT_TRUE(view.cell_of(4, 4)) << "and 4 ranks, the other power of two";
    }
    EXPECT_LT(view.map().cells.size(), view.whole_map().cells.size());
}

/// The numbers of ranks that the picture leaves out are named below it.
TEST_F(HeatMapPanelTest, NamesTheRowsAndColumnsThatItDoesNotShow) {
    HeatMapView& view = panel.view();
    panel.resize(1600, 600);
    EXPECT_EQ(view.left_out().toStdString(), "Not shown: K = 1 (too little memory)");
    EXPECT_TRUE(view.tip_of_left_out().startsWith("Not shown:\nK = 1 (too little memory)\n"));
    EXPECT_TRUE(LeftOut(view.whole_map(), view.map()).reasons().startsWith("K = 1: rank 0 "))
        << LeftOut(view.whole_map(), view.map()).reasons().toStdString();
    panel.resize(420, 170);
    ASSERT_LT(view.map().stages.size(), 5U);
    EXPECT_TRUE(view.left_out().startsWith("Not shown: K = 1 (too little memory); K = "));
    EXPECT_TRUE(view.left_out().contains("(no room)")) << "all of them were simulated";
    EXPECT_FALSE(view.left_out().contains("(not simulated)"));
    const QRect last = view.place_of({view.map().stages.size() - 1, 0});
    EXPECT_LE(last.bottom() + 2 * view.fontMetrics().height(), view.height())
        << "so low a view has no title of its columns";
    EXPECT_LE(view.place_of_left_out().bottom(), view.rect().bottom());
}

/// A map of two ranks and of a few of 2,048 numbers of micro-batches.
HeatMap map_with_gaps() {
    HeatMap map;
    map.stages = {1, 2};
    map.micro_batches = {1, 16, 20, 23, 48};
    map.cells.resize(10, {.per_second = 10, .bubble = 0.1, .peak = {}, .reason = {}});
    map.machine_stages = 2;
    for (const int number : {2, 3, 9, 10, 11, 17, 18, 21, 30, 40}) {
        map.infeasible_micro_batches.push_back(number);
        map.cells_of_infeasible_micro_batches.push_back(
            {.per_second = 0, .bubble = 0, .peak = {}, .reason = "no order"});
    }
    map.micro_batches_without_costs = {49, 50};
    map.no_costs = "costs are known for micro-batches of 4 samples, but these have 1";
    return map;
}

/// The line named dozens of numbers, and its end was cut off.
TEST_F(HeatMapPanelTest, NamesAFewNumbersForEachReasonAndTheRestInTheTooltip) {
    HeatMapView& view = panel.view();
    panel.resize(1600, 600);
    view.show_map(map_with_gaps());
    EXPECT_EQ(view.left_out().toStdString(),
              "Not shown: M = 49-50 (no costs); M = 2-3, 9-11, 17-18 and 3 more (infeasible); "
              "M = 4-8, 12-15, 19 and 23 more (not simulated)");
    const QString tip = view.tip_of_left_out();
    EXPECT_TRUE(tip.contains("M = 2-3, 9-11, 17-18, 21, 30, 40 (infeasible)\n"))
        << tip.toStdString();
    EXPECT_TRUE(tip.contains("M = 4-8, 12-15, 19, 22, 24-29, 31-39, 41-47 (not simulated)\n"));
    EXPECT_TRUE(
        tip.contains("M = 49: costs are known for micro-batches of 4 samples, but these have 1."));
    EXPECT_TRUE(tip.contains("no order"));
    for (const int width : {1600, 1280, 900}) {
        panel.resize(width, 300);
        EXPECT_LE(view.fontMetrics().horizontalAdvance(view.left_out()),
                  view.place_of_left_out().width())
            << width << view.left_out().toStdString();
    }
}

/// The title stood below the scale of colours, and was read as its unit.
TEST_F(HeatMapPanelTest, TheTitleOfTheColumnsIsCentredBelowThem) {
    HeatMapView& view = panel.view();
    for (const QSize size : {QSize(1280, 230), QSize(800, 300)}) {
        panel.resize(size);
        const QRect title = view.title_of_columns();
        const std::size_t last_row = view.map().stages.size() - 1;
        const QRect left = view.place_of({last_row, 0});
        const QRect right = view.place_of({last_row, view.map().micro_batches.size() - 1});
        EXPECT_EQ(title.left(), left.left());
        EXPECT_EQ(title.right(), right.right());
        EXPECT_GE(title.top(), left.bottom() + view.fontMetrics().height()) << "below the numbers";
        EXPECT_LE(title.bottom(), view.rect().bottom());
        EXPECT_GE(title.width(), view.fontMetrics().horizontalAdvance(view.columns_title()));
    }
}

/// Cells whose micro-batches have a size without costs were called infeasible.
TEST_F(HeatMapPanelTest, TellsCellsWithoutCostsFromInfeasibleOnes) {
    Profile profile = weighted_profile({1, 1, 1, 1});
    for (LayerCost& layer : profile.layers) {
        std::erase_if(layer.samples,
                      [](const LayerSample& sample) { return sample.micro_batch_size != 4; });
    }
    source = std::make_shared<const WhatIfSource>(run_of(
        profile, {"training.batch = 32", "pipeline.stages = 2", "pipeline.micro_batches = 8"}));
    panel.resize(1600, 600);
    settled = 0;
    panel.show_what_if(source, source->settings());
    ASSERT_TRUE(QTest::qWaitFor([this] { return settled > 0; }));
    HeatMapView& view = panel.view();
    EXPECT_EQ(view.left_out().toStdString(), "Not shown: M = 1-3, 17-32 (no costs)");
    EXPECT_TRUE(view.tip_of_left_out().endsWith(
        "M = 1: costs are known for micro-batches of 4 samples, but these have 32."));
    EXPECT_FALSE(view.summary().contains("no costs")) << "no such cell is shown";
    WhatIf settings = source->settings();
    settings.micro_batches = 2;
    settled = 0;
    panel.show_what_if(source, settings);
    ASSERT_TRUE(QTest::qWaitFor([this] { return settled > 0; }));
    ASSERT_TRUE(view.cell_of(2, 2));
    EXPECT_EQ(view.sentence_of(*view.cell_of(2, 2)).toStdString(),
              "2 ranks, 2 micro-batches: no costs: costs are known for micro-batches of 4 samples, "
              "but these have 16 (current settings)");
    EXPECT_TRUE(view.summary().endsWith("hatched: infeasible; dotted: no costs."))
        << view.summary().toStdString();
    EXPECT_EQ(view.left_out().toStdString(), "Not shown: M = 1, 3, 17-32 (no costs)");
}

/// The map of a schedule file has one cell: a scale of colours had one number three times.
TEST_F(HeatMapPanelTest, OfOneCellHasNoScaleAndSaysWhyThereAreNoOthers) {
    HeatMapView& view = panel.view();
    EXPECT_TRUE(view.has_scale());
    HeatMap map;
    map.stages = {2};
    map.micro_batches = {4};
    map.cells.emplace_back().per_second = 10;
    map.machine_stages = 2;
    map.only_numbers = "own.csv has its own numbers of ranks and micro-batches";
    view.show_map(map);
    EXPECT_FALSE(view.has_scale());
    EXPECT_EQ(view.left_out().toStdString(),
              "Not shown: own.csv has its own numbers of ranks and micro-batches");
}

TEST_F(HeatMapPanelTest, NumbersAreReadOnEveryColour) {
    for (int i = 0; i <= 100; ++i) {
        const QColor ground = cividis(i / 100.0);
        EXPECT_GE(contrast_ratio(text_on(ground), ground), 4.5) << i;
    }
}

TEST_F(HeatMapPanelTest, OtherNumbersNeedNoOtherMap) {
    settled = 0;
    WhatIf settings = with_pieces(source->settings(), 4, 1);
    panel.show_what_if(source, settings);
    EXPECT_EQ(settled, 1) << "at once";
    EXPECT_EQ(panel.view().focused_cell(), *panel.view().cell_of(4, 4));
    settings.schedule = "1f1b";
    panel.show_what_if(source, settings);
    EXPECT_EQ(settled, 1);
    EXPECT_TRUE(QTest::qWaitFor([this] { return settled > 1; }));
}

TEST_F(HeatMapPanelTest, ColoursGrowInLightness) {
    int last = -1;
    for (int i = 0; i <= 20; ++i) {
        const int lightness = qGray(cividis(i / 20.0).rgb());
        EXPECT_GT(lightness, last);
        last = lightness;
    }
}

// The brightest fitting cell is the best one.
TEST_F(HeatMapPanelTest, CellsArePaintedByTheirValue) {
    HeatMapView& view = panel.view();
    const auto range = view.map().range(HeatValue::Throughput);
    ASSERT_TRUE(range);
    const QImage image = view.grab().toImage();
    for (std::size_t row = 0; row < view.map().stages.size(); ++row) {
        for (std::size_t column = 0; column < view.map().micro_batches.size(); ++column) {
            const HeatCell& cell = view.map().at(row, column);
            if (cell.fits() && view.map().is_on_machine(row) && cell.per_second == range->second) {
                const QPoint corner = view.place_of({row, column}).topLeft() + QPoint(4, 4);
                EXPECT_EQ(image.pixelColor(corner), cividis(1));
            }
        }
    }
}

}  // namespace heat_map_panel_test
}  // namespace pipetwin::gui
