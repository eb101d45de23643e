// SPDX-License-Identifier: Apache-2.0
#include "sim/questions/calibrated_stack.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "core/artifacts/measured_runs.h"
#include "core/base/error.h"
#include "core/costs/devices/shipped_profiles.h"
#include "core/costs/devices/stack_toml.h"
#include "core/costs/kernel_rates.h"
#include "tests/support/error_of.h"

namespace pipetwin::sim {
namespace calibrated_stack_test {

using testing::error_of;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr const char* start = R"({"device": "h100-sxm", "stack": "nemo-2024", "sequence": 4096,
 "pipeline.schedule": "1f1b", "pipeline.recompute": "none", "step_seconds": 1, )";

const std::vector<std::string> rests{
    R"("model": "llama-2-7b", "training.batch": 128, "pipeline.stages": 1,
       "pipeline.data_parallel": 8, "pipeline.micro_batches": 16, "pipeline.shard": "optimizer"})",
    R"("model": "llama-2-13b", "training.batch": 128, "pipeline.stages": 2,
       "pipeline.tensor_parallel": 2,
       "pipeline.data_parallel": 4, "pipeline.micro_batches": 32, "pipeline.shard": "optimizer",
       "pipeline.partition": [41, 41]})",
    R"("model": "llama-2-70b", "training.batch": 128, "pipeline.stages": 4,
       "pipeline.tensor_parallel": 8, "pipeline.data_parallel": 4, "pipeline.micro_batches": 32,
       "pipeline.shard": "optimizer", "precision": "fp8",
       "pipeline.partition": [41, 40, 40, 41]})",
    R"("model": "llama-2-7b", "training.batch": 256, "pipeline.stages": 1,
       "pipeline.tensor_parallel": 2, "pipeline.data_parallel": 32, "pipeline.micro_batches": 4,
       "pipeline.shard": "optimizer"})"};

std::vector<MeasuredRun> written() {
    std::string rows;
    for (const std::string& rest : rests) {
        rows += (rows.empty() ? "[" : ", ") + (start + rest);
    }
    return parse_measured_runs(rows + "]", "rows.json");
}

/// Rows that were measured with a stack.
std::vector<StackRow> measured_with(const std::shared_ptr<const Stack>& truth) {
    std::vector<StackRow> rows;
    for (const MeasuredRun& run : written()) {
        StackRow row = stack_row(run);
        const PredictedRun of = predicted_row(row, truth);
        row.run.step_seconds = of.step;
        row.run.peak = of.peak;
        rows.push_back(row);
    }
    return rows;
}

/// nemo-2024, whose kernels take so many times as long and keep so many times as much.
std::shared_ptr<const Stack> slower_stack(double time, double memory) {
    auto stack = std::make_shared<Stack>(*find_stack("nemo-2024"));
    for (const char* const precision : {"bf16", "fp8"}) {
        Stack::Calibrated& of = stack->calibrated.emplace_back();
        of = {.device = "h100-sxm", .precision = precision};
        of.factors.value = {
            .products = time, .attention = time, .passes = time, .activations = memory};
    }
    return stack;
}

TEST(CalibratedStack, RowsOfAStackGiveItsFactorsBack) {
    for (const double time : {0.85, 1.0, 1.25}) {
        const StackCalibration found =
            calibrated_stack(measured_with(slower_stack(time, 1.2)), "own.toml");
        EXPECT_THAT(found.stack.calibrated, ::testing::SizeIs(2));
        for (const Stack::Calibrated& of : found.stack.calibrated) {
            EXPECT_NEAR(of.factors.value.products, time, 0.02) << of.precision;
            EXPECT_NEAR(of.factors.value.attention, time, 0.03) << of.precision;
            EXPECT_NEAR(of.factors.value.activations, 1.2, 1e-3);
            EXPECT_EQ(of.factors.kind, FactKind::Fitted);
        }
        for (const CalibratedRun& run : found.runs) {
            // Messages are not slower, which rows of kernels and messages do not tell.
            EXPECT_NEAR(std::log(run.calibrated_step / run.measured_step),
                        0,
                        0.002 + 0.12 * std::abs(std::log(time)))
                << run.name;
            EXPECT_NEAR(run.leave_one_out_error.value_or(1), 0, 0.03) << run.name;
            EXPECT_NEAR(run.leave_one_out_peak_error.value_or(1), 0, 0.001) << run.name;
        }
        EXPECT_EQ(found.stack.measured.size(), rests.size());
        EXPECT_EQ(found.stack.name, "own");
    }
    EXPECT_THAT(calibrated_stack(measured_with(slower_stack(1.05, 1)), "own.toml").warnings,
                IsEmpty());
}

