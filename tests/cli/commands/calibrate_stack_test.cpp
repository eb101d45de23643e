// SPDX-License-Identifier: Apache-2.0
#include <string>

#include <gmock/gmock.h>

#include "core/costs/devices/shipped_profiles.h"
#include "core/costs/devices/stack.h"
#include "tests/cli/support.h"

namespace pipetwin::cli {
namespace calibrate_stack_test {

using ::testing::HasSubstr;

/// A run that takes about a sixth longer than estimated.
constexpr std::string_view row = R"({"model": "llama-3-8b", "device": "h100-sxm",
 "stack": "nemo-2024", "sequence": 8192, "training.batch": 128, "pipeline.stages": 1,
 "pipeline.data_parallel": 8, "pipeline.micro_batches": 16, "pipeline.shard": "weights",
 "pipeline.recompute": "none", "pipeline.schedule": "1f1b", "step_seconds": 14.5})";

/// The layout of `row` with the costs of a profile.
std::string on_one_node(const std::string& profile) {
    return "[model]\nkind = \"profile\"\nfile = \"" + profile + R"("
[training]
batch = 128
precision = "bf16"
[cluster]
profile = "8x-h100-sxm"
[pipeline]
data_parallel = 8
micro_batches = 16
shard = "weights"
schedule = "1f1b"
recompute = "none"
)";
}

class CalibrateStack : public InFolder {
  protected:
    Outcome calibrated(std::string_view rows, const std::vector<std::string>& more = {}) {
        return pipetwin(joined(
            {"calibrate", file("rows.json", rows), "--out", path("own.toml"), "--force"}, more));
    }
};

TEST_F(CalibrateStack, WritesAStackThatCommandsTake) {
    const Outcome outcome = calibrated(row, {"--json"});
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    const nlohmann::json result = outcome.json();
    EXPECT_EQ(result["stack"], "nemo-2024");
    EXPECT_NEAR(result["rows"][0]["calibrated_step_ms"].get<double>(), 14500, 145);
    EXPECT_GT(result["calibrated"][0]["products"].get<double>(), 1.05);
    const auto stack = find_stack(path("own.toml"));
    ASSERT_EQ(stack->measured.size(), 1U);
    EXPECT_EQ(stack->measured.front().devices, 8);
    EXPECT_FALSE(stack->calibrated.empty());

    const Outcome imported = pipetwin({"import",
                                       "hf",
                                       "llama-3-8b",
                                       "--device",
                                       "h100-sxm",
                                       "--sequence",
                                       "8192",
                                       "--micro-batch-size",
                                       "1",
                                       "--stack",
                                       path("own.toml"),
                                       "--out",
                                       path("own.profile.json")});
    ASSERT_EQ(imported.code, 0) << imported.err;
    const std::string scenario = file("run.toml", on_one_node("own.profile.json"));
    const Outcome again = pipetwin({"simulate", scenario, "--json"});
    ASSERT_EQ(again.code, 0) << again.err;
    EXPECT_NEAR(again.json()["step_ms"].get<double>(), 14500, 290);
    EXPECT_THAT(again.out, HasSubstr("1 measured run of this layout"));
}

TEST_F(CalibrateStack, TextSaysWhatWasFound) {
    const Outcome outcome = calibrated(row);
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_THAT(outcome.out, HasSubstr("nemo-2024, corrected by 1 measured run"));
    EXPECT_THAT(outcome.out, HasSubstr("h100-sxm in bf16: products 1."));
    EXPECT_THAT(outcome.out, HasSubstr("llama-3-8b on h100-sxm in bf16, 1 stage, 8 replicas"));
}

/// Rows of another model correct costs of which no run was measured: both take as many times as
/// long.
TEST_F(CalibrateStack, RowsOfAnotherModelCorrectACostFile) {
    ASSERT_EQ(pipetwin({"import",
                        "hf",
                        "llama-2-7b",
                        "--device",
                        "h100-sxm",
                        "--sequence",
                        "4096",
                        "--micro-batch-size",
                        "1",
                        "--precision",
                        "bf16",
                        "--stack",
                        "nemo-2024",
                        "--out",
                        path("other.profile.json")})
                  .code,
              0);
    const std::string scenario = file("run.toml", on_one_node("other.profile.json"));
    const double before = pipetwin({"simulate", scenario, "--json"}).json()["step_ms"];
    const Outcome outcome =
        pipetwin({"simulate", scenario, "--calibrate", file("rows.json", row), "--json"});
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    const nlohmann::json calibration = outcome.json()["calibration"];
    const double slower = calibration["rows"][0]["measured_step_ms"].get<double>() /
                          calibration["rows"][0]["predicted_step_ms"].get<double>();
    EXPECT_GT(slower, 1.05);
    EXPECT_NEAR(outcome.json()["step_ms"].get<double>() / before, slower, 0.01);
}

TEST_F(CalibrateStack, WhatIsWrongIsRefused) {
    EXPECT_EQ(calibrated(row, {"--forward", "block=h.0"}).code, 2);
    const Outcome no_stack = calibrated(R"({"model": "llama-3-8b", "device": "h100-sxm",
        "sequence": 8192, "step_seconds": 1})");
    EXPECT_EQ(no_stack.code, 3);
    EXPECT_THAT(no_stack.err, HasSubstr("no \"stack\""));
    const Outcome unknown = calibrated(R"({"model": "llama-3-8b", "device": "h100-sxm",
        "stack": "nemo-2042", "sequence": 8192, "step_seconds": 1})");
    EXPECT_EQ(unknown.code, 3);
    EXPECT_THAT(unknown.err, HasSubstr("nemo-2024"));
    EXPECT_EQ(calibrated("{").code, 3);
    ASSERT_EQ(calibrated(row).code, 0);
    const Outcome twice = calibrated(R"({"model": "llama-3-8b", "device": "h100-sxm",
        "stack": ")" + path("own.toml") +
                                     R"(", "sequence": 8192, "training.batch": 8,
        "pipeline.stages": 1, "pipeline.data_parallel": 8, "pipeline.micro_batches": 1,
        "step_seconds": 1})");
    EXPECT_EQ(twice.code, 3);
    EXPECT_THAT(twice.err, HasSubstr("calibrated before"));
}

}  // namespace calibrate_stack_test
}  // namespace pipetwin::cli
