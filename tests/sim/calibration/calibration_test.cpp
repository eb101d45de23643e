// SPDX-License-Identifier: Apache-2.0
#include "sim/calibration/calibration.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <tuple>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "core/model/model.h"
#include "core/plan/plan.h"
#include "core/timeline/footprint.h"
#include "sim/search/partition_choice.h"
#include "sim/simulate/simulate.h"
#include "tests/support/error_of.h"
#include "tests/support/scratch_folder.h"

namespace pipetwin::sim {
namespace calibration_test {

using testing::error_of;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr std::int64_t mega = 1'000'000;

/// Ten layers whose times are `time` times, and what they keep beside their input `kept` times
/// those of an estimate. Factors are written out here, apart from `with_factors`.
Profile layers(double time, double kept) {
    Profile profile;
    profile.tokens_per_sample = 128;
    const auto ms = [time](double of_estimate) {
        return Duration{std::llround(1e6 * time * of_estimate)};
    };
    for (int i = 0; i < 10; ++i) {
        LayerSample sample{.micro_batch_size = 1,
                           .forward = ms(10 + i),
                           .backward_input = ms(11),
                           .backward_weight = ms(9 + i),
                           .input = Bytes{i == 0 ? mega : 0},
                           .output = Bytes{mega},
                           .saved = Bytes{mega + std::llround(4 * mega * kept)},
                           .workspace = Bytes{std::llround(2 * mega * kept)}};
        LayerSample twice = sample;
        twice.micro_batch_size = 2;
        for (const auto part : times_of_sample) {
            twice.*part *= 2;
        }
        for (const auto part : sizes_of_sample) {
            twice.*part = 2 * (twice.*part);
        }
        profile.layers.push_back({.name = fmt::format("layer{}", i),
                                  .parameter_bytes = Bytes{3 * mega},
                                  .optimizer = Duration{2'000'000},
                                  .samples = {sample, twice},
                                  .operations = 1e10});
    }
    return profile;
}

constexpr std::string_view scenario_text = R"([model]
kind = "profile"
file = "model.profile.json"
[training]
batch = 16
optimizer = "adam"
[pipeline]
stages = 2
micro_batches = 8
schedule = "1f1b"
[cluster]
link_gbps = 10
link_latency_us = 20
)";

class RunCalibrationTest : public ::testing::Test {
  protected:
    ScenarioSource source(Unwritten unwritten = Unwritten::Default) const {
        return {.file = file_, .overrides = {}, .unwritten = unwritten};
    }

    SettledRun run_of(const MeasuredRun& run, const Profile& profile = layers(1, 1)) const {
        return settled_run(run, source(), profile);
    }

    Error refused(const MeasuredRun& run, const Profile& profile = layers(1, 1)) const {
        return error_of([&] { run_of(run, profile); });
    }

    /// A run as it would be measured where layers have the costs `truth`.
    SettledRun measured(const std::vector<Override>& keys, const Profile& truth) const {
        SettledRun run = run_of({.place = "runs.json: row 1", .keys = keys, .step_seconds = 1});
        const Plan plan = make_settled_plan(run.scenario, model(), truth);
        run.step_seconds = to_seconds(step_time(simulate(plan)));
        run.peak = std::ranges::max(peak_totals(plan));
        return run;
    }

    /// A measured run, and beside it what timers of its ranks would have printed.
    SettledRun timed(const std::vector<Override>& keys, const Profile& truth) const {
        SettledRun run = measured(keys, truth);
        const Timeline timeline = simulate(make_settled_plan(run.scenario, model(), truth));
        double forward = 0;
        double backward = 0;
        Duration summed{};
        for (const std::vector<Span>& row : timeline.ranks) {
            double forwards = 0;
            double backwards = 0;
            for (const Span& span : row) {
                const double seconds = to_seconds(span.end - span.begin);
                if (span.action.op == Op::Forward) {
                    forwards += seconds;
                } else if (span.action.op == Op::Optimizer) {
                    summed = std::max(summed, span.ready);
                } else if (has_micro_batch(span.action.op) && is_compute(span.action.op)) {
                    backwards += seconds;
                }
            }
            forward = std::max(forward, forwards);
            backward = std::max(backward, backwards);
        }
        run.timers = {.forward = forward, .backward = backward, .pipeline = to_seconds(summed)};
        return run;
    }