/// Experts of a mixture over eight devices, and samples in two parts over eight.
TEST(CalibratedStack, TakesRowsThatDivideExpertsAndSamples) {
    const std::vector<MeasuredRun> written = parse_measured_runs(
        R"([{"device": "b200", "stack": "megatron-bridge-2026", "sequence": 4096,
             "model": "qwen3-30b-a3b", "training.batch": 256, "pipeline.stages": 1,
             "pipeline.data_parallel": 8, "pipeline.expert_parallel": 8,
             "pipeline.micro_batches": 8, "pipeline.schedule": "1f1b",
             "pipeline.shard": "optimizer", "pipeline.recompute": "none", "step_seconds": 1},
            {"device": "b200", "stack": "megatron-bridge-2026", "sequence": 8192,
             "model": "llama-2-7b", "training.batch": 64, "pipeline.stages": 1,
             "pipeline.data_parallel": 4, "pipeline.context_parallel": 2,
             "pipeline.micro_batches": 16, "pipeline.schedule": "1f1b",
             "pipeline.shard": "optimizer", "pipeline.recompute": "none", "step_seconds": 1}])",
        "rows.json");
    auto truth = std::make_shared<Stack>(*find_stack("megatron-bridge-2026"));
    Stack::Calibrated& of = truth->calibrated.emplace_back();
    of = {.device = "b200", .precision = "bf16"};
    of.factors.value = {.products = 1.2, .attention = 1.2, .passes = 1.2};
    std::vector<StackRow> rows;
    for (const MeasuredRun& run : written) {
        StackRow row = stack_row(run);
        EXPECT_EQ(row.run.scenario.cluster.count, 8);
        row.run.step_seconds = predicted_row(row, truth).step;
        rows.push_back(row);
    }
    const StackCalibration found = calibrated_stack(rows, "own.toml");
    for (const CalibratedRun& run : found.runs) {
        EXPECT_NEAR(run.calibrated_step / run.measured_step, 1, 0.02) << run.name;
    }
    ASSERT_EQ(found.stack.measured.size(), 2U);
    EXPECT_EQ(found.stack.measured.front().expert_parallel, 8);
    EXPECT_EQ(found.stack.measured.back().context_parallel, 2);
    const StackFile base = read_stack_file("megatron-bridge-2026");
    EXPECT_EQ(parse_stack(print_calibrated(base.text, base.file.string(), found.stack), "own.toml"),
              found.stack);
}

TEST(CalibratedStack, ItsFileIsReadBackAsItIs) {
    const StackCalibration found =
        calibrated_stack(measured_with(slower_stack(1.1, 1.05)), "own.toml");
    const StackFile base = read_stack_file("nemo-2024");
    const std::string text = print_calibrated(base.text, base.file.string(), found.stack);
    EXPECT_EQ(parse_stack(text, "own.toml"), found.stack);
}

/// A stack that nothing was measured of predicts as before, and messages may be corrected, too.
TEST(CalibratedStack, FactorsOfOneAreNoCorrection) {
    const StackRow row = stack_row(written()[3]);
    const double before = predicted_row(row, find_stack("nemo-2024")).step;
    EXPECT_EQ(predicted_row(row, slower_stack(1, 1)).step, before);
    auto slow_links = std::make_shared<Stack>(*slower_stack(1, 1));
    slow_links->calibrated.front().factors.value.inside = 2;
    slow_links->calibrated.front().factors.value.between = 2;
    EXPECT_GT(predicted_row(row, slow_links).step, before);
}

