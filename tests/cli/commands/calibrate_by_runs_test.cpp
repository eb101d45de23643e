// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <string>

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "tests/cli/support.h"

namespace pipetwin::cli {
namespace calibrate_by_runs_test {

using ::testing::HasSubstr;
using ::testing::Not;

/// Eight layers of 3 ms, and sizes.
constexpr std::string_view profile_text = R"({"schema_version": 1, "source": "estimated",
 "tokens_per_sample": 100,
 "layers": [{"name": "block", "repeat": 8, "parameter_bytes": 1000000, "parameter_count": 250000,
   "operations_per_sample": 1e9,
   "samples": [{"micro_batch_size": 1, "forward_ns": 1000000, "backward_ns": 2000000,
     "output_bytes": 100000, "saved_bytes": 2000000},
    {"micro_batch_size": 2, "forward_ns": 2000000, "backward_ns": 4000000,
     "output_bytes": 200000, "saved_bytes": 4000000}]}]})";

constexpr std::string_view scenario_text = R"([model]
kind = "profile"
file = "model.profile.json"
[training]
batch = 8
optimizer = "sgd"
[pipeline]
stages = 2
micro_batches = 8
schedule = "1f1b"
recompute = "none"
data_parallel = 1
)";

class CalibrateByRuns : public InFolder {
  protected:
    void SetUp() override {
        file("model.profile.json", profile_text);
        scenario_ = file("run.toml", scenario_text);
    }

    Outcome simulated(std::string_view rows, const std::vector<std::string>& more = {}) {
        const std::string runs = file("runs.json", rows);
        return pipetwin(joined({"simulate", scenario_, "--calibrate", runs}, more));
    }

    std::string scenario_;
};

/// 1f1b of equal stages without transfers: (m + p - 1) (F + B) = 9 * 12 ms, in a run that took 1.5
/// times as long.
TEST_F(CalibrateByRuns, SimulatePredictsTheMeasuredStepAndSaysHow) {
    const Outcome outcome = simulated(R"({"name": "mine", "step_seconds": 0.162})", {"--json"});
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    const nlohmann::json result = outcome.json();
    EXPECT_NEAR(result["step_ms"].get<double>(), 162, 1e-3);
    const nlohmann::json& calibration = result["calibration"];
    EXPECT_NEAR(calibration["compute_factor"].get<double>(), 1.5, 1e-5);
    EXPECT_TRUE(calibration["memory_factor"].is_null());
    EXPECT_TRUE(calibration["warnings"].empty());
    const nlohmann::json& row = calibration["rows"][0];
    EXPECT_EQ(row["name"], "mine");
    EXPECT_EQ(row["measured_step_ms"], 162);
    EXPECT_NEAR(row["predicted_step_ms"].get<double>(), 108, 1e-9);
    EXPECT_NEAR(row["calibrated_step_ms"].get<double>(), 162, 1e-3);
    EXPECT_TRUE(row["measured_peak_bytes"].is_null());
    EXPECT_TRUE(row["leave_one_out_error_percent"].is_null());
}

TEST_F(CalibrateByRuns, TextSaysWhatTheFactorsMean) {
    const Outcome outcome = simulated(
        R"([{"step_seconds": 0.162}, {"training.batch": 16, "pipeline.micro_batches": 16,
            "step_seconds": 0.306}])");
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_THAT(outcome.out, HasSubstr("Calibrated by 2 measured runs"));
    EXPECT_THAT(outcome.out, HasSubstr("layers take 1.5 times as long"));
    EXPECT_THAT(outcome.out, HasSubstr("run 2 (2 stages, 1 replica, 2 devices, 16 micro-batches"));
    EXPECT_THAT(outcome.out, HasSubstr("0.0 % off in the mean"));
}

TEST_F(CalibrateByRuns, WithoutMeasuredRunsTheKeyIsNull) {
    const nlohmann::json result = pipetwin({"simulate", scenario_, "--json"}).json();
    ASSERT_TRUE(result.contains("calibration"));
    EXPECT_TRUE(result["calibration"].is_null());
    EXPECT_TRUE(pipetwin({"plan", scenario_, "--json"}).json()["calibration"].is_null());
    EXPECT_TRUE(pipetwin(simulate_args({.stages = 2}, {"--json"})).json()["calibration"].is_null());
}

/// What `--out` holds predicts the same without the measured runs, and says by what.
TEST_F(CalibrateByRuns, TheCalibratedCostsAreWritten) {
    ASSERT_EQ(simulated(R"({"step_seconds": 0.162})", {"--out", path("out")}).code, 0);
    const Outcome again = pipetwin(
        {"simulate", path("out/scenario.toml"), "--profile", path("out/profile.json"), "--json"});
    ASSERT_EQ(again.code, 0) << again.err;
    EXPECT_NEAR(again.json()["step_ms"].get<double>(), 162, 1e-3);
    EXPECT_TRUE(again.json()["calibration"].is_null());
    EXPECT_THAT(again.err, HasSubstr("calibrated before, by 1 measured run"));
    EXPECT_THAT(pipetwin({"simulate", scenario_}).err, Not(HasSubstr("calibrated before")));
}

