// SPDX-License-Identifier: Apache-2.0
#include "gui/view/what_if/what_if.h"

#include <algorithm>
#include <fstream>
#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/timeline/footprint.h"
#include "core/timeline/memory_limits.h"
#include "gui/view/analysis/step_analysis.h"
#include "gui/view/run/planned_run.h"
#include "gui/view/what_if/heat_map.h"
#include "sim/explain/breakdown.h"
#include "sim/simulate/simulate.h"
#include "tests/gui/canned.h"
#include "tests/gui/planned.h"
#include "tests/gui/what_if_runs.h"
#include "tests/support/scratch_folder.h"

namespace pipetwin::gui {
namespace what_if_test {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::shared_ptr<const RunData> uniform_run(std::vector<std::string> keys = {}, int steps = 0) {
    std::vector<std::string> all{"training.batch = 8",
                                 "training.optimizer = \"sgd\"",
                                 "pipeline.stages = 2",
                                 "pipeline.micro_batches = 4",
                                 "pipeline.recompute = \"none\""};
    all.insert(all.end(), keys.begin(), keys.end());
    return run_of(weighted_profile(std::vector<int>(12, 1)), all, steps);
}

Timeline timeline_of(const RunData& run) {
    return run.twin.predicted.front().timeline();
}

TEST(WhatIf, UnchangedSettingsGiveThePredictionOfTheRun) {
    const Profile uneven = weighted_profile({5, 1, 2, 7, 1, 1, 3, 2});
    for (const char* const schedule : {"gpipe", "1f1b", "zb-h1", "zb-auto", "naive"}) {
        const std::string micro_batches = schedule == std::string("naive") ? "1" : "4";
        const auto run = run_of(uneven,
                                {"training.batch = 7",
                                 "pipeline.stages = 3",
                                 "pipeline.micro_batches = " + micro_batches,
                                 "pipeline.schedule = \"" + std::string(schedule) + "\"",
                                 "pipeline.recompute = \"except-last\"",
                                 "cluster.link_gbps = 10",
                                 "cluster.link_latency_us = 20"});
        const WhatIfSource source(run);
        ASSERT_EQ(source.why_not(), "");
        const WhatIfSimulation simulation = apply(source, source.settings(), sim::RecordLinks::Yes);
        const WhatIfOutcome& outcome = simulation.outcome;
        ASSERT_NE(outcome.step, nullptr) << schedule << ": " << outcome.reason;
        const Timeline expected = sim::simulate(run->planned->plan);
        EXPECT_EQ(simulation.rows.timeline(), expected) << schedule;
        const Metrics metrics = measure(run->planned->plan, expected);
        EXPECT_EQ(outcome.step->metrics.makespan, metrics.makespan);
        EXPECT_EQ(outcome.step->metrics.step, metrics.step);
        EXPECT_EQ(outcome.step->metrics.samples_per_second, metrics.samples_per_second);
        EXPECT_EQ(outcome.step->metrics.bubble.total, metrics.bubble.total);
        EXPECT_EQ(outcome.step->metrics.bubble.total_without_recompute,
                  metrics.bubble.total_without_recompute);
        EXPECT_EQ(outcome.step->metrics.bubble.ideal, metrics.bubble.ideal);
        EXPECT_EQ(outcome.step->metrics.bubble.span, metrics.bubble.span);
        ASSERT_EQ(outcome.step->peaks.size(), metrics.devices.size());
        for (const DeviceMetrics& device : metrics.devices) {
            EXPECT_EQ(outcome.step->peaks[static_cast<std::size_t>(device.rank)],
                      device.peak.use.total());
        }
        const auto shown = what_if_run(source, source.settings(), simulation);
        EXPECT_EQ(timeline_of(*shown), timeline_of(*run)) << schedule;
    }
}

TEST(WhatIf, AnotherScheduleRecomputesWhenItDoesByDefaultUnlessTheRunSaysOtherwise) {
    const auto timing_of = [](const std::vector<std::string>& keys, const char* schedule) {
        std::vector<std::string> all{"pipeline.schedule = \"1f1b\"",
                                     "pipeline.recompute = \"always\""};
        all.insert(all.end(), keys.begin(), keys.end());
        const WhatIfSource source(uniform_run(all));
        WhatIf settings = source.settings();
        settings.schedule = schedule;
        const WhatIfSimulation simulation = apply(source, settings, sim::RecordLinks::Yes);
        return simulation.outcome.step->plan->recompute_timing;
    };
    EXPECT_EQ(timing_of({}, "1f1b"), RecomputeTiming::Lazy);
    EXPECT_EQ(timing_of({}, "gpipe"), RecomputeTiming::Eager);
    EXPECT_EQ(timing_of({}, "zb-h1"), RecomputeTiming::Lazy);
    EXPECT_EQ(timing_of({"pipeline.recompute_timing = \"eager\""}, "zb-h1"),
              RecomputeTiming::Eager);
}

/// What is seen and said of it.
void expect_same(const WhatIfSimulation& one, const WhatIfSimulation& other) {
    ASSERT_NE(one.outcome.step, nullptr) << one.outcome.reason;
    ASSERT_NE(other.outcome.step, nullptr) << other.outcome.reason;
    EXPECT_EQ(one.rows.timeline(), other.rows.timeline());
    const Plan& plan = one.outcome.step->plan;
    const Plan& other_plan = other.outcome.step->plan;
    EXPECT_EQ(plan->schedule, other_plan->schedule);
    EXPECT_EQ(plan->channel_capacity, other_plan->channel_capacity);
    EXPECT_EQ(plan->recompute, other_plan->recompute);
    EXPECT_EQ(one.outcome.step->peaks, other.outcome.step->peaks);
    EXPECT_EQ(one.outcome.step->metrics.makespan, other.outcome.step->metrics.makespan);
    ASSERT_EQ(one.memory.size(), other.memory.size());
    for (std::size_t rank = 0; rank < one.memory.size(); ++rank) {
        const RowIndex& row = one.rows.ranks[rank];
        for (int cell = 0; cell < row.size(); ++cell) {
            EXPECT_EQ(one.memory[rank].at(row, row.begin(cell)),
                      other.memory[rank].at(row, row.begin(cell)));
        }
    }
}

TEST(WhatIf, IsTheSameWhateverWasAskedBefore) {
    const Profile uneven = weighted_profile({5, 1, 2, 7, 1, 1, 3, 2});
    for (const char* const schedule : {"1f1b", "zb-h1", "zb-auto"}) {
        for (const char* const offload : {"none", "stash"}) {
            const auto run = run_of(uneven,
                                    {"training.batch = 7",
                                     "pipeline.stages = 4",
                                     "pipeline.micro_batches = 7",
                                     "pipeline.schedule = \"" + std::string(schedule) + "\"",
                                     "pipeline.recompute = \"except-last\"",
                                     "pipeline.offload = \"" + std::string(offload) + "\"",
                                     "cluster.host_link_gbps = 100",
                                     "cluster.link_gbps = 10",
                                     "cluster.link_latency_us = 20"});
            const WhatIfSource source(run);
            ASSERT_EQ(source.why_not(), "");
            std::vector<WhatIf> asked;
            for (const double latency : {20.0, 40'000.0, 0.0, 300.0}) {
                asked.push_back(source.settings());
                asked.back().latency_us = latency;  // others hold other numbers of messages
            }
            asked.push_back(asked.back());
            asked.back().gigabytes_per_second = 0.5;
            asked.push_back(asked.back());
            asked.back().cost_scale = {1, 2, 0.5, 1};
            asked.push_back(asked.back());
            asked.back().micro_batches = 5;
            asked.push_back(asked.back());
            asked.back().recompute = Recompute::None;
            asked.push_back(asked.back());
            asked.back().schedule = "gpipe";
            asked.push_back(source.settings());
            for (const WhatIf& settings : asked) {
                expect_same(apply(source, settings), apply(WhatIfSource(run), settings));
            }
        }
    }
}

TEST(WhatIf, OfABareTraceKnowsWhyItWaits) {
    const RunData bare = canned_run();
    const WhatIfSource source(std::make_shared<const RunData>(bare));
    ASSERT_EQ(source.why_not(), "");
    WhatIf settings = source.settings();
    settings.micro_batches = 6;
    WhatIfSimulation simulation = apply(source, settings);
    ASSERT_NE(simulation.outcome.step, nullptr) << simulation.outcome.reason;
    const auto run = what_if_run(source, settings, std::move(simulation));
    const StepAnalysis analysis(run, Side::Predicted, 0);
    EXPECT_TRUE(analysis.has_causes()) << analysis.note();
    EXPECT_TRUE(analysis.as_planned());
    EXPECT_FALSE(analysis.critical_path().empty());
}

TEST(WhatIf, AWrittenPartitionIsKeptAsItIs) {
    const auto run = uniform_run({"pipeline.partition = [3, 9]"});
    const WhatIfSource source(run);
    ASSERT_TRUE(source.settings().partition);
    EXPECT_THAT(*source.settings().partition, ElementsAre(3, 9));
    const WhatIfSimulation simulation = apply(source, source.settings(), sim::RecordLinks::Yes);
    ASSERT_NE(simulation.outcome.step, nullptr) << simulation.outcome.reason;
    EXPECT_EQ(simulation.rows.timeline(), sim::simulate(run->planned->plan));
}

// GPipe, section 2.3: K - 1 of M + K - 1 parts of the pipeline time are idle, for equal stages and
// free links; 1F1B has the same bubble (Megatron-LM, section 2.2).
TEST(WhatIf, BubblesOfEqualStagesHaveTheirClosedForm) {
    const WhatIfSource source(uniform_run());
    for (const char* const schedule : {"gpipe", "1f1b"}) {
        for (const int stages : {1, 2, 3, 4, 6, 12}) {
            for (const int micro_batches : {1, 2, 4, 8}) {
                WhatIf settings = with_pieces(source.settings(), stages, 1);
                settings.micro_batches = micro_batches;
                settings.schedule = schedule;
                const WhatIfOutcome outcome = apply(source, settings).outcome;
                ASSERT_NE(outcome.step, nullptr) << outcome.reason;
                EXPECT_DOUBLE_EQ(outcome.step->metrics.bubble.total,
                                 (stages - 1.0) / (micro_batches + stages - 1.0))
                    << schedule << ", " << stages << " stages, " << micro_batches;
            }
        }
    }
}

TEST(WhatIf, CostsOfAllStagesTwiceAsHighMakeThePipelineTwiceAsLong) {
    const WhatIfSource source(uniform_run());
    WhatIf settings = source.settings();
    settings.cost_scale = {2, 2};
    const WhatIfOutcome doubled = apply(source, settings).outcome;
    const WhatIfOutcome as_known = apply(source, source.settings()).outcome;
    ASSERT_NE(doubled.step, nullptr) << doubled.reason;
    EXPECT_EQ(doubled.step->metrics.makespan, 2 * as_known.step->metrics.makespan);
}

/// Two replicas that share weights, 4 MB a layer, over a link of 1 GB/s: a gather, and a sum of
/// gradients, takes 2 ms. Forward max(4, 2) + max(1, 2) = 6 ms, backward max(8, 4) + max(2, 4) = 12
/// ms. With half of the costs max(2, 2) + max(0.5, 2) = 4 ms and max(4, 4) + max(1, 4) = 8 ms.
TEST(WhatIf, CheaperLayersStillWaitForShards) {
    Profile profile = weighted_profile({4, 1});
    for (LayerCost& layer : profile.layers) {
        layer.parameter_count = 1'000'000;
        layer.parameter_bytes = Bytes{4'000'000};
    }
    const WhatIfSource source(run_of(profile,
                                     {"training.batch = 2",
                                      "training.optimizer = \"sgd\"",
                                      "pipeline.stages = 1",
                                      "pipeline.micro_batches = 1",
                                      "pipeline.recompute = \"none\"",
                                      "pipeline.data_parallel = 2",
                                      "pipeline.shard = \"weights\"",
                                      "pipeline.all_reduce = \"ring\"",
                                      "cluster.link_gbps = 8"}));
    WhatIf settings = source.settings();
    const WhatIfOutcome as_known = apply(source, settings).outcome;
    ASSERT_NE(as_known.step, nullptr) << as_known.reason;
    EXPECT_EQ(as_known.step->metrics.makespan, Duration(18'000'000));
    settings.cost_scale = {0.5};
    const WhatIfOutcome halved = apply(source, settings).outcome;
    ASSERT_NE(halved.step, nullptr) << halved.reason;
    EXPECT_EQ(halved.step->metrics.makespan, Duration(12'000'000));
    EXPECT_EQ(halved.step->plan.shard_wait({.op = Op::Forward}), Duration(1'500'000));
}

// One micro-batch on two stages: F0 F1 B1 B0 with two messages of `bytes / rate + latency`.
TEST(WhatIf, LinksCostTheirLatencyAndTheirBandwidth) {
    const WhatIfSource source(uniform_run());
    WhatIf settings = source.settings();
    settings.micro_batches = 1;
    const Duration free = apply(source, settings).outcome.step->metrics.makespan;
    settings.gigabytes_per_second = 1;  // 8 MB take 8 ms
    settings.latency_us = 500;
    const WhatIfOutcome slower = apply(source, settings).outcome;
    ASSERT_NE(slower.step, nullptr) << slower.reason;
    EXPECT_EQ(slower.step->metrics.makespan - free, 2 * Duration{8'500'000});
}

TEST(WhatIf, MoreMemoryThanThereIsIsAResultThatSaysSo) {
    const WhatIfSource source(uniform_run({"cluster.memory_limit = \"50 MB\""}));
    WhatIf settings = source.settings();
    settings = with_pieces(settings, 12, 1);
    settings.micro_batches = 8;
    settings.schedule = "1f1b";
    const WhatIfOutcome fits = apply(source, settings).outcome;
    ASSERT_NE(fits.step, nullptr) << fits.reason;
    EXPECT_EQ(fits.step->over_limit, "");
    settings = with_pieces(settings, 1, 1);
    settings.schedule = "gpipe";
    const WhatIfOutcome over = apply(source, settings).outcome;
    ASSERT_NE(over.step, nullptr) << over.reason;
    EXPECT_THAT(over.step->over_limit, HasSubstr("rank 0 needs "));
    EXPECT_THROW(check_memory(over.step->plan), std::exception);
}

TEST(WhatIf, WhatCannotBePlannedIsAReason) {
    const WhatIfSource source(uniform_run());
    WhatIf too_many = source.settings();
    too_many.stages = 13;
    EXPECT_THAT(apply(source, too_many).outcome.reason, HasSubstr("13"));
    WhatIf one_chunk = source.settings();
    one_chunk.schedule = "zb-v";
    EXPECT_THAT(apply(source, one_chunk).outcome.reason, HasSubstr("two chunks"));
    WhatIf scales = source.settings();
    scales.cost_scale = {1, 2, 3};
    EXPECT_THAT(apply(source, scales).outcome.reason, HasSubstr("3 scales"));
    EXPECT_EQ(apply(source, scales).outcome.step, nullptr);
    EXPECT_THAT(apply(source, scales).outcome.reason.find('\n'), std::string::npos);
}

// There are samples up to 8: 16 can be scaled, 32 cannot.
TEST(WhatIf, SizesWithoutSamplesAreScaledOrRefusedAsTheProfileHasIt) {
    const WhatIfSource source(uniform_run({"training.batch = 32"}));
    WhatIf settings = source.settings();
    settings.micro_batches = 2;
    const WhatIfOutcome scaled = apply(source, settings).outcome;
    ASSERT_NE(scaled.step, nullptr) << scaled.reason;
    ASSERT_FALSE(scaled.step->plan->notes.empty());
    EXPECT_THAT(scaled.step->plan->notes.front(), HasSubstr("no costs at micro-batch size 16"));
    settings.micro_batches = 1;
    EXPECT_THAT(apply(source, settings).outcome.reason, HasSubstr("32"));
}

TEST(WhatIf, RangesAreThoseOfModelBatchAndSchedule) {
    const WhatIfSource source(uniform_run());
    WhatIf settings = source.settings();
    WhatIfRanges ranges = source.ranges(settings);
    EXPECT_EQ(ranges.most_stages, 12);
    EXPECT_EQ(ranges.most_micro_batches, 8);
    EXPECT_THAT(ranges.chunks, ElementsAre(1));
    settings.schedule = "zb-v";
    EXPECT_THAT(source.ranges(settings).chunks, ElementsAre(2));
    settings.schedule = "interleaved-1f1b";
    settings.stages = 4;  // 12 layers: three chunks at the most
    EXPECT_THAT(source.ranges(settings).chunks, ::testing::Contains(3));
    EXPECT_THAT(source.ranges(settings).chunks, ::testing::Not(::testing::Contains(4)));
}

TEST(WhatIf, EveryChunkCountOffersAPlanSomewhere) {
    const WhatIfSource source(uniform_run());
    for (const std::string& schedule : schedule_choices(source)) {
        WhatIf settings = with_pieces(source.settings(), 2, 1);
        settings.schedule = schedule;
        for (const int chunks : source.ranges(settings).chunks) {
            WhatIf chosen = with_pieces(settings, 2, chunks);
            bool any = false;
            for (const int micro_batches : {1, 2, 4, 8}) {
                chosen.micro_batches = micro_batches;
                any = any || apply(source, chosen).outcome.step != nullptr;
            }
            EXPECT_TRUE(any) << schedule << ", " << chunks
                             << " chunks: " << apply(source, chosen).outcome.reason;
        }
    }
}

TEST(WhatIfRun, WhatWasMeasuredStaysWhereTheRowsAreTheSame) {
    const auto run = uniform_run({"cluster.link_gbps = 8"}, 3);
    const WhatIfSource source(run);
    WhatIf settings = source.settings();
    settings.gigabytes_per_second = 0.5;
    settings.cost_scale = {1.5, 1};
    const WhatIfSimulation simulation = apply(source, settings);
    const WhatIfOutcome& outcome = simulation.outcome;
    ASSERT_NE(outcome.step, nullptr) << outcome.reason;
    TimelineSet predicted;
    predicted.steps = {simulation.rows.timeline()};
    predicted.breakdown = sim::breakdown(outcome.step->plan, predicted.steps.front());
    const auto shown = what_if_run(source, settings, simulation);
    ASSERT_TRUE(shown->comparison);
    EXPECT_EQ(shown->twin.measured.size(), 3U);

    TimelineSet measured;
    for (const StepRows& step : run->twin.measured) {
        measured.steps.push_back(step.timeline());
    }
    const Comparison expected = compare(predicted, measured);
    const Comparison& found = *shown->comparison;
    ASSERT_TRUE(found.predicted_breakdown);
    for (const BreakdownPart& part : breakdown_parts) {
        EXPECT_EQ((*found.predicted_breakdown).*part.value,
                  (*expected.predicted_breakdown).*part.value)
            << part.key;
    }
    EXPECT_EQ(found.step.predicted, expected.step.predicted);
    EXPECT_EQ(found.step.measured, expected.step.measured);
    EXPECT_EQ(found.makespan.predicted, expected.makespan.predicted);
    EXPECT_DOUBLE_EQ(found.predicted_bubble_total, expected.predicted_bubble_total);
    ASSERT_EQ(found.actions.size(), expected.actions.size());
    for (std::size_t i = 0; i < expected.actions.size(); ++i) {
        EXPECT_EQ(found.actions[i].duration.predicted, expected.actions[i].duration.predicted);
        EXPECT_EQ(found.actions[i].duration.measured, expected.actions[i].duration.measured);
        EXPECT_EQ(found.actions[i].begin.predicted, expected.actions[i].begin.predicted);
    }
    ASSERT_EQ(found.by_op.size(), expected.by_op.size());
    for (std::size_t i = 0; i < expected.by_op.size(); ++i) {
        EXPECT_EQ(found.by_op[i].total.predicted, expected.by_op[i].total.predicted);
    }
}

TEST(WhatIfRun, WhatWasMeasuredGoesWhereTheRowsDiffer) {
    const WhatIfSource source(uniform_run({}, 2));
    WhatIf settings = source.settings();
    settings.micro_batches = 8;
    const auto shown = what_if_run(source, settings, apply(source, settings));
    EXPECT_FALSE(shown->measured);
    EXPECT_FALSE(shown->comparison);
    EXPECT_THAT(shown->twin.measured, IsEmpty());
    EXPECT_EQ(shown->micro_batches, 8);
    ASSERT_NE(shown->planned, nullptr);
    EXPECT_EQ(settings_of(*shown->planned).micro_batches, 8);
}

TEST(WhatIfRun, MemoryIsThatOfThePlan) {
    const WhatIfSource source(uniform_run());
    const WhatIfSimulation simulation = apply(source, source.settings(), sim::RecordLinks::Yes);
    const WhatIfOutcome& outcome = simulation.outcome;
    const auto shown = what_if_run(source, source.settings(), simulation);
    const std::vector<MemoryUse> peaks = peak_memory(outcome.step->plan);
    ASSERT_EQ(shown->predicted->memory.size(), peaks.size());
    for (std::size_t rank = 0; rank < peaks.size(); ++rank) {
        EXPECT_EQ(shown->predicted->memory[rank].peak(), peaks[rank].total());
    }
}

// The canned run is GPipe with F = 1 ms and B = 2 ms and free links, and an update behind it.
TEST(WhatIf, ATraceAloneIsPlannedFromItsOwnMedians) {
    const auto run = std::make_shared<const RunData>(canned_run({.ranks = 3, .micro_batches = 4}));
    const WhatIfSource source(run);
    ASSERT_EQ(source.why_not(), "");
    EXPECT_EQ(source.settings().stages, 3);
    EXPECT_THAT(source.note(), HasSubstr("medians"));
    const WhatIfOutcome same = apply(source, source.settings()).outcome;
    ASSERT_NE(same.step, nullptr) << same.reason;
    EXPECT_EQ(same.step->metrics.makespan, run->predicted->pipeline);
    WhatIf more = source.settings();
    more.micro_batches = 9;
    const WhatIfOutcome outcome = apply(source, more).outcome;
    ASSERT_NE(outcome.step, nullptr) << outcome.reason;
    EXPECT_DOUBLE_EQ(outcome.step->metrics.bubble.total, 2.0 / 11);
    more.stages = 2;
    EXPECT_THAT(apply(source, more).outcome.reason, HasSubstr("its own 3 stages"));
}

/// The heat map recommended one rank for a schedule file of two, with the step of two.
TEST(WhatIf, ASchedulesFileHasItsOwnRanksAndMicroBatchesOnly) {
    const tests::ScratchFolder folder;
    const std::filesystem::path file = folder.path() / "own.csv";
    std::ofstream(file) << "0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n";
    const auto run =
        run_of(weighted_profile({1, 1, 1, 1}),
               {"pipeline.schedule = \"" + file.string() + "\"", "training.batch = 2"});
    const WhatIfSource source(run);
    ASSERT_EQ(source.why_not(), "");
    EXPECT_THAT(source.note(), HasSubstr("own.csv has its own numbers of ranks"));
    const HeatMap map = heat_map(source, source.settings());
    EXPECT_THAT(map.stages, ElementsAre(2));
    EXPECT_THAT(map.micro_batches, ElementsAre(2));
    ASSERT_EQ(map.cells.size(), 1U);
    EXPECT_TRUE(map.cells.front().fits());
    EXPECT_EQ(map.only_numbers, "own.csv has its own numbers of ranks and micro-batches");
    for (const int stages : {1, 4}) {
        const WhatIf other = with_pieces(source.settings(), stages, 1);
        EXPECT_THAT(apply(source, other).outcome.reason,
                    HasSubstr("own.csv is a schedule of 2 ranks and 2 micro-batches"));
    }
    WhatIf built_in = with_pieces(source.settings(), 4, 1);
    built_in.schedule = "gpipe";
    EXPECT_NE(apply(source, built_in).outcome.step, nullptr);
    EXPECT_EQ(source.ranges(built_in).most_stages, 4);
}

TEST(WhatIf, AnUnknownOrderWithoutItsScenarioHasNone) {
    RunData run = canned_run();
    run.schedule_name = "mine.csv";
    const WhatIfSource source(std::make_shared<const RunData>(std::move(run)));
    EXPECT_THAT(source.why_not(), HasSubstr("mine.csv"));
    EXPECT_EQ(apply(source, {}).outcome.reason, source.why_not());
}

}  // namespace what_if_test
}  // namespace pipetwin::gui