TEST(CalibratedStack, RowsThatContradictEachOtherAreNamed) {
    std::vector<StackRow> rows = measured_with(slower_stack(1, 1));
    rows[1].run.step_seconds *= 1.5;
    rows[1].run.name = "the odd one";
    const StackCalibration found = calibrated_stack(rows, "own.toml");
    EXPECT_THAT(
        found.warnings,
        ::testing::Contains(::testing::AllOf(HasSubstr("contradict"), HasSubstr("the odd one"))));
    for (const Stack::Calibrated& of : found.stack.calibrated) {
        EXPECT_LT(of.factors.value.products, 1.06);
    }
}

/// Steps in a third of the time: kernels would move more bytes than the memory does.
TEST(CalibratedStack, NoKernelIsFasterThanItsDevice) {
    std::vector<StackRow> rows = measured_with(slower_stack(1, 1));
    for (StackRow& row : rows) {
        row.run.step_seconds /= 3;
    }
    const StackCalibration found = calibrated_stack(rows, "own.toml");
    const DeviceProfile device = find_device("h100-sxm");
    for (const Stack::Calibrated& of : found.stack.calibrated) {
        EstimateOptions options{.precision = of.precision};
        take_stack(std::make_shared<Stack>(found.stack), options);
        const KernelRates rates = kernel_rates(device, options);
        const double fastest = std::max({rates.memory.copies,
                                         rates.memory.activations,
                                         rates.memory.norms_forward,
                                         rates.memory.norms_backward,
                                         rates.casts ? rates.casts->memory_share : 0});
        EXPECT_NEAR(fastest, 1, 1e-12) << of.precision;
        EXPECT_LE(rates.products.of_sizes.large, 1 + 1e-12) << of.precision;
        EXPECT_LE(rates.kept.of_sizes.large, 1 + 1e-12) << of.precision;
        for (const double head : {64.0, 128.0}) {
            EXPECT_LE(rates.attention(head).forward.share, 1 + 1e-12) << of.precision;
            EXPECT_LE(rates.attention(head).backward.share, 1 + 1e-12) << of.precision;
        }
        EXPECT_THAT(found.warnings,
                    ::testing::Contains(::testing::AllOf(
                        HasSubstr("kernels that move bytes on h100-sxm in " + of.precision),
                        HasSubstr(fmt::format("the factor is {:.3g}", of.factors.value.passes)),
                        HasSubstr("is left out"))));
    }
}

TEST(CalibratedStack, WhatRowsLackOrDoNotKnowIsRefusedAtTheRow) {
    MeasuredRun run = written().front();
    const auto refused = [](const MeasuredRun& row) {
        return error_of([&row] { static_cast<void>(stack_row(row)); });
    };
    for (const auto& [word, name] : {std::pair(&MeasuredRun::model, "model"),
                                     std::pair(&MeasuredRun::device, "device"),
                                     std::pair(&MeasuredRun::stack, "stack")}) {
        MeasuredRun without = run;
        (without.*word).clear();
        EXPECT_THAT(refused(without).text(), HasSubstr(fmt::format("no \"{}\"", name)));
        MeasuredRun unknown = run;
        unknown.*word = "no-such";
        EXPECT_EQ(refused(unknown).kind(), ErrorKind::BadInput) << name;
        EXPECT_THAT(refused(unknown).place(), HasSubstr("row 1")) << name;
    }
    MeasuredRun elsewhere = run;
    elsewhere.device = "tpu-v5p";
    EXPECT_THAT(refused(elsewhere).hint(), HasSubstr("maxtext"));
    std::vector<StackRow> rows = measured_with(slower_stack(1, 1));
    MeasuredRun other = run;
    other.stack = "megatron-bridge-2025";
    rows.push_back(stack_row(other));
    EXPECT_THROW(calibrated_stack(rows, "own.toml"), Error);
}

}  // namespace calibrated_stack_test
}  // namespace pipetwin::sim
