// SPDX-License-Identifier: Apache-2.0
#include "bench/accuracy/calibration.h"

#include <gtest/gtest.h>

#include "core/base/error.h"
#include "core/model/model.h"
#include "core/plan/plan.h"
#include "core/scenario/choices.h"
#include "core/scenario/settled_scenario.h"

namespace pipetwin::accuracy {
namespace calibration_test {

using std::chrono::microseconds;

constexpr int layers = 4;

Model four_layers() {
    return mlp_model({4, 4, 4, 4, 4});
}

Profile bytes_of(const Model& model) {
    Profile profile;
    for (int index = 0; index < model.layer_count(); ++index) {
        LayerCost& layer = profile.layers.emplace_back();
        layer.name = model.layer(index).spec.name;
        layer.samples = {{.micro_batch_size = 2, .output = Bytes{32}, .saved = Bytes{100}}};
    }
    profile.links = {{.latency = microseconds(1)}};
    return profile;
}

/// Layer i takes (i + 1) times as long; what is measured tells its setting.
CalibrationRun run_of(const CalibrationSetting& setting, int unit) {
    CalibrationRun run{.setting = setting, .cores = {{}}, .dispatch = microseconds(1)};
    for (int layer = 1; layer <= layers; ++layer) {
        run.cores.front().push_back(
            {.forward = microseconds(unit * layer),
             .recompute = microseconds(setting.recomputes ? 2 * unit * layer : 0),
             .backward_input = microseconds(3 * unit * layer),
             .backward_weight = microseconds(4 * unit * layer),
             .optimizer = microseconds(5)});
    }
    return run;
}

SettledScenario scenario_of(int stages,
                            int micro_batches,
                            const char* schedule,
                            Recompute recompute) {
    SettledScenario scenario;
    scenario.training.batch = 2 * micro_batches;
    scenario.pipeline.stages = stages;
    scenario.pipeline.micro_batches = micro_batches;
    scenario.pipeline.schedule = schedule;
    scenario.pipeline.recompute = recompute;
    return scenario;
}

class Calibrated : public ::testing::Test {
  protected:
    Calibrated() : model(four_layers()), calibration{.bytes = bytes_of(model), .runs = {}} {
        add({.micro_batch_size = 2}, 10);
        add({.micro_batch_size = 2, .live_stashes = 6}, 20);
        add({.micro_batch_size = 2, .recomputes = true}, 30);
        add({.micro_batch_size = 2, .splits = true}, 40);
    }
    void add(const CalibrationSetting& setting, int unit) {
        calibration.runs.push_back(run_of(setting, unit));
    }
    Plan plan(const SettledScenario& scenario) const {
        return calibrated_plan(scenario, model, calibration);
    }

