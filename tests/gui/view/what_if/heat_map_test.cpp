// SPDX-License-Identifier: Apache-2.0
#include "gui/view/what_if/heat_map.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gui/view/what_if/what_if.h"
#include "tests/gui/what_if_runs.h"

namespace pipetwin::gui {
namespace heat_map_test {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::IsSupersetOf;
using ::testing::Not;
using ::testing::SizeIs;

std::shared_ptr<const RunData> uneven_run(const std::string& limit) {
    return run_of(weighted_profile({5, 1, 2, 7, 1, 1}),
                  {"training.batch = 9",
                   "pipeline.stages = 3",
                   "pipeline.micro_batches = 4",
                   "pipeline.schedule = \"1f1b\"",
                   "pipeline.recompute = \"none\"",
                   "cluster.link_gbps = 10",
                   "cluster.memory_limit = \"" + limit + "\""});
}

TEST(HeatMap, EveryCellIsTheWhatIfOfItsNumbers) {
    const WhatIfSource source(uneven_run("150 MB"));
    WhatIf settings = source.settings();
    settings.cost_scale = {1, 2, 1};
    settings.partition = {1, 2, 3};
    const HeatMap map = heat_map(source, settings);
    EXPECT_THAT(map.stages, ElementsAre(1, 2, 3, 4, 5, 6));
    EXPECT_THAT(map.micro_batches, SizeIs(9));
    int fitting = 0;
    for (std::size_t row = 0; row < map.stages.size(); ++row) {
        for (std::size_t column = 0; column < map.micro_batches.size(); ++column) {
            const HeatCell& cell = map.at(row, column);
            const WhatIfOutcome outcome =
                apply(source, at_cell(settings, map.stages[row], map.micro_batches[column]))
                    .outcome;
            if (outcome.step == nullptr) {
                EXPECT_EQ(cell.reason, outcome.reason);
                continue;
            }
            EXPECT_EQ(cell.reason, outcome.step->over_limit);
            EXPECT_EQ(cell.per_second, outcome.step->metrics.samples_per_second);
            EXPECT_EQ(cell.bubble, outcome.step->metrics.bubble.total);
            EXPECT_EQ(cell.peak, std::ranges::max(outcome.step->peaks));
            fitting += cell.fits() ? 1 : 0;
        }
    }
    EXPECT_GT(fitting, 0);
    EXPECT_LT(fitting, 6 * 9) << "the limit should be below what some cells need";
}

TEST(HeatMap, TheRangeIsThatOfTheCellsThatFit) {
    const WhatIfSource source(uneven_run("150 MB"));
    const HeatMap map = heat_map(source, source.settings());
    const auto range = map.range(HeatValue::PeakMemory);
    ASSERT_TRUE(range);
    EXPECT_LE(range->second, 150e6);
    EXPECT_LT(range->first, range->second);
    const WhatIfSource none(uneven_run("1 MB"));
    EXPECT_FALSE(heat_map(none, none.settings()).range(HeatValue::Bubble));
}

/// A run of 4 layers that only knows the costs of micro-batches of 4 samples, and so those of 2 to
/// 8.
std::shared_ptr<const RunData> run_of_one_size(int batch,
                                               int stages,
                                               int micro_batches,
                                               const std::string& limit) {
    Profile profile = weighted_profile({1, 1, 1, 1});
    for (LayerCost& layer : profile.layers) {
        std::erase_if(layer.samples,
                      [](const LayerSample& sample) { return sample.micro_batch_size != 4; });
    }
    return run_of(profile,
                  {fmt::format("training.batch = {}", batch),
                   fmt::format("pipeline.stages = {}", stages),
                   fmt::format("pipeline.micro_batches = {}", micro_batches),
                   "pipeline.schedule = \"gpipe\"",
                   "pipeline.recompute = \"none\"",
                   "cluster.link_gbps = 10",
                   "cluster.memory_limit = \"" + limit + "\""});
}

std::vector<int> from_to(int first, int last) {
    std::vector<int> numbers;
    for (int number = first; number <= last; ++number) {
        numbers.push_back(number);
    }
    return numbers;
}

/// 32 samples in 4 to 16 micro-batches are 2 to 8 each. The other numbers were called infeasible.
TEST(HeatMap, SaysWhichNumbersHaveNoCosts) {
    const WhatIfSource source(run_of_one_size(32, 2, 8, "1 TB"));
    const HeatMap map = heat_map(source, source.settings());
    EXPECT_EQ(map.micro_batches, from_to(4, 16));
    std::vector<int> without = from_to(1, 3);
    const std::vector<int> above = from_to(17, 32);
    without.insert(without.end(), above.begin(), above.end());
    EXPECT_EQ(map.micro_batches_without_costs, without);
    EXPECT_EQ(map.no_costs, "costs are known for micro-batches of 4 samples, but these have 32");
    EXPECT_THAT(map.infeasible_micro_batches, IsEmpty());
    EXPECT_EQ(map.cells.size(), map.stages.size() * map.micro_batches.size());
    for (const HeatCell& cell : map.cells) {
        EXPECT_TRUE(cell.fits());
    }
}

/// The mini-batch has 2,048 samples. Costs are known for 769 numbers of micro-batches, and every
/// column is one of them.
TEST(HeatMap, SimulatesNumbersThatHaveCosts) {
    const WhatIfSource source(run_of_one_size(2048, 2, 512, "1 TB"));
    const HeatMap map = heat_map(source, source.settings());
    EXPECT_THAT(map.micro_batches, SizeIs(32));
    EXPECT_THAT(map.micro_batches, IsSupersetOf({256, 512, 1024}));
    EXPECT_EQ(map.micro_batches.front(), 256);
    EXPECT_EQ(map.micro_batches.back(), 1024);
    std::vector<int> without = from_to(1, 255);
    const std::vector<int> above = from_to(1025, 2048);
    without.insert(without.end(), above.begin(), above.end());
    EXPECT_EQ(map.micro_batches_without_costs, without);
}

/// With all 32 samples stashed a layer needs 96 MB and more: 150 MB hold one. The settings have no
/// costs, so their column cannot say why a row is missing.
TEST(HeatMap, TooLittleMemoryIsNotCalledAWantOfCosts) {
    const WhatIfSource source(run_of_one_size(32, 4, 8, "150 MB"));
    WhatIf settings = source.settings();
    settings.micro_batches = 2;
    const HeatMap map = heat_map(source, settings);
    EXPECT_THAT(map.stages, ElementsAre(4));
    EXPECT_THAT(map.infeasible_stages, ElementsAre(1, 2, 3));
    for (const HeatCell& cell : map.cells_of_infeasible_stages) {
        EXPECT_FALSE(cell.lacks_costs);
        EXPECT_TRUE(cell.has_plan());
    }
    const auto of_settings = map.place_of(4, 2);
    ASSERT_TRUE(of_settings) << "the settings have a column even without costs";
    EXPECT_TRUE(map.at(of_settings->row, of_settings->column).lacks_costs);
    EXPECT_THAT(map.micro_batches_without_costs, Not(Contains(2)));
    EXPECT_THAT(map.micro_batches_without_costs, IsSupersetOf({1, 3, 17, 25, 32}));
}

TEST(HeatMap, NumbersBetweenTheEndsAreInAListOrNamed) {
    EXPECT_THAT(numbers_between({{2, 5, 8}, {1, 3, 10}}), ElementsAre(4, 6, 7, 9));
    EXPECT_THAT(numbers_between({{2, 8}, {10}, {1, 3, 5}}), ElementsAre(4, 6, 7, 9));
    EXPECT_THAT(numbers_between({{1, 2, 3}, {}}), IsEmpty());
    EXPECT_THAT(numbers_between({{}, {}}), IsEmpty());
}

/// Nothing fits into 1 MB; the map still says why.
TEST(HeatMap, WhereNothingIsFeasibleAllStays) {
    const WhatIfSource none(uneven_run("1 MB"));
    const HeatMap map = heat_map(none, none.settings());
    EXPECT_THAT(map.infeasible_stages, IsEmpty());
    EXPECT_THAT(map.infeasible_micro_batches, IsEmpty());
    EXPECT_THAT(map.stages, SizeIs(6));
    EXPECT_FALSE(map.best(HeatValue::Throughput));
}

TEST(HeatMap, TheBestCellIsTheBestThatTheMachineHasDevicesFor) {
    const WhatIfSource source(uneven_run("1 GB"));
    EXPECT_EQ(source.stages_of_machine(), 3) << "as many as the run has";
    const HeatMap map = heat_map(source, source.settings());
    const auto best = map.best(HeatValue::Throughput);
    ASSERT_TRUE(best);
    EXPECT_LE(map.stages[best->row], 3);
    for (std::size_t row = 0; row < map.stages.size(); ++row) {
        for (std::size_t column = 0; column < map.micro_batches.size(); ++column) {
            if (map.stages[row] <= 3 && map.at(row, column).fits()) {
                EXPECT_LE(map.at(row, column).per_second,
                          map.at(best->row, best->column).per_second);
            }
        }
    }
}

/// The star marked one rank, whose bubble is 0 % whatever the schedule.
TEST(HeatMap, TheBestBubbleIsThatOfSeveralRanks) {
    HeatMap map;
    map.stages = {1, 2};
    map.micro_batches = {4, 8};
    map.machine_stages = 2;
    for (const double bubble : {0.0, 0.0, 1.0 / 5, 1.0 / 9}) {
        map.cells.push_back({.per_second = 1, .bubble = bubble, .peak = {}, .reason = {}});
    }
    EXPECT_EQ(map.best(HeatValue::Bubble), (HeatMap::Place{.row = 1, .column = 1}));
    map.cells[2].reason = map.cells[3].reason = "no room";
    EXPECT_EQ(map.best(HeatValue::Bubble), (HeatMap::Place{.row = 0, .column = 0}));
}

TEST(HeatMap, SaysOfEachNumberThatIsLeftOutWhy) {
    const WhatIfSource source(uneven_run("1 GB"));
    const HeatMap map = heat_map(source, source.settings());
    ASSERT_EQ(map.cells_of_infeasible_stages.size(), map.infeasible_stages.size());
    ASSERT_EQ(map.cells_of_infeasible_micro_batches.size(), map.infeasible_micro_batches.size());
    for (const HeatCell& cell : map.cells_of_infeasible_micro_batches) {
        EXPECT_FALSE(cell.reason.empty());
    }
}

/// Rows that were kept at any price were too low for their numbers.
TEST(Thinned, OfMoreThanThereIsRoomForKeepsTheFirst) {
    const WhatIfSource source(uneven_run("1 GB"));
    const HeatMap map = heat_map(source, source.settings());
    const HeatMap part =
        thinned(map, 2, 4, {{.row = 2, .column = 3}, {.row = 4, .column = 3}, {.row = 1}});
    EXPECT_THAT(part.stages, ElementsAre(map.stages[2], map.stages[4]));
}

TEST(Thinned, KeepsWhatHasToStayThenPowersOfTwo) {
    const WhatIfSource source(uneven_run("1 GB"));
    const HeatMap map = heat_map(source, source.settings());
    ASSERT_EQ(map.stages.size(), 6U);
    const HeatMap part = thinned(map, 3, 4, {{.row = 2, .column = 3}});
    EXPECT_THAT(part.stages, ElementsAre(1, 2, 3));
    EXPECT_THAT(part.micro_batches, ElementsAre(1, 3, 4, 9)) << "4, and what divides 9 samples";
    for (std::size_t row = 0; row < part.stages.size(); ++row) {
        for (std::size_t column = 0; column < part.micro_batches.size(); ++column) {
            const auto whole = map.place_of(part.stages[row], part.micro_batches[column]);
            ASSERT_TRUE(whole);
            EXPECT_EQ(part.at(row, column).per_second,
                      map.at(whole->row, whole->column).per_second);
        }
    }
    EXPECT_EQ(thinned(map, 100, 100, {}).cells.size(), map.cells.size());
    EXPECT_TRUE(thinned(HeatMap(), 3, 3, {}).empty());
}

/// A map whose cells all fit.
HeatMap map_of(std::vector<int> stages, std::vector<int> micro_batches, int batch) {
    HeatMap map;
    map.cells.resize(stages.size() * micro_batches.size());
    map.stages = std::move(stages);
    map.micro_batches = std::move(micro_batches);
    map.batch = batch;
    map.machine_stages = 4;
    return map;
}

/// Two ranks were missing beside 1, 3, 4 and 8, though the machine has devices for 4.
TEST(Thinned, PrefersPowersOfTwoThatTheMachineHasDevicesFor) {
    const HeatMap map = map_of(from_to(1, 8), {4}, 32);
    const std::vector<HeatMap::Place> kept{{.row = 3}, {.row = 2}};
    EXPECT_THAT(thinned(map, 4, 9, kept).stages, ElementsAre(1, 2, 3, 4));
    EXPECT_THAT(thinned(map, 5, 9, kept).stages, ElementsAre(1, 2, 3, 4, 8));
    EXPECT_THAT(thinned(map, 2, 9, kept).stages, ElementsAre(3, 4));
}

/// 2048 samples were shown in 3, 7, 9, 14, 28 and 45 micro-batches, and not in 2, 8, 16 and 32.
TEST(Thinned, PrefersPowersOfTwoAndDivisorsOfTheBatch) {
    const HeatMap map = map_of({2}, from_to(1, 96), 96);
    EXPECT_THAT(thinned(map, 4, 6, {}).micro_batches, ElementsAre(1, 2, 4, 8, 16, 32));
    EXPECT_THAT(thinned(map, 4, 12, {}).micro_batches,
                ElementsAre(1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 96));
    EXPECT_THAT(thinned(map, 4, 13, {}).micro_batches, Contains(64)) << "before what is no power";
}

TEST(Thinned, ShowsNumbersWithoutCostsLast) {
    HeatMap map = map_of({2}, from_to(1, 8), 8);
    for (const int without : {1, 2, 8}) {
        HeatCell& cell = map.cells[static_cast<std::size_t>(without - 1)];
        cell.reason = "costs are known for others";
        cell.lacks_costs = true;
    }
    EXPECT_THAT(thinned(map, 4, 5, {}).micro_batches, ElementsAre(3, 4, 5, 6, 7));
    EXPECT_THAT(thinned(map, 4, 2, {{.row = 0, .column = 1}}).micro_batches, ElementsAre(2, 4))
        << "the settings come first";
}

TEST(HeatMap, AStoppedMapIsEmpty) {
    const WhatIfSource source(uneven_run("150 MB"));
    const std::atomic<bool> stop = true;
    EXPECT_TRUE(heat_map(source, source.settings(), &stop).empty());
}

TEST(SpreadNumbers, AreAllWhereThereAreFew) {
    EXPECT_THAT(spread_numbers(1, 5, 8, {}), ElementsAre(1, 2, 3, 4, 5));
    EXPECT_THAT(spread_numbers(4, 4, 8, {4}), ElementsAre(4));
}

TEST(SpreadNumbers, PreferPowersOfTwoAndDivisorsOfTheBatch) {
    EXPECT_THAT(spread_numbers(1, 2048, 12, {}, 2048),
                ElementsAre(1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048));
    EXPECT_THAT(spread_numbers(1, 96, 12, {}, 96),
                ElementsAre(1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 96));
    EXPECT_THAT(spread_numbers(1, 96, 13, {7}, 96), IsSupersetOf({7, 6, 12, 24, 48}));
    EXPECT_THAT(spread_numbers(1, 2048, 32, {}, 2048), SizeIs(32));
}

TEST(SpreadNumbers, HaveBothEndsAndWhatHasToBeAmongThem) {
    for (const int last : {7, 8, 9, 31, 100, 1024, 100'000}) {
        const std::vector<int> numbers = spread_numbers(1, last, 8, {3, 7});
        EXPECT_THAT(numbers, SizeIs(std::min(last, 8))) << last;
        EXPECT_TRUE(std::ranges::is_sorted(numbers));
        EXPECT_EQ(std::ranges::adjacent_find(numbers), numbers.end());
        EXPECT_THAT(numbers, IsSupersetOf({1, 3, 7}));
        EXPECT_EQ(numbers.back(), last);
    }
}

}  // namespace heat_map_test
}  // namespace pipetwin::gui