    static Model model() {
        std::vector<Model::Named> named;
        for (const LayerCost& layer : layers(1, 1).layers) {
            named.push_back({layer.name, layer.inputs});
        }
        return Model::opaque(named);
    }

    static Calibration calibrated(const std::vector<SettledRun>& runs) {
        return calibrate_by_runs(runs, model(), layers(1, 1));
    }

  private:
    tests::ScratchFolder folder_;
    std::filesystem::path file_ = folder_.write("run.toml", scenario_text);
};

const std::vector<Override> four_stages{{"pipeline.stages", "4"}};
const std::vector<Override> more_samples{{"training.batch", "32"},
                                         {"pipeline.micro_batches", "32"}};
const std::vector<Override> recomputed{{"pipeline.recompute", "\"always\""}};

TEST_F(RunCalibrationTest, OneRunGivesBackTheFactorsThatItWasMadeWith) {
    for (const auto& keys : {std::vector<Override>{}, four_stages, more_samples, recomputed}) {
        const SettledRun run = measured(keys, layers(1.3, 0.8));
        const Calibration found = calibrated({run});
        EXPECT_NEAR(found.compute_factor, 1.3, 1e-5);
        ASSERT_TRUE(found.memory_factor);
        EXPECT_NEAR(*found.memory_factor, 0.8, 1e-5);
        ASSERT_EQ(found.runs.size(), 1U);
        EXPECT_NEAR(found.runs.front().calibrated_step, run.step_seconds, 1e-6 * run.step_seconds);
        EXPECT_LT(found.runs.front().predicted_step, run.step_seconds);
        EXPECT_GT(found.runs.front().predicted_peak, *run.peak);
        EXPECT_FALSE(found.runs.front().leave_one_out_error);
        EXPECT_THAT(found.warnings, IsEmpty());
    }
}

/// Costs whose messages and updates take longer than estimated, too. Factors are written out here,
/// apart from `with_factors`.
Profile slower(double time, double messages, double update) {
    Profile profile = layers(time, 1);
    profile.messages_inside = messages;
    profile.messages_between = messages;
    for (LayerCost& layer : profile.layers) {
        layer.optimizer = Duration{std::llround(2e6 * update)};
    }
    return profile;
}

/// Two replicas, so that gradients are summed, over links that are slow enough to tell.
const std::vector<Override> two_replicas{{"pipeline.data_parallel", "2"},
                                         {"cluster.link_gbps", "0.1"}};

TEST_F(RunCalibrationTest, TimersTellLayersMessagesAndUpdateApart) {
    for (const auto& [time, messages, update] : {std::tuple(1.0, 1.0, 1.0),
                                                 std::tuple(1.2, 1.0, 1.0),
                                                 std::tuple(0.9, 2.5, 1.0),
                                                 std::tuple(1.1, 0.6, 3.0)}) {
        const SettledRun run = timed(two_replicas, slower(time, messages, update));
        const Calibration found = calibrated({run});
        EXPECT_NEAR(found.compute_factor, time, 1e-4);
        ASSERT_TRUE(found.messages_factor && found.update_factor);
        EXPECT_NEAR(*found.messages_factor, messages, 1e-3);
        // The update is a few thousandths of the step, in which the other two are 1e-7 off.
        EXPECT_NEAR(*found.update_factor, update, 1e-2);
        EXPECT_NEAR(found.runs.front().calibrated_step, run.step_seconds, 1e-5 * run.step_seconds);
        EXPECT_THAT(found.warnings, IsEmpty());
        // Another run with these costs is predicted, too.
        const Profile corrected = calibrated_profile(layers(1, 1), found);
        const SettledRun other = measured(four_stages, slower(time, messages, update));
        EXPECT_NEAR(predicted_run("", other.scenario, model(), corrected).step,
                    other.step_seconds,
                    1e-4 * other.step_seconds);
        // Without the timers all of it is taken for the layers'.
        SettledRun untimed = run;
        untimed.timers = {};
        const Calibration alone = calibrated({untimed});
        EXPECT_FALSE(alone.messages_factor || alone.update_factor);
        EXPECT_NEAR(alone.runs.front().calibrated_step, run.step_seconds, 1e-6 * run.step_seconds);
        EXPECT_EQ(std::abs(alone.compute_factor - time) > 1e-3, messages != 1);
    }
}

TEST_F(RunCalibrationTest, TheStepStandsForAPipelineWithoutATimer) {
    SettledRun run = timed(two_replicas, slower(1.2, 2, 1));
    run.timers.pipeline.reset();
    const Calibration found = calibrated({run});
    EXPECT_NEAR(found.compute_factor, 1.2, 1e-4);
    ASSERT_TRUE(found.messages_factor);
    EXPECT_NEAR(*found.messages_factor, 2, 1e-3);
    EXPECT_FALSE(found.update_factor);
}

TEST_F(RunCalibrationTest, TheTimerOfThePipelineAloneTellsTheUpdateApart) {
    SettledRun run = timed(two_replicas, slower(1.2, 1, 4));
    run.timers.forward.reset();
    const Calibration found = calibrated({run});
    EXPECT_NEAR(found.compute_factor, 1.2, 1e-4);
    EXPECT_FALSE(found.messages_factor);
    ASSERT_TRUE(found.update_factor);
    EXPECT_NEAR(*found.update_factor, 4, 1e-2);
}

TEST_F(RunCalibrationTest, TimersThatContradictTheStepAreLeftOut) {
    // Data loading after each step: no update takes so long.
    SettledRun run = timed(two_replicas, slower(1.2, 1, 1));
    run.step_seconds *= 2;
    const Calibration loading = calibrated({run});
    EXPECT_FALSE(loading.update_factor);
    ASSERT_FALSE(loading.warnings.empty());
    EXPECT_THAT(loading.warnings.front(), HasSubstr("forward-backward timers are left out"));
    EXPECT_NEAR(loading.runs.front().calibrated_step, run.step_seconds, 1e-5 * run.step_seconds);
    // One device without messages: layers cannot take longer than the step.
    SettledRun alone = timed({{"pipeline.stages", "1"}}, slower(1.2, 1, 1));
    *alone.timers.forward *= 1.5;
    const Calibration without = calibrated({alone});
    EXPECT_FALSE(without.messages_factor || without.update_factor);
    EXPECT_NEAR(without.compute_factor, 1.2, 1e-4);
    ASSERT_FALSE(without.warnings.empty());
    EXPECT_THAT(without.warnings.front(), HasSubstr("all timers are left out"));
}

TEST_F(RunCalibrationTest, RunsOfOtherConfigurationsThatScaleAlikeLeaveNoErrorOut) {
    std::vector<SettledRun> runs;
    for (const auto& keys : {std::vector<Override>{}, four_stages, more_samples, recomputed}) {
        runs.push_back(measured(keys, layers(1.3, 0.8)));
    }
    const Calibration found = calibrated(runs);
    EXPECT_NEAR(found.compute_factor, 1.3, 1e-5);
    EXPECT_NEAR(found.memory_factor.value_or(0), 0.8, 1e-5);
    for (const CalibratedRun& run : found.runs) {
        EXPECT_NEAR(run.leave_one_out_error.value_or(1), 0, 1e-4);
        EXPECT_NEAR(run.leave_one_out_peak_error.value_or(1), 0, 1e-4);
        EXPECT_NEAR(run.calibrated_step, run.measured_step, 1e-5 * run.measured_step);
    }
}

/// The partition is open, and which one is best changes with the factor: the factor must not jump
/// where another one becomes the best, nor where the search for a zero stops.
TEST_F(RunCalibrationTest, ASlowerRowNeverGivesAFasterFactor) {
    const std::vector<Override> in_turn{{"pipeline.stages", "3"},
                                        {"pipeline.schedule", "\"interleaved-1f1b\""},
                                        {"pipeline.chunks", "2"},
                                        {"pipeline.micro_batches", "6"},
                                        {"training.batch", "12"},
                                        {"cluster.link_gbps", "1"}};
    const SettledRun other = measured(four_stages, layers(1.2, 1));
    for (const auto& keys : {four_stages, in_turn}) {
        SettledRun run = measured(keys, layers(1, 1));
        run.peak.reset();
        const double step = run.step_seconds;
        double before = 0;
        double before_with_other = 0;
        for (const double factor :
             {0.9, 0.95, 0.999, 1.0, 1.0 + 1e-12, 1.0 + 1e-9, 1.001, 1.3, 2.0}) {
            run.step_seconds = factor * step;
            const double found = calibrated({run}).compute_factor;
            EXPECT_GE(found, before) << factor;
            before = found;
            const double with_other = calibrated({other, run}).compute_factor;
            EXPECT_GE(with_other, before_with_other) << factor;
            before_with_other = with_other;
        }
        EXPECT_GT(before, 1.5);
    }
}

/// Two runs of one configuration, one twice as long as the other: the factor in between is that of
/// the geometric mean, and each predicts the other wrong by all of the difference.
TEST_F(RunCalibrationTest, SeveralRunsMeetInTheirGeometricMean) {
    SettledRun shorter = measured({}, layers(1, 1));
    SettledRun longer = shorter;
    longer.step_seconds *= 2;
    const Calibration found = calibrated({shorter, longer});
    ASSERT_EQ(found.runs.size(), 2U);
    EXPECT_NEAR(found.runs[0].calibrated_step,
                std::sqrt(2) * shorter.step_seconds,
                1e-5 * shorter.step_seconds);
    EXPECT_NEAR(found.runs[0].leave_one_out_error.value_or(0), 1, 1e-3);
    EXPECT_NEAR(found.runs[1].leave_one_out_error.value_or(0), -0.5, 1e-3);
}

/// One run holds more than the other; each predicts the other's peak. A run without a peak says
/// nothing of memory, and nothing is said of its own.
TEST_F(RunCalibrationTest, APeakIsPredictedByTheOthersPeaks) {
    SettledRun small = measured({}, layers(1, 1));
    SettledRun large = measured({}, layers(1, 1.5));
    const double ratio =
        static_cast<double>(large.peak->count) / static_cast<double>(small.peak->count);
    Calibration found = calibrated({small, large});
    EXPECT_NEAR(found.runs[0].leave_one_out_peak_error.value_or(0), ratio - 1, 1e-3);
    EXPECT_NEAR(found.runs[1].leave_one_out_peak_error.value_or(0), 1 / ratio - 1, 1e-3);
    small.peak.reset();
    found = calibrated({small, large});
    EXPECT_EQ(found.runs[0].leave_one_out_peak_error, std::nullopt);
    EXPECT_EQ(found.runs[1].leave_one_out_peak_error, std::nullopt);
}

TEST_F(RunCalibrationTest, WithoutAPeakTheMemoryStaysAsEstimated) {
    SettledRun run = measured({}, layers(1.2, 0.8));
    run.peak.reset();
    const Calibration found = calibrated({run});
    EXPECT_FALSE(found.memory_factor);
    const Profile corrected = calibrated_profile(layers(1, 1), found);
    EXPECT_EQ(corrected.layers[3].samples[0].saved, layers(1, 1).layers[3].samples[0].saved);
    EXPECT_NEAR(to_milliseconds(corrected.layers[3].samples[0].forward), 1.2 * 13, 1e-4);
    ASSERT_EQ(corrected.run_calibrations.size(), 1U);
    EXPECT_EQ(corrected.run_calibrations[0].runs, 1);
    EXPECT_EQ(corrected.run_calibrations[0].memory_factor, std::nullopt);
    EXPECT_EQ(calibrated_profile(corrected, found).run_calibrations.size(), 2U);
}

TEST_F(RunCalibrationTest, ImplausibleFactorsAreToldWithWhatTheyUsuallyMean) {
    const Calibration slow = calibrated({measured({}, layers(2.5, 3))});
    ASSERT_EQ(slow.warnings.size(), 2U);
    EXPECT_THAT(slow.warnings[0], HasSubstr("2.5 times as long"));
    EXPECT_THAT(slow.warnings[0], HasSubstr("training.batch"));
    EXPECT_THAT(slow.warnings[1], HasSubstr("3 times as much"));
    EXPECT_EQ(calibrated({measured({}, layers(0.4, 0.3))}).warnings.size(), 2U);
}

TEST_F(RunCalibrationTest, AStepThatTransfersAloneExceedIsRefused) {
    SettledRun run = measured({}, layers(1, 1));
    run.step_seconds = 1e-4;
    const Error error = error_of([&] { calibrated({run}); });
    EXPECT_EQ(error.kind(), ErrorKind::BadInput);
    EXPECT_THAT(error.place(), HasSubstr("row 1"));
    EXPECT_THAT(error.text(), HasSubstr("0.0001 s was measured"));
    EXPECT_THAT(error.text(), HasSubstr("alone are predicted to take"));
    run.step_seconds = 1e5;
    EXPECT_THAT(error_of([&] { calibrated({run}); }).text(), HasSubstr("1000 times as long"));
}

TEST_F(RunCalibrationTest, APeakThatStatesAloneExceedIsRefused) {
    SettledRun run = measured({}, layers(1, 1));
    run.peak = Bytes{10 * mega};
    const Error error = error_of([&] { calibrated({run}); });
    EXPECT_EQ(error.kind(), ErrorKind::BadInput);
    EXPECT_THAT(error.text(), HasSubstr("optimizer states"));
    run.peak = Bytes{1'000'000 * mega};
    EXPECT_THAT(error_of([&] { calibrated({run}); }).text(), HasSubstr("1000 times as much"));
}

/// Devices that hold more than they have did run all the same.
TEST_F(RunCalibrationTest, ARunThatIsPredictedNotToFitIsTold) {
    SettledRun run = measured({{"cluster.memory_limit", "\"60 MB\""}}, layers(1, 1));
    run.peak.reset();
    const Calibration found = calibrated({run});
    ASSERT_EQ(found.warnings.size(), 1U);
    EXPECT_THAT(found.warnings[0], HasSubstr("run 1 was measured, but is predicted not to fit"));
}

// --- What a row says. ---

/// 2 stages and 2 replicas: 4 devices. 16 samples of 128 tokens, and of 3 * 1e11 operations.
TEST_F(RunCalibrationTest, RatesOfADeviceAreSteps) {
    const std::vector<Override> replicas{{"pipeline.data_parallel", "2"}};
    EXPECT_DOUBLE_EQ(run_of({.keys = replicas, .tokens_per_second_per_device = 256}).step_seconds,
                     2);
    EXPECT_DOUBLE_EQ(run_of({.keys = replicas, .samples_per_second_per_device = 8}).step_seconds,
                     0.5);
    EXPECT_DOUBLE_EQ(run_of({.keys = replicas, .tflops_per_device = 0.6}).step_seconds, 2);
    // A row says what the profile does not, and cannot say something else.
    const MeasuredRun shorter{
        .keys = replicas, .tokens_per_second_per_device = 256, .tokens_per_sample = 64};
    EXPECT_THAT(refused(shorter).text(), HasSubstr("samples of 128 tokens"));
    Profile silent = layers(1, 1);
    silent.tokens_per_sample = 0;
    EXPECT_DOUBLE_EQ(run_of(shorter, silent).step_seconds, 1);
}

/// Narayanan et al. 2021: of forward and backward 3, and 1 more where the forward comes again, but
/// for the last layer's.
TEST_F(RunCalibrationTest, HardwareOperationsCountTheForwardAgain) {
    const MeasuredRun row{
        .keys = recomputed, .tflops_per_device = 0.39, .flops_count = FlopsCount::Hardware};
    EXPECT_DOUBLE_EQ(run_of(row).step_seconds, 8 * (30 + 9) * 1e10 / 0.39e12);
    MeasuredRun none = row;
    none.keys = {{"pipeline.recompute", "\"none\""}};
    EXPECT_DOUBLE_EQ(run_of(none).step_seconds, 8 * 30 * 1e10 / 0.39e12);
    MeasuredRun seven_of_eight = row;
    seven_of_eight.keys = {{"pipeline.recompute", "\"except-last\""}};
    EXPECT_DOUBLE_EQ(run_of(seven_of_eight).step_seconds, 8 * (30 + 9 * 7.0 / 8) * 1e10 / 0.39e12);
    MeasuredRun parts = row;
    parts.keys = {{"pipeline.recompute", "\"selective\""}};
    EXPECT_THAT(refused(parts).text(), HasSubstr("only parts"));
}

TEST_F(RunCalibrationTest, TimesThatDisagreeAreRefusedWithWhatWouldAgree) {
    const MeasuredRun row{
        .place = "runs.json: row 3", .step_seconds = 10, .tokens_per_second_per_device = 104.5};
    const Error error = refused(row);  // 16 * 128 / 2 tokens in 10 s are 102.4 a second
    EXPECT_EQ(error.kind(), ErrorKind::BadInput);
    EXPECT_EQ(error.place(), "runs.json: row 3");
    EXPECT_THAT(error.text(), HasSubstr("tokens_per_second_per_device = 104.5 is a step of 9.799"));
    EXPECT_THAT(error.text(), HasSubstr("step_seconds = 10"));
    EXPECT_THAT(error.text(), HasSubstr("within 2 %"));
    EXPECT_THAT(error.hint(), HasSubstr("= 102.4 goes with step_seconds"));
    MeasuredRun near = row;
    near.tokens_per_second_per_device = 104;
    EXPECT_EQ(run_of(near).step_seconds, 10);
}

TEST_F(RunCalibrationTest, TflopsThatAgreeCountedTheOtherWaySaySo) {
    MeasuredRun row{.keys = recomputed, .step_seconds = 8, .tflops_per_device = 0.39};
    EXPECT_THAT(refused(row).hint(), HasSubstr("\"tflops_count\": \"hardware\""));
    row.flops_count = FlopsCount::Hardware;
    EXPECT_EQ(run_of(row).step_seconds, 8);
}

/// Of 1e10 operations of a layer's forward 2e9 are masked: 24 in place of 30 for ten layers.
TEST_F(RunCalibrationTest, TflopsAsMegatronCountsLeaveMaskedAttentionOut) {
    Profile profile = layers(1, 1);
    const MeasuredRun row{.tflops_per_device = 0.24, .flops_count = FlopsCount::Megatron};
    EXPECT_THAT(refused(row, profile).text(), HasSubstr("masked_operations_per_sample"));
    for (LayerCost& layer : profile.layers) {
        layer.masked_operations = 2e9;
    }
    EXPECT_DOUBLE_EQ(run_of(row, profile).step_seconds, 8 * 24 * 1e10 / 0.24e12);
    const MeasuredRun unsaid{.place = "runs.json: row 1", .tflops_per_device = 0.24};
    EXPECT_THAT(run_of(unsaid, profile).warning,
                ::testing::AllOf(
                    HasSubstr("runs.json: row 1"), HasSubstr("20.0 % shorter"), HasSubstr("palm")));
    MeasuredRun said = unsaid;
    said.names_flops_count = true;
    EXPECT_EQ(run_of(said, profile).warning, "");
    const MeasuredRun both{.step_seconds = 10, .tflops_per_device = 0.192};
    EXPECT_THAT(refused(both, profile).hint(), HasSubstr("\"tflops_count\": \"megatron\""));
}

TEST_F(RunCalibrationTest, ARateThatTheProfileKnowsTooLittleForIsRefused) {
    Profile silent = layers(1, 1);
    silent.tokens_per_sample = 0;
    silent.layers[4].operations.reset();
    EXPECT_THAT(refused({.tflops_per_device = 1}, silent).text(),
                HasSubstr("operations_per_sample"));
    EXPECT_THAT(refused({.tokens_per_second_per_device = 1}, silent).hint(),
                HasSubstr("tokens_per_sample"));
}

TEST_F(RunCalibrationTest, KeysOfARowAreRefusedAtTheRow) {
    const auto place_of = [this](std::vector<Override> keys) {
        return refused({.place = "runs.json: row 2", .keys = std::move(keys), .step_seconds = 1})
            .place();
    };
    EXPECT_EQ(place_of({{"pipeline.stagess", "2"}}), "runs.json: row 2, pipeline.stagess");
    EXPECT_EQ(place_of({{"pipeline.stages", "0"}}), "runs.json: row 2, pipeline.stages");
    EXPECT_EQ(place_of({{"model.file", "\"other.json\""}}), "runs.json: row 2, model.file");
    EXPECT_NO_THROW(
        run_of({.keys = {{"model.file", "\"model.profile.json\""}}, .step_seconds = 1}));
}

TEST_F(RunCalibrationTest, WhatARowLeavesOpenIsNamed) {
    const MeasuredRun row{
        .place = "runs.json: row 2", .keys = {{"pipeline.stages", "\"auto\""}}, .step_seconds = 1};
    const Error open = refused(row);
    EXPECT_EQ(open.kind(), ErrorKind::BadInput);
    EXPECT_EQ(open.place(), "runs.json: row 2");
    EXPECT_THAT(open.text(), HasSubstr("pipeline.stages"));
    EXPECT_THAT(open.hint(), HasSubstr("write \"pipeline.stages\" into the row"));
    // For a plan search every key that is not written is open, except that there is one chunk.
    const Error unwritten =
        error_of([&] { settled_run({.step_seconds = 1}, source(Unwritten::Auto), layers(1, 1)); });
    EXPECT_THAT(unwritten.text(), HasSubstr("pipeline.recompute, pipeline.data_parallel"));
    const MeasuredRun whole{
        .keys = {{"pipeline.recompute", "\"none\""}, {"pipeline.data_parallel", "1"}},
        .step_seconds = 1};
    EXPECT_EQ(settled_run(whole, source(Unwritten::Auto), layers(1, 1)).scenario.pipeline.chunks,
              1);
}

}  // namespace calibration_test
}  // namespace pipetwin::sim
