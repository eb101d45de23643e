// SPDX-License-Identifier: Apache-2.0
#include "core/costs/devices/evidence.h"

#include <gmock/gmock.h>

#include "core/base/error.h"
#include "core/costs/devices/shipped_profiles.h"
#include "core/costs/devices/stack.h"
#include "core/costs/estimate_error.h"

/// Published runs beside estimates with stacks, and the ranges that follow from them.
namespace pipetwin {
namespace evidence_test {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

PublishedRun run_of(const std::string& model, double billions, int devices) {
    return {.set = "a-set",
            .stack = "nemo-2024",
            .device = "h100-sxm",
            .precision = "bf16",
            .model = model,
            .parameters = static_cast<std::int64_t>(billions * 1e9),
            .devices = devices,
            .layout = "one device",
            .year = 2024,
            .source = "a table",
            .measured = 1000,
            .predicted = 1010};
}

PublishedRange range_of(const std::string& stack, const std::string& device) {
    return {.stack = stack,
            .device = device,
            .low = 0.9,
            .high = 1.2,
            .runs = 5,
            .sources = 3,
            .largest_devices = 128};
}

/// A range of models with routed experts.
PublishedRange with_experts() {
    PublishedRange range = range_of("nemo-2024", "h100-sxm");
    range.experts = true;
    range.high = 1.5;
    return range;
}

TEST(Evidence, IsReadAsItIsWritten) {
    PublishedRange of_all = range_of("", "");
    of_all.order_error = 0.07;
    const Evidence evidence{.runs = {run_of("Llama 3 8B", 8, 64), run_of("Llama 3 70B", 70, 64)},
                            .ranges = {of_all, range_of("nemo-2024", "h100-sxm"), with_experts()}};
    EXPECT_EQ(parse_evidence(print_evidence(evidence), "evidence.json"), evidence);
}

TEST(Evidence, RefusesUnknownKeysAndVersions) {
    const auto refused = [](const std::string& text) -> std::string {
        try {
            parse_evidence(text, "evidence.json");
        } catch (const Error& error) {
            return error.place();
        }
        return "";
    };
    EXPECT_THAT(refused(R"({"schema_version": 2, "runs": [], "ranges": []})"),
                HasSubstr("/schema_version"));
    EXPECT_THAT(refused(R"({"schema_version": 1, "runs": [{"sett": ""}], "ranges": []})"),
                HasSubstr("/runs/0"));
}

TEST(Evidence, NearestRunsAreNearInSizeAndOfTheSameKind) {
    const RunLike like{.stack = "nemo-2024",
                       .device = "h100-sxm",
                       .precision = "bf16",
                       .parameters = 70e9,
                       .devices = 64};
    PublishedRun other_device = run_of("other device", 70, 64);
    other_device.device = "b200";
    PublishedRun other_stack = other_device;
    other_stack.model = "other device and stack";
    other_stack.stack = "megatron-bridge-2025";
    const Evidence evidence{.runs = {run_of("eighth", 70. / 8, 64),
                                     other_stack,
                                     other_device,
                                     run_of("same", 70, 64),
                                     run_of("on twice as many", 70, 128)}};
    const std::vector<NearRun> nearest = nearest_runs(evidence, like);
    ASSERT_EQ(nearest.size(), 3U);
    EXPECT_EQ(nearest[0].run.model, "same");
    EXPECT_THAT(nearest[0].differs, IsEmpty());
    EXPECT_EQ(nearest[1].run.model, "other device");  // 0.5, below ln 2
    EXPECT_THAT(nearest[1].differs, ElementsAre("device"));
    EXPECT_EQ(nearest[2].run.model, "on twice as many");
    EXPECT_EQ(nearest_runs(evidence, like, 4).back().run.model, "other device and stack");
    EXPECT_THAT(nearest_runs(evidence, like, 4).back().differs, ElementsAre("device", "stack"));
    EXPECT_EQ(nearest_runs(evidence, like, 9).size(), evidence.runs.size());
}

/// A model with routed experts on half as many devices (ln 2) is nearer than one without on as many
/// (1).
TEST(Evidence, RunsOfModelsWithExpertsAreNearestToOneWithExperts) {
    PublishedRun experts = run_of("with experts", 70, 32);
    experts.experts = true;
    const Evidence evidence{.runs = {run_of("without", 70, 64), experts}, .ranges = {}};
    EXPECT_EQ(parse_evidence(print_evidence(evidence), "evidence.json"), evidence);
    RunLike like{.stack = "nemo-2024",
                 .device = "h100-sxm",
                 .precision = "bf16",
                 .parameters = 70e9,
                 .experts = true,
                 .devices = 64};
    const std::vector<NearRun> nearest = nearest_runs(evidence, like);
    ASSERT_EQ(nearest.size(), 2U);
    EXPECT_EQ(nearest.front().run.model, "with experts");
    EXPECT_THAT(nearest.front().differs, IsEmpty());
    EXPECT_THAT(nearest.back().differs, ElementsAre("kind of model"));
    like.experts = false;
    EXPECT_EQ(nearest_runs(evidence, like).front().run.model, "without");
}

TEST(Evidence, RangeIsThatOfStackAndDevice) {
    const Evidence evidence{
        .ranges = {range_of("", ""), range_of("nemo-2024", ""), range_of("nemo-2024", "h100-sxm")}};
    const ErrorRange known = range_of_stack(evidence, "nemo-2024", "h100-sxm", 128);
    EXPECT_DOUBLE_EQ(known.low, 0.9);
    EXPECT_DOUBLE_EQ(known.high, 1.2);
    EXPECT_EQ(unseen_text(known), "");
    EXPECT_THAT(known.of, HasSubstr("nemo-2024"));
}

TEST(Evidence, ModelsWithExpertsHaveARangeOfTheirOwn) {
    const Evidence evidence{.ranges = {range_of("nemo-2024", "h100-sxm"), with_experts()}};
    EXPECT_DOUBLE_EQ(range_of_stack(evidence, "nemo-2024", "h100-sxm", 128).high, 1.2);
    const ErrorRange experts = range_of_stack(evidence, "nemo-2024", "h100-sxm", 128, true);
    EXPECT_DOUBLE_EQ(experts.high, 1.5);
    EXPECT_EQ(experts.of, "published runs of models with experts of nemo-2024 on h100-sxm");
}

TEST(Evidence, RangeIsWiderForWhatNoRunHas) {
    const Evidence evidence{
        .ranges = {range_of("", ""), range_of("nemo-2024", ""), range_of("nemo-2024", "h100-sxm")}};
    const ErrorRange known = range_of_stack(evidence, "nemo-2024", "h100-sxm", 128);
    const ErrorRange device = range_of_stack(evidence, "nemo-2024", "h200-sxm", 128);
    EXPECT_LT(device.low, known.low);
    EXPECT_GT(device.high, known.high);
    EXPECT_EQ(unseen_text(device), "; none of them was on h200-sxm");
    const ErrorRange stack = range_of_stack(evidence, "maxtext", "tpu-v5p", 128);
    EXPECT_LT(stack.low, device.low);
    EXPECT_GT(stack.high, device.high);
    // 2 % more for each of three doublings.
    const ErrorRange large = range_of_stack(evidence, "nemo-2024", "h100-sxm", 1024);
    EXPECT_DOUBLE_EQ(large.low, known.low / 1.06);
    EXPECT_DOUBLE_EQ(large.high, known.high * 1.06);
    EXPECT_EQ(unseen_text(large), "; largest measured: 128 devices");
}

/// The shipped file: runs of known stacks and devices, and a range for each pair of them.
TEST(Evidence, ThatComesWithTheProgramIsOfKnownStacksAndDevices) {
    const auto evidence = shipped_evidence();
    ASSERT_GE(evidence->runs.size(), 66U);
    for (const PublishedRun& run : evidence->runs) {
        EXPECT_TRUE(find_stack(run.stack)->products_of(run.device, run.precision))
            << run.stack << ' ' << run.device << ' ' << run.precision;
        EXPECT_GT(run.measured, 0) << run.model;
        EXPECT_GT(run.predicted, 0) << run.model;
        bool has_range = false;  // of models with experts, or of others
        for (const bool experts : {false, true}) {
            if (const auto* const range = evidence->range_of(run.stack, run.device, experts)) {
                has_range = has_range || range->largest_devices >= run.devices;
                EXPECT_LE(range->low, 0.96);
                EXPECT_GE(range->high, 1.04);
            }
        }
        EXPECT_TRUE(has_range) << run.stack << ' ' << run.device << ' ' << run.devices;
    }
    ASSERT_NE(evidence->range_of("", "", true), nullptr);
    ASSERT_NE(evidence->range_of("", ""), nullptr);
    EXPECT_TRUE(evidence->range_of("", "")->order_error);
}

TEST(EstimateError, WithAStackIsThatOfItsRuns) {
    const RunKind kind{.stack = "nemo-2024", .device = "h100-sxm", .devices = 128};
    EXPECT_EQ(estimate_error(kind),
              range_of_stack(*shipped_evidence(), "nemo-2024", "h100-sxm", 128));
    EXPECT_NE(estimate_error(kind), estimate_error({}));
    EXPECT_EQ(order_error(CostSource::Measured, "nemo-2024"), order_error(CostSource::Measured));
}

}  // namespace evidence_test
}  // namespace pipetwin