    Model model;
    Calibration calibration;
};

TEST_F(Calibrated, TakesTheRunWithTheNearestNumberOfStashes) {
    // 1f1b on one rank keeps one micro-batch, gpipe all of them: 1 + 2 + 3 + 4 units.
    EXPECT_EQ(plan(scenario_of(1, 8, "1f1b", Recompute::None)).cost(0, 0).forward,
              Duration(microseconds(100)));
    EXPECT_EQ(plan(scenario_of(1, 8, "gpipe", Recompute::None)).cost(0, 0).forward,
              Duration(microseconds(200)));
}

TEST_F(Calibrated, WhatRecomputesCostsWhatWasMeasuredWithRecompute) {
    const Plan always = plan(scenario_of(1, 8, "1f1b", Recompute::Always));
    EXPECT_EQ(always.cost(0, 0).forward, Duration(microseconds(300)));
    EXPECT_EQ(always.cost(0, 0).recompute, Duration(microseconds(600)));
    EXPECT_EQ(always.cost(0, 0).backward, Duration(microseconds(2100)));
    // 1 of 2 is kept.
    const Plan half = plan(scenario_of(1, 2, "1f1b", Recompute::ExceptLast));
    EXPECT_EQ(half.cost(0, 0).forward, Duration(microseconds(200)));
}

TEST_F(Calibrated, ASplitBackwardCostsWhatWasMeasuredSplit) {
    const Plan split = plan(scenario_of(1, 4, "zb-h1", Recompute::None));
    EXPECT_EQ(split.cost(0, 0).backward_input, Duration(microseconds(1200)));
    EXPECT_EQ(split.cost(0, 0).backward_weight, Duration(microseconds(1600)));
}

TEST_F(Calibrated, PlansOfTwoRanksTakeWhatWasMeasuredBesideOthersWithoutTheInterference) {
    add({.micro_batch_size = 2, .workers = 2}, 15);
    // What was measured beside others lasts two thirds of that where no other rank computes, and
    // the simulator adds the half wherever one does.
    calibration.interference = 0.5;
    SettledScenario scenario = scenario_of(2, 4, "1f1b", Recompute::None);
    scenario.pipeline.partition = std::vector<int>{2, 2};
    const Plan two = plan(scenario);
    EXPECT_EQ(two.cost(0, 0).forward, Duration(microseconds(30)));
    EXPECT_EQ(two.cost(1, 0).forward, Duration(microseconds(70)));
    EXPECT_EQ(two->contention.interference.at(0).at(1), 0.5);
    EXPECT_EQ(two->states[0].optimizer, Duration{6667});  // 2 x 5 us less the same
    EXPECT_TRUE(plan(scenario_of(1, 4, "1f1b", Recompute::None))->contention.interference.empty());
}

TEST_F(Calibrated, EachRankCostsWhatItsOwnCoreTook) {
    CalibrationRun both = run_of({.micro_batch_size = 2, .workers = 2}, 10);
    both.cores.push_back(run_of(both.setting, 13).cores.front());
    calibration.runs = {both};
    SettledScenario scenario = scenario_of(2, 4, "1f1b", Recompute::None);
    scenario.pipeline.partition = std::vector<int>{2, 2};
    const Plan two = plan(scenario);
    EXPECT_EQ(two.cost(0, 0).forward, Duration(microseconds(10 * (1 + 2))));
    EXPECT_EQ(two.cost(1, 0).forward, Duration(microseconds(13 * (3 + 4))));
}

/// What `calibrated_plan` would look for, so that nothing else has to be measured.
TEST_F(Calibrated, NeedsTheNearestOfEveryKindThatAPlanHas) {
    std::vector<CalibrationSetting> candidates;
    for (const CalibrationRun& run : calibration.runs) {
        candidates.push_back(run.setting);
    }
    const auto needed = [&](const SettledScenario& scenario) {
        return settings_needed(scenario, model, calibration.bytes, candidates);
    };
    using Settings = std::vector<CalibrationSetting>;
    EXPECT_EQ(needed(scenario_of(1, 8, "gpipe", Recompute::None)),
              (Settings{{.micro_batch_size = 2, .live_stashes = 6}}));
    EXPECT_EQ(needed(scenario_of(1, 8, "1f1b", Recompute::Always)),
              (Settings{{.micro_batch_size = 2, .recomputes = true}}));
    EXPECT_EQ(needed(scenario_of(1, 2, "1f1b", Recompute::ExceptLast)),
              (Settings{{.micro_batch_size = 2}, {.micro_batch_size = 2, .recomputes = true}}));
    EXPECT_EQ(needed(scenario_of(1, 4, "zb-h1", Recompute::None)),
              (Settings{{.micro_batch_size = 2, .splits = true}}));
    EXPECT_THROW(needed(scenario_of(2, 4, "1f1b", Recompute::None)), Error);  // on two cores
    // With no more than those the plan can be made.
    calibration.runs = {run_of({.micro_batch_size = 2, .splits = true}, 40)};
    EXPECT_EQ(plan(scenario_of(1, 4, "zb-h1", Recompute::None)).cost(0, 0).forward,
              Duration(microseconds(400)));
}

/// Layers of equal widths: any of them can follow any other.
TEST_F(Calibrated, NeedsWorkersThatHoldWhatThePlansRanksHold) {
    using Held = std::vector<std::vector<CalibrationSetting::Piece>>;
    const std::vector<CalibrationSetting> candidates{
        {.micro_batch_size = 2},
        {.micro_batch_size = 2, .live_stashes = 6},
        {.micro_batch_size = 2, .workers = 2},
        {.micro_batch_size = 2, .live_stashes = 6, .workers = 2},
        {.micro_batch_size = 2, .splits = true, .workers = 2}};
    const auto needed = [&](const SettledScenario& scenario) {
        return settings_needed(scenario, model, calibration.bytes, candidates);
    };
    SettledScenario two = scenario_of(2, 8, "gpipe", Recompute::None);
    two.pipeline.partition = std::vector<int>{1, 3};
    ASSERT_EQ(needed(two).size(), 1U);
    EXPECT_EQ(needed(two).front().held, (Held{{{0, 1}}, {{1, 3}}}));
    EXPECT_EQ(needed(two).front().live_stashes, 6);  // 8 are on their way, on both ranks together
    two.pipeline.schedule = "zb-h1";
    EXPECT_EQ(needed(two).front().held, (Held{{{0, 1}}, {{1, 3}}}));

    SettledScenario turns = scenario_of(2, 8, "interleaved-1f1b", Recompute::None);
    turns.pipeline.chunks = 2;
    turns.pipeline.partition = std::vector<int>{1, 1, 1, 1};
    EXPECT_EQ(needed(turns).front().held, (Held{{{0, 1}, {2, 1}}, {{1, 1}, {3, 1}}}));
    turns.pipeline.stages = 1;
    turns.pipeline.partition = std::vector<int>{1, 3};
    EXPECT_EQ(needed(turns).front().held, (Held{{{0, 1}, {1, 3}}}));
    EXPECT_EQ(needed(scenario_of(1, 8, "gpipe", Recompute::None)).front().held, Held{});
}

TEST_F(Calibrated, ManyForwardsInARowAreNotThoseOfOneAtATimeWhereTheyRecompute) {
    add({.micro_batch_size = 2, .live_stashes = 6, .recomputes = true}, 50);
    EXPECT_EQ(plan(scenario_of(1, 8, "gpipe", Recompute::Always)).cost(0, 0).forward,
              Duration(microseconds(500)));
    EXPECT_EQ(plan(scenario_of(1, 8, "1f1b", Recompute::Always)).cost(0, 0).forward,
              Duration(microseconds(300)));
}

TEST_F(Calibrated, WhatWorkersMeasuredThatHeldTheSameComesFirst) {
    SettledScenario two = scenario_of(2, 8, "gpipe", Recompute::None);
    two.pipeline.partition = std::vector<int>{1, 3};
    add({.micro_batch_size = 2, .live_stashes = 6, .workers = 2}, 70);
    EXPECT_EQ(plan(two).cost(0, 0).forward, Duration(microseconds(70)));
    add({.micro_batch_size = 2, .live_stashes = 6, .workers = 2, .held = {{{0, 2}}, {{2, 2}}}}, 80);
    EXPECT_EQ(plan(two).cost(0, 0).forward, Duration(microseconds(70)));
    add({.micro_batch_size = 2, .workers = 2, .held = {{{0, 1}}, {{1, 3}}}}, 90);
    EXPECT_EQ(plan(two).cost(0, 0).forward, Duration(microseconds(90)));
}

/// Between them lies one that makes numbers of another width.
TEST(SettingsNeeded, AreOfTheWholeModelWhereARanksPiecesDoNotFitTogether) {
    const Model model = mlp_model({4, 4, 8, 4, 4});
    SettledScenario turns = scenario_of(2, 8, "interleaved-1f1b", Recompute::None);
    turns.pipeline.chunks = 2;
    turns.pipeline.partition = std::vector<int>{1, 1, 1, 1};
    const auto needed =
        settings_needed(turns, model, bytes_of(model), {{.micro_batch_size = 2, .workers = 2}});
    ASSERT_EQ(needed.size(), 1U);
    EXPECT_TRUE(needed.front().held.empty());
}

/// Of sgd: the norm reads a gradient, the update also reads and writes the weight.
TEST_F(Calibrated, ANormTakesAThirdOfTheMeasuredUpdateOfSgd) {
    SettledScenario scenario = scenario_of(1, 8, "1f1b", Recompute::None);
    scenario.training.optimizer = OptimizerKind::Sgd;
    scenario.training.clip_norm = 1;
    const Plan clipped = plan(scenario);
    const auto duration = [&](Op op) { return clipped.duration({.op = op, .stage = 0}); };
    EXPECT_EQ(duration(Op::Optimizer), Duration(microseconds(1 + 4 * 5)));
    EXPECT_EQ(duration(Op::GradientNorm) - microseconds(1), Duration(microseconds(4 * 5)) / 3);
}

TEST_F(Calibrated, NamesWhatWasNotMeasured) {
    SettledScenario scenario = scenario_of(1, 4, "1f1b", Recompute::None);
    scenario.training.batch = 12;  // 3 samples each: within the reach of a profile, not measured
    EXPECT_THROW(plan(scenario), Error);
}

}  // namespace calibration_test
}  // namespace pipetwin::accuracy
