#include "gui/view/what_if/heat_map.h"

#include <algorithm>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

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

/// The profile knows micro-batches of 4 samples: 32 samples in other numbers of micro-batches than
/// 8 have no costs.
TEST(HeatMap, LeavesOutTheColumnsInWhichNothingIsFeasible) {
    Profile profile = weighted_profile({1, 1, 1, 1});
    for (LayerCost& layer : profile.layers) {
        std::erase_if(layer.samples,
                      [](const LayerSample& sample) { return sample.micro_batch_size != 4; });
    }
    const WhatIfSource source(run_of(profile,
                                     {"training.batch = 32",
                                      "pipeline.stages = 2",
                                      "pipeline.micro_batches = 8",
                                      "pipeline.schedule = \"gpipe\"",
                                      "cluster.link_gbps = 10"}));
    const HeatMap map = heat_map(source, source.settings());
    ASSERT_FALSE(map.micro_batches.empty());
    EXPECT_LT(map.micro_batches.size(), 32U);
    EXPECT_THAT(map.micro_batches, Contains(8));
    EXPECT_THAT(map.infeasible_micro_batches, AllOf(Contains(1), Contains(32), Not(Contains(8))));
    EXPECT_EQ(map.cells.size(), map.stages.size() * map.micro_batches.size());
    for (std::size_t column = 0; column < map.micro_batches.size(); ++column) {
        bool any = false;
        for (std::size_t row = 0; row < map.stages.size(); ++row) {
            any = any || map.at(row, column).fits();
        }
        EXPECT_TRUE(any) << map.micro_batches[column];
    }
}

TEST(HeatMap, NumbersBetweenTheEndsAreShownInfeasibleOrNamed) {
    EXPECT_THAT(numbers_between({2, 5, 8}, {1, 3, 10}), ElementsAre(4, 6, 7, 9));
    EXPECT_THAT(numbers_between({1, 2, 3}, {}), IsEmpty());
    EXPECT_THAT(numbers_between({}, {}), IsEmpty());
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

TEST(Thinned, KeepsBothEndsAndWhatHasToStay) {
    const WhatIfSource source(uneven_run("1 GB"));
    const HeatMap map = heat_map(source, source.settings());
    ASSERT_EQ(map.stages.size(), 6U);
    const HeatMap part = thinned(map, 3, 4, {{.row = 2, .column = 3}});
    EXPECT_THAT(part.stages, ElementsAre(1, 3, 6));
    EXPECT_THAT(part.micro_batches, SizeIs(4));
    EXPECT_THAT(part.micro_batches, IsSupersetOf({1, map.micro_batches[3], 9}));
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

TEST(HeatMap, AStoppedMapIsEmpty) {
    const WhatIfSource source(uneven_run("150 MB"));
    const std::atomic<bool> stop = true;
    EXPECT_TRUE(heat_map(source, source.settings(), &stop).empty());
}

TEST(SpreadNumbers, AreAllWhereThereAreFew) {
    EXPECT_THAT(spread_numbers(1, 5, 8, {}), ElementsAre(1, 2, 3, 4, 5));
    EXPECT_THAT(spread_numbers(4, 4, 8, {4}), ElementsAre(4));
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
