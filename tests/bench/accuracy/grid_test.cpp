// SPDX-License-Identifier: Apache-2.0
#include "bench/accuracy/run.h"

#include <cmath>
#include <fstream>
#include <set>
#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "exec/base/cores.h"
#include "tests/support/scratch_folder.h"

/// bench/accuracy's grid: which cells it has, and that a hundredth of it runs, stores, resumes and
/// prints. What it measures is the benchmark's business.
namespace pipetwin::accuracy {
namespace grid_test {

using ::testing::HasSubstr;
using ::testing::Not;

GridOptions small_grid() {
    GridOptions options;
    options.model = {
        .layers = 4, .d_model = 8, .heads = 2, .context = 4, .vocabulary = 12, .feed_forward = 16};
    options.share = 0.01;
    options.fewest_rounds = 3;
    options.most_rounds = 4;
    options.insists_on_gate = false;
    options.precisions = {Precision::Fp32};
    return options;
}

TEST(AccuracyGrid, HasEveryDimension) {
    const Grid grid = accuracy_grid(small_grid());
    std::set<int> stages;
    std::set<int> micro_batches;
    std::set<std::string> schedules;
    std::set<Recompute> recomputes;
    std::set<int> partitions;
    for (const GridCell& cell : grid.cells) {
        stages.insert(cell.stages);
        micro_batches.insert(cell.micro_batches);
        schedules.insert(cell.schedule);
        recomputes.insert(cell.recompute);
        partitions.insert(cell.partition);
    }
    EXPECT_EQ(stages, (std::set<int>{1, 2}));
    EXPECT_EQ(micro_batches, (std::set<int>{1, 2, 4, 8, 16}));
    EXPECT_EQ(schedules, (std::set<std::string>{"gpipe", "1f1b", "zb-h1", "interleaved-1f1b"}));
    EXPECT_EQ(recomputes.size(), 3U);
    EXPECT_EQ(partitions, (std::set<int>{0, 1}));
    EXPECT_EQ(std::ssize(grid.cells) + grid.void_cells, 2 * 5 * 4 * 3 * 2);
}

TEST(AccuracyGrid, LeavesOutWhatIsThereAlready) {
    const Grid grid = accuracy_grid(small_grid());
    for (const GridCell& cell : grid.cells) {
        // One stage has one partition; one micro-batch is one order with one backward, and
        // except-last keeps it.
        EXPECT_FALSE(cell.stages * cell.chunks == 1 && cell.partition == 1) << to_string(cell);
        EXPECT_FALSE(cell.micro_batches == 1 && cell.recompute == Recompute::ExceptLast)
            << to_string(cell);
        EXPECT_FALSE(cell.micro_batches == 1 && cell.schedule == "1f1b") << to_string(cell);
        // Chunks go round in groups of as many micro-batches as ranks, or of all that there are.
        EXPECT_FALSE(cell.chunks > 1 && cell.micro_batches > cell.stages &&
                     cell.micro_batches % cell.stages != 0)
            << to_string(cell);
    }
}

/// Each way to divide layers, with the schedules, recompute and micro-batches that go with it.
TEST(AccuracyGrid, DividesLayersInEveryWay) {
    const Grid grid = divided_grid(small_grid());
    std::set<std::string> names;
    for (const GridCell& cell : grid.cells) {
        names.insert(to_string(cell));
        EXPECT_TRUE(cell.is_divided());
        EXPECT_EQ(cell.devices * cell.replicas, 2);
        EXPECT_LE(cell.replicas * cell.micro_batches, small_grid().batch);
    }
    EXPECT_EQ(names.size(), grid.cells.size());
    for (const char* const name : {"K=1 T=2 M=4 1f1b none fp32",
                                   "K=1 T=2 sequence M=16 gpipe always fp32",
                                   "K=1 T=2 sequence M=2 1f1b selective fp32",
                                   "K=1 gradients/2 M=8 1f1b none fp32",
                                   "K=1 weights/2 M=4 gpipe always fp32"}) {
        EXPECT_TRUE(names.contains(name)) << name;
    }
}

/// Without a word on how good the predictions are, but for the memory, which is counted.
TEST(AccuracyGrid, CellsOfDividedLayersRunWithoutShortRuns) {
    if (exec::allowed_cores().size() < 2) {
        GTEST_SKIP() << "two devices or replicas need a core each, and this machine has one";
    }
    const tests::ScratchFolder folder;
    GridOptions options = small_grid();
    options.divided = true;
    options.share = 0.05;
    options.store = folder / "grid.jsonl";
    std::ostringstream out;
    run_grid(options, out);
    EXPECT_THAT(out.str(), Not(HasSubstr("interference")));
    EXPECT_THAT(out.str(), ::testing::ContainsRegex("memory, largest +0.00 B"));
    for (const GridCell& one : in_seeded_order(divided_grid(options).cells, options)) {
        EXPECT_THAT(out.str(), HasSubstr(to_string(one)));
    }
}

TEST(AccuracyGrid, OrderDependsOnTheSeedAlone) {
    GridOptions options = small_grid();
    options.share = 1;
    const std::vector<GridCell> cells = accuracy_grid(options).cells;
    const auto first = in_seeded_order(cells, options);
    EXPECT_EQ(in_seeded_order(cells, options), first);
    EXPECT_NE(first, cells);
    EXPECT_TRUE(std::ranges::is_permutation(first, cells));
    options.seed = 2;
    EXPECT_NE(in_seeded_order(cells, options), first);
    options.share = 0.1;
    EXPECT_EQ(in_seeded_order(cells, options).size(), (cells.size() + 9) / 10);
}

TEST(AccuracyGrid, ACellReadsBackAsItWasPrinted) {
    const CellResult cell{
        .cell = "K=1 M=1 gpipe none p0 fp32",
        .predicted = Duration{1000},
        .measured = Duration{1250},
        .error = -0.2,
        .replay_error = -0.008,
        .noise_floor = 0.01,
        .bubble_difference = -0.25,
        .memory_difference = 7,
        .verdict = {.clean = 12, .dropped = 3, .p90_over_p10 = 1.05, .standard_error = 0.005},
        .parts = {{"0F", {.predicted = Duration{5}, .measured = Duration{6}}}}};
    const CellResult read = parse_cell(print_cell(cell));
    EXPECT_EQ(print_cell(read), print_cell(cell));
    EXPECT_EQ(read.replay_error, -0.008);
    EXPECT_TRUE(read.verdict.passes());
}

/// The median of n normal values deviates by 1.2533 sigma / sqrt(n), and their deciles lie 2.563
/// sigma apart.
TEST(AccuracyGate, TakesWhatElevenStepsOfTheLargestSpreadSay) {
    EXPECT_NEAR(standard_error_of_median(1.10, 11), 0.01405, 1e-5);
    EXPECT_NEAR(standard_error_of_median(1.10, 44), 0.01405 / 2, 1e-5);
    EXPECT_EQ(standard_error_of_median(1, 1), 0);
    EXPECT_TRUE((RoundsVerdict{.clean = 11, .standard_error = 0.014}).passes());
    EXPECT_FALSE((RoundsVerdict{.clean = 10, .standard_error = 0.001}).passes());
    EXPECT_FALSE((RoundsVerdict{.clean = 50, .standard_error = 0.0142}).passes());
}

/// Of 1 .. 10 percent, in logarithms, the middle eight; winsorized 2 2 3 .. 8 9 9, the squares of
/// whose deviations from 5.5 sum to 66.5: sqrt(66.5 / 9) over 0.8 sqrt(10).
TEST(AccuracyGate, TheMiddleOfRoundsIsATrimmedMean) {
    std::vector<double> ratios;
    for (int percent = 1; percent <= 10; ++percent) {
        ratios.push_back(std::exp(0.01 * percent));
    }
    const Middle middle = middle_of(ratios);
    EXPECT_NEAR(std::log(middle.value), 0.055, 1e-12);
    EXPECT_NEAR(middle.standard_error, 0.01 * std::sqrt(66.5 / 9) / (0.8 * std::sqrt(10.0)), 1e-12);
    ratios.front() = 1e-3;  // one that something disturbed
    EXPECT_NEAR(std::log(middle_of(ratios).value), 0.055, 1e-12);
    EXPECT_EQ(middle_of({2.0}).value, 2);
    EXPECT_EQ(middle_of({2.0}).standard_error, 1);
    EXPECT_EQ(middle_of({}).value, 1);
}

std::string content_of(const std::filesystem::path& path) {
    std::ostringstream text;
    text << std::ifstream(path).rdbuf();
    return text.str();
}

/// Without a word on how good the predictions are: the cells take microseconds.
TEST(AccuracyGrid, AHundredthRunsStoresResumesAndPrints) {
    const tests::ScratchFolder folder;
    GridOptions options = small_grid();
    options.store = folder / "grid.jsonl";
    std::ostringstream first;
    run_grid(options, first);
    const std::string stored = content_of(options.store);
    EXPECT_THAT(stored, HasSubstr("\"scalars\":\"fp32\""));
    const std::string cell =
        to_string(in_seeded_order(accuracy_grid(options).cells, options).front());
    EXPECT_THAT(stored, HasSubstr(cell));
    EXPECT_THAT(first.str(), HasSubstr(cell));
    EXPECT_THAT(first.str(), HasSubstr("memory, largest"));

    std::ostringstream again;  // everything is there
    run_grid(options, again);
    EXPECT_EQ(content_of(options.store), stored);
    EXPECT_EQ(again.str(), first.str());

    // A kill in the middle of a line, then a larger share: only what is missing is measured.
    std::ofstream(options.store, std::ios::app) << "{\"cell\": \"K=1 M";
    options.share = 0.02;
    std::ostringstream more;
    run_grid(options, more);
    EXPECT_THAT(content_of(options.store), ::testing::StartsWith(stored));
    for (const GridCell& one : in_seeded_order(accuracy_grid(options).cells, options)) {
        EXPECT_THAT(more.str(), HasSubstr(to_string(one)));
    }
}

/// Of four rounds each, which are too few for the gate.
TEST(AccuracyGrid, NoCellIsPredictedFromShortRunsThatTheGateRefuses) {
    const tests::ScratchFolder folder;
    GridOptions options = small_grid();
    options.insists_on_gate = true;
    options.store = folder / "grid.jsonl";
    std::ostringstream out;
    EXPECT_FALSE(run_grid(options, out));
    EXPECT_FALSE(std::filesystem::exists(options.store));
    EXPECT_THAT(out.str(), HasSubstr("the gate refuses its short runs"));
    EXPECT_THAT(out.str(), HasSubstr("not measurable on this machine today"));
}

TEST(AccuracyGrid, NoCellBeginsAfterItsTime) {
    const tests::ScratchFolder folder;
    GridOptions options = small_grid();
    options.store = folder / "grid.jsonl";
    options.minutes = 1e-9;
    std::ostringstream out;
    EXPECT_FALSE(run_grid(options, out));
    EXPECT_THAT(content_of(options.store), Not(HasSubstr("\"cell\"")));
    EXPECT_THAT(out.str(), HasSubstr("not measurable on this machine today"));
}

}  // namespace grid_test
}  // namespace pipetwin::accuracy