/// A key that a row does not name has the scenario's value, which --set may have changed: a note
/// says so.
TEST_F(CalibrateByRuns, RowsThatTakeAKeyOfTheCommandLineAreTold) {
    const std::vector<std::string> set{"--set", "pipeline.stages=4"};
    EXPECT_THAT(simulated(R"({"step_seconds": 0.162})", set).err,
                HasSubstr("row 1 does not name pipeline.stages"));
    const Outcome named = simulated(R"({"step_seconds": 0.162, "pipeline.stages": 2})", set);
    EXPECT_THAT(named.err, Not(HasSubstr("does not name")));
    EXPECT_THAT(named.out, HasSubstr("2 stages"));
}

/// 8 samples on one device in 8 * 24 ms; in a run that took twice as long. The plan for two devices
/// takes 9 * 12 ms, twice as long, too.
TEST_F(CalibrateByRuns, PlanSearchesWithTheCalibratedCosts) {
    const std::string runs = file("runs.json", R"({"pipeline.stages": 1, "step_seconds": 0.384})");
    const Outcome outcome = pipetwin({"plan", scenario_, "--calibrate", runs, "--json"});
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_NEAR(outcome.json()["calibration"]["compute_factor"].get<double>(), 2, 1e-5);
    EXPECT_NEAR(outcome.json()["best"]["step_ms"].get<double>(), 216, 1e-2);
    EXPECT_THAT(outcome.err, HasSubstr("implausible"));
    const Outcome open =
        pipetwin({"plan", scenario_, "--calibrate", runs, "--set", "pipeline.micro_batches=auto"});
    EXPECT_EQ(open.code, 3);
    EXPECT_THAT(open.err, HasSubstr("row 1"));
    EXPECT_THAT(open.err, HasSubstr("pipeline.micro_batches"));
    EXPECT_EQ(pipetwin({"plan",
                        scenario_,
                        "--calibrate",
                        runs,
                        "--largest",
                        "layers",
                        "--set",
                        "cluster.memory_limit=1 GB"})
                  .code,
              0);
}

/// `plan` opens what a scenario does not write down; a run on one device to a rank has nothing to
/// say of what such devices divide, and one pipeline nothing of what replicas share.
TEST_F(CalibrateByRuns, ARowNeedNotNameWhatHasNoEffect) {
    const std::string open = file("open.toml", R"([model]
kind = "profile"
file = "model.profile.json"
[training]
batch = 8
[cluster]
count = 2
)");
    const std::string runs = file("runs.json", R"({"step_seconds": 0.162, "pipeline.stages": 2,
"pipeline.micro_batches": 8, "pipeline.schedule": "1f1b", "pipeline.recompute": "none",
"pipeline.data_parallel": 1, "pipeline.chunks": 1})");
    const Outcome outcome = pipetwin({"plan", open, "--calibrate", runs, "--json"});
    EXPECT_EQ(outcome.code, 0) << outcome.err;
}

TEST_F(CalibrateByRuns, ARowThatContradictsItselfIsBadInput) {
    // 8 samples of 100 tokens on 2 devices in 162 ms: 2469 tokens a second.
    const Outcome outcome =
        simulated(R"({"step_seconds": 0.162, "tokens_per_second_per_device": 2600})");
    EXPECT_EQ(outcome.code, 3);
    EXPECT_THAT(outcome.err, HasSubstr("runs.json: row 1"));
    EXPECT_THAT(outcome.err, HasSubstr("within 2 %"));
    EXPECT_THAT(outcome.err, HasSubstr("2469"));
    EXPECT_EQ(simulated(R"({"step_seconds": 0.162, "tflops_per_device": 0.61})").code, 3);
    // 8 samples of 3 * 8e9 operations on 2 devices in 162 ms: 0.593 TFLOP/s.
    EXPECT_EQ(simulated(R"({"step_seconds": 0.162, "tflops_per_device": 0.593})").code, 0);
    EXPECT_EQ(simulated(R"({"step_seconds": 0.162, "pipeline.stagess": 1})").code, 3);
    EXPECT_EQ(simulated("no rows").code, 3);
}

TEST_F(CalibrateByRuns, PlainNumbersAreRefused) {
    const std::string runs = file("runs.json", R"({"step_seconds": 1})");
    const Outcome outcome = pipetwin(simulate_args({.stages = 2}, {"--calibrate", runs}));
    EXPECT_EQ(outcome.code, 2);
    EXPECT_THAT(outcome.err, HasSubstr("--calibrate"));
}

}  // namespace calibrate_by_runs_test
}  // namespace pipetwin::cli
