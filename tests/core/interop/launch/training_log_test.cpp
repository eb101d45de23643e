// SPDX-License-Identifier: Apache-2.0
#include "core/interop/launch/training_log.h"

#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace pipetwin {
namespace training_log_test {

std::string step_line(int iteration, double milliseconds, int batch) {
    return fmt::format(
        " [2026-01-01 00:00:01] iteration {:8}/     100 | consumed samples: 128 | elapsed time per "
        "iteration (ms): {:.1f} | throughput per GPU (TFLOP/s/GPU): 61.5 | global batch size: {:5} "
        "| lm loss: 9.1E+00 |\n",
        iteration,
        milliseconds,
        batch);
}

TEST(TrainingLog, HasStepsWithTheirBatch) {
    const TrainingLog log =
        parse_training_log("> building\n" + step_line(2, 812.4, 64) +
                           "[rank7]: " + step_line(2, 812.4, 64) + step_line(4, 809.9, 64));
    ASSERT_EQ(log.steps.size(), 2U);
    EXPECT_EQ(log.steps[0].line, 2);
    EXPECT_EQ(log.steps[1].iteration, 4);
    EXPECT_DOUBLE_EQ(log.steps[1].seconds, 0.8099);
    EXPECT_EQ(log.steps[1].batch, 64);
    EXPECT_EQ(log.steps[1].device_tflops, 61.5);
    EXPECT_EQ(log.peak_bytes, std::nullopt);
}

/// The first report has what a run does once; steps before the last batch are others.
TEST(TrainingLog, TheMeasuredStepIsTheMedianBehindTheFirst) {
    std::string text = step_line(1, 9000, 32);
    for (const int milliseconds : {500, 510}) {
        text += step_line(milliseconds, milliseconds, 32);
    }
    EXPECT_EQ(measured_step(parse_training_log(text), {.batch = 64}), std::nullopt);
    for (const int milliseconds : {1000, 1030, 1010}) {
        text += step_line(milliseconds, milliseconds, 64);
    }
    const std::optional<MeasuredStep> step = measured_step(parse_training_log(text), {.batch = 64});
    ASSERT_TRUE(step.has_value());
    EXPECT_DOUBLE_EQ(step->seconds, 1.01);
    EXPECT_EQ(step->steps, 3);
    EXPECT_EQ(step->first_line, 4);
    EXPECT_EQ(step->last_line, 6);
    EXPECT_EQ(measured_step(parse_training_log("iteration 1/ 2 | no time |\n"), {}), std::nullopt);
    const TrainingLog one = parse_training_log(step_line(1, 700, 64));
    EXPECT_DOUBLE_EQ(measured_step(one, {.batch = 64})->seconds, 0.7);
}

/// What stands before the block of arguments is of another run, and each start has a slow report.
TEST(TrainingLog, StepsBelongToTheRunOfTheArguments) {
    const std::string end = "---------------- end of arguments ---------------------\n";
    std::string text = step_line(50, 100, 64) + step_line(51, 100, 64) + end;
    text += step_line(1, 5000, 64) + step_line(2, 800, 64) + step_line(3, 820, 64);
    text += end + step_line(4, 5000, 64) + step_line(5, 840, 64);
    const std::optional<MeasuredStep> step = measured_step(parse_training_log(text), {.batch = 64});
    ASSERT_TRUE(step.has_value());
    EXPECT_DOUBLE_EQ(step->seconds, 0.82);
    EXPECT_EQ(step->steps, 3);
    EXPECT_FALSE(step->has_start);
    EXPECT_TRUE(
        measured_step(parse_training_log(end + step_line(1, 5000, 64)), {.batch = 64})->has_start);
}

/// Loss scaling that overflows leaves the update out.
TEST(TrainingLog, StepsWithoutAnUpdateAreNone) {
    std::string skipped = step_line(3, 400, 64);
    skipped.insert(skipped.size() - 1, " number of skipped iterations:   1 |");
    const TrainingLog log =
        parse_training_log(step_line(1, 900, 64) + step_line(2, 800, 64) + skipped);
    EXPECT_EQ(log.steps.size(), 2U);
}

TEST(TrainingLog, TheFullestRankHasThePeak) {
    const TrainingLog log = parse_training_log(
        "[Rank 0] (after 2 iterations) memory (MB) | allocated: 100.0 | max allocated: 2048.5 | "
        "reserved: 1.0 |\n"
        "[Rank 3] (after 2 iterations) memory (MB) | allocated: 100.0 | max allocated: 1024.0 |\n");
    EXPECT_EQ(log.peak_bytes, 2'148'007'936);  // 2048.5 x 2^20
}

/// torchtitan says tokens of a step by seconds and devices: 8 samples of 8,192 tokens on 8 devices
/// are 8,192 tokens of each.
TEST(TrainingLog, TitanSaysRatesOfDevices) {
    const std::string head = "[rank0]:[titan] 2026-02-01 10:00:00,000 - root - INFO - ";
    const TrainingLog log = parse_training_log(
        head +
        "\x1b[31mstep:  1  \x1b[32mloss: 12.24  \x1b[33mmemory: 40.26GiB(50.84%)  "
        "\x1b[34mtps: 819  \x1b[36mtflops: 10.10  \x1b[35mmfu: 1.02%\x1b[39m\n" +
        head +
        "step: 10  loss:  9.93  grad_norm:  2.2  memory: 47.50GiB(59.99%)  tps: 8,192  "
        "tflops: 401.50  mfu: 40.60%\n");
    ASSERT_EQ(log.steps.size(), 2U);
    EXPECT_TRUE(log.steps[0].is_first);
    EXPECT_EQ(log.steps[1].device_tflops, 401.5);
    EXPECT_EQ(log.peak_bytes, 51'002'736'640);  // 47.5 x 2^30
    const auto step = measured_step(log, {.batch = 8, .tokens_of_device = 8192});
    ASSERT_TRUE(step.has_value());
    EXPECT_DOUBLE_EQ(step->seconds, 1);
    EXPECT_EQ(measured_step(log, {.batch = 8}), std::nullopt);
}

/// Validation is no step, and each start has a slow one.
TEST(TrainingLog, TitanValidatesAndStartsAgain) {
    const auto step = [](int number, std::string_view rate) {
        return fmt::format(
            "step: {:2}  loss:  9.9  memory: 47.50GiB(60%)  tps: {}  mfu: 40%\n", number, rate);
    };
    const std::string start = "[titan] - root - INFO - Training starts at step 1\n";
    const std::string log = start + step(1, "100") + step(10, "4,096") +
                            "validate step: 10  loss: 9  tps: 16,384\n" + start + step(11, "100") +
                            step(20, "4,096");
    const auto measured = measured_step(parse_training_log(log), {.tokens_of_device = 4096});
    EXPECT_DOUBLE_EQ(measured->seconds, 1);
    EXPECT_EQ(measured->steps, 2);
}

/// A run that stopped after few steps and was started anew: its second start repeats no more than
/// the last reports, as other ranks may, but begins with the words of a start.
TEST(TrainingLog, AShortSecondStartIsSaid) {
    const auto step = [](int number) {
        return fmt::format("step: {:2}  loss:  9.9  memory: 47.50GiB(60%)  tps: 4,096\n", number);
    };
    const std::string start = "[titan] - root - INFO - Training starts at step 1\n";
    const TrainingLog again =
        parse_training_log(start + step(1) + step(2) + start + step(1) + step(2) + step(3));
    EXPECT_EQ(again.steps.size(), 3U);
    ASSERT_EQ(again.notes.size(), 1U);
    EXPECT_EQ(again.notes.front(),
              "lines 5 to 6 repeat iterations that lines 2 to 3 report: of these the first start "
              "was read, and the later 2 reports left out");
    EXPECT_TRUE(parse_training_log(start + step(1) + step(1) + step(2) + step(2)).notes.empty());
}

/// The engine of pipelines says seconds, the timer of the other engines samples of all replicas by
/// seconds.
TEST(TrainingLog, DeepSpeedSaysTimesOrRates) {
    const TrainingLog pipeline = parse_training_log(
        "steps: 10 loss: 3.5 iter time (s): 2.500 samples/sec: 25.600\n"
        "steps: 20 loss: 3.4 iter time (s): 2.000 samples/sec: 32.000\n");
    EXPECT_DOUBLE_EQ(measured_step(pipeline, {})->seconds, 2);
    const TrainingLog others = parse_training_log(
        "epoch=0/micro_step=8/global_step=2, RunningAvgSamplesPerSec=30.1, CurrSamplesPerSec=8.5, "
        "MemAllocated=7.21GB, MaxMemAllocated=30.5GB\n"
        "epoch=0/micro_step=16/global_step=4, RunningAvgSamplesPerSec=31.9, "
        "CurrSamplesPerSec=32.0, MemAllocated=7.21GB, MaxMemAllocated=30.5GB\n");
    EXPECT_DOUBLE_EQ(measured_step(others, {.batch = 64})->seconds, 2);
    EXPECT_EQ(measured_step(others, {}), std::nullopt);
    EXPECT_EQ(others.peak_bytes, 32'749'125'632);  // 30.5 x 2^30
    EXPECT_EQ(logged_world_size("[INFO] [config.py:1003:print]   world_size ........ 16\n"), 16);
    EXPECT_EQ(logged_world_size("world_sizes 16\n"), std::nullopt);
}

TEST(TrainingLog, OthersSayTimesToo) {
    const TrainingLog maxtext = parse_training_log(
        "completed step: 0, seconds: 31.2, TFLOP/s/device: 3.1, Tokens/s/device: 60.1, loss: 12\n"
        "completed step: 1, seconds: 1.5, TFLOP/s/device: 86.0, Tokens/s/device: 12942.7, loss: "
        "9\n");
    EXPECT_DOUBLE_EQ(measured_step(maxtext, {})->seconds, 1.5);
    EXPECT_EQ(measured_step(maxtext, {})->device_tflops, 86);
    const TrainingLog nanotron = parse_training_log(
        "iteration: 1 / 10 | consumed_tokens: 1M | time_per_iteration_ms: 9.5K | tokens_per_sec: "
        "2K\niteration: 2 / 10 | time_per_iteration_ms: 1.25K | model_tflops_per_gpu: 310\n"
        "iteration: 3 / 10 | time_per_iteration_ms: 750 | model_tflops_per_gpu: 320\n");
    EXPECT_DOUBLE_EQ(measured_step(nanotron, {})->seconds, 1);  // the mean of the middle two
    const TrainingLog trainer = parse_training_log(
        "{'train_runtime': 120.5, 'train_samples_per_second': 32.0, 'train_steps_per_second': 0.5, "
        "'train_loss': 2.1, 'epoch': 1.0}\n");
    EXPECT_DOUBLE_EQ(measured_step(trainer, {.batch = 64})->seconds, 2);
    EXPECT_FALSE(measured_step(trainer, {.batch = 64})->has_start);
}

/// A bar of progress writes its updates over one another in one line.
TEST(TrainingLog, UpdatesOfOneLineAreReadEach) {
    std::string text = "training\r\n";
    for (const auto& [step, seconds] : {std::pair{0, 50.0}, {1, 5.2}, {2, 5.3}}) {
        text += fmt::format(
            "Epoch 0: :  {}%| | {}/100 [00:50<08:20, reduced_train_loss=9.1, "
            "global_step={}.000, train_step_timing in s={:.2f}]\r",
            step,
            step,
            step,
            seconds);
    }
    const auto step = measured_step(parse_training_log(text + "\nend\n"), {});
    ASSERT_TRUE(step.has_value());
    EXPECT_DOUBLE_EQ(step->seconds, 5.25);  // the mean of the middle two
    EXPECT_EQ(step->steps, 2);
    EXPECT_EQ(step->first_line, 2);
    EXPECT_EQ(step->last_line, 2);
}

/// A report of ms-swift: `seconds` in all for the `steps` since the start.
std::string swift_line(int iteration, int steps, double seconds) {
    return fmt::format(
        "{{'loss': 1.2, 'iteration': '{}/9000', 'elapsed_time': '{}m {}s', "
        "'remaining_time': '1h 2m 3s', 'train_speed(s/it)': {:.6f}}}\n",
        iteration,
        static_cast<int>(seconds) / 60,
        static_cast<int>(seconds) % 60,
        seconds / steps);
}

/// The mean of ms-swift is of the steps since the start or the resumption: a first step of 30.4 s,
/// and steps of 2.5 s behind it.
TEST(TrainingLog, MeansOfAResumedRunAreThoseOfItsOwnSteps) {
    const auto run = [](int start) {
        std::string text;
        for (const int steps : {1, 10, 20, 30, 40}) {
            text += swift_line(start + steps, steps, 30.4 + 2.5 * (steps - 1));
        }
        return text;
    };
    for (const int start : {0, 5000}) {
        const auto step = measured_step(parse_training_log(run(start)), {});
        ASSERT_TRUE(step.has_value());
        EXPECT_NEAR(step->seconds, 2.5, 0.001) << start;
        EXPECT_EQ(step->steps, 4);
    }
    // A restart behind a checkpoint may go on with a higher iteration: the elapsed time falls.
    const TrainingLog restarted = parse_training_log(run(0) + run(100));
    ASSERT_EQ(restarted.steps.size(), 10U);
    EXPECT_TRUE(restarted.steps[5].is_first);
    EXPECT_NEAR(restarted.steps[5].seconds, 30.4, 0.001);
    for (const std::size_t index : {6U, 7U, 8U, 9U}) {
        EXPECT_NEAR(restarted.steps[index].seconds, 2.5, 0.001) << index;
    }
}

/// Reports of one rank are others than those of all, and a timer without its ranks is none.
TEST(TrainingLog, TimersAreMediansOfReportsOfAKind) {
    const std::string all =
        "(min, max) time across ranks (ms):\n    optimizer ....: (10.0, 30.0)\n";
    const std::string ranks =
        "times across ranks (ms):\n  optimizer:\n     rank  0: 10.0\n"
        "     rank  1: 30.0\n";
    const std::string cut = "times across ranks (ms):\n  optimizer:\n";
    const std::string one = "time (ms) | optimizer: 90.0 | backward-params: 5.0\n";
    const auto timers = [](const std::string& first, const std::string& second) {
        return parse_training_log(step_line(1, 900, 64) + step_line(2, 800, 64) + first +
                                  step_line(3, 800, 64) + second)
            .timers;
    };
    for (const std::string& second : {cut, one, all, ranks}) {
        const std::vector<LoggedTimer> found = timers(ranks, second);
        const LoggedTimer& optimizer = found.back();
        EXPECT_EQ(optimizer.name, "optimizer");
        EXPECT_EQ(optimizer.least, 0.01) << second;
        EXPECT_DOUBLE_EQ(optimizer.most, 0.03) << second;
        EXPECT_FALSE(optimizer.of_one_rank) << second;
    }
    EXPECT_TRUE(timers(cut, cut).empty());
    EXPECT_TRUE(timers(one, cut).back().of_one_rank);
}

/// Megatron-DeepSpeed reports a step twice.
TEST(TrainingLog, BelowArgumentsOfMegatronItsOwnWordsCount) {
    const std::string end = "---------------- end of arguments ---------------------\n";
    std::string text = end;
    for (const int iteration : {1, 2, 3}) {
        text += fmt::format("steps: {} loss: 3.5 iter time (s): 9.0 samples/sec: 2\n", iteration) +
                step_line(iteration, 1000, 64);
    }
    EXPECT_DOUBLE_EQ(measured_step(parse_training_log(text), {})->seconds, 1);
}

}  // namespace training_log_test
}  // namespace pipetwin
