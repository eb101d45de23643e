// SPDX-License-Identifier: Apache-2.0
#include "core/artifacts/measured_runs.h"

#include <algorithm>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "tests/support/error_of.h"

namespace pipetwin {
namespace measured_runs_test {

using testing::error_of;
using ::testing::HasSubstr;

std::vector<MeasuredRun> runs_of(std::string_view text) {
    return parse_measured_runs(text, "runs.json");
}

Error refused(std::string_view text) {
    return error_of([text] { runs_of(text); });
}

std::string value_of(const MeasuredRun& run, std::string_view key) {
    const auto found = std::ranges::find(run.keys, key, &Override::key);
    return found == run.keys.end() ? "" : found->value;
}

TEST(MeasuredRuns, ReadEveryKeyOfARow) {
    const std::vector<MeasuredRun> runs = runs_of(R"({
        "name": "DP 8", "comment": "table 3", "source": "paper", "step_seconds": 60.5,
        "tflops_per_device": 140, "tflops_count": "hardware", "peak_bytes": 1e9,
        "tokens_per_second_per_device": 3000.5, "samples_per_second_per_device": 0.25,
        "tokens_per_sample": 2048, "pipeline.stages": 8, "training": {"batch": 64},
        "pipeline": {"schedule": "1f1b", "partition": [1, 2]}, "cluster.link_gbps": 12.5,
        "pipeline.sequence_parallel": true})");
    ASSERT_EQ(runs.size(), 1U);
    const MeasuredRun& run = runs.front();
    EXPECT_EQ(run.name, "DP 8");
    EXPECT_EQ(run.place, "runs.json: row 1 (DP 8)");
    EXPECT_EQ(run.step_seconds, 60.5);
    EXPECT_EQ(run.tflops_per_device, 140);
    EXPECT_EQ(run.flops_count, FlopsCount::Hardware);
    EXPECT_EQ(run.peak, Bytes{1'000'000'000});
    EXPECT_EQ(run.tokens_per_second_per_device, 3000.5);
    EXPECT_EQ(run.samples_per_second_per_device, 0.25);
    EXPECT_EQ(run.tokens_per_sample, 2048);
    EXPECT_EQ(run.keys.size(), 6U);
    EXPECT_EQ(value_of(run, "pipeline.stages"), "8");
    EXPECT_EQ(value_of(run, "training.batch"), "64");
    EXPECT_EQ(value_of(run, "pipeline.schedule"), "\"1f1b\"");
    EXPECT_EQ(value_of(run, "pipeline.partition"), "[1,2]");
    EXPECT_EQ(value_of(run, "cluster.link_gbps"), "12.5");
    EXPECT_EQ(value_of(run, "pipeline.sequence_parallel"), "true");
}

TEST(MeasuredRuns, HaveTimersByTheirNames) {
    const MeasuredTimers timers = runs_of(R"({"step_seconds": 2, "timer_seconds": {
        "forward-compute": 0.5, "backward-compute": 1.25}})")
                                      .front()
                                      .timers;
    EXPECT_EQ(timers.forward, 0.5);
    EXPECT_EQ(timers.backward, 1.25);
    EXPECT_FALSE(timers.pipeline);
    EXPECT_THAT(refused(R"({"step_seconds": 2, "timer_seconds": {"forward-computed": 1}})").what(),
                HasSubstr("forward-compute"));
    EXPECT_THAT(refused(R"({"step_seconds": 2, "timer_seconds": {"forward-compute": 0}})").what(),
                HasSubstr("seconds above 0"));
    EXPECT_THAT(refused(R"({"step_seconds": 2, "timer_seconds": 1.5})").what(),
                HasSubstr("an object, as in"));
}

TEST(MeasuredRuns, StandInAListInAnObjectOrOnALineEach) {
    for (const std::string_view text :
         {R"([{"step_seconds": 1}, {"step_seconds": 2}])",
          R"({"source": "paper", "rows": [{"step_seconds": 1}, {"step_seconds": 2}]})",
          "{\"step_seconds\": 1}\n{\"step_seconds\": 2}\n",
          "\n {\"step_seconds\": 1}\r\n\n{\"step_seconds\": 2}"}) {
        const std::vector<MeasuredRun> runs = runs_of(text);
        ASSERT_EQ(runs.size(), 2U) << text;
        EXPECT_EQ(runs[1].step_seconds, 2) << text;
        EXPECT_EQ(runs[1].place, "runs.json: row 2") << text;
    }
    EXPECT_EQ(runs_of("{\n\"step_seconds\": 1\n}").size(), 1U);
}

TEST(MeasuredRuns, RefuseAnUnknownKeyWithTheRowAndTheNearestKnownOne) {
    const Error measurement = refused(R"([{"step_seconds": 1}, {"step_secnds": 2}])");
    EXPECT_EQ(measurement.kind(), ErrorKind::BadInput);
    EXPECT_EQ(measurement.place(), "runs.json: row 2, step_secnds");
    EXPECT_THAT(measurement.hint(), HasSubstr("'step_seconds'"));
    // A key without its table.
    EXPECT_THAT(refused(R"({"step_seconds": 1, "stages": 8})").hint(),
                HasSubstr("'pipeline.stages'"));
    EXPECT_THAT(refused(R"({"step_seconds": 1, "batch_size": 8})").hint(),
                HasSubstr("'training.batch'"));
    EXPECT_THAT(refused(R"({"step_seconds": 1, "pipe.stages": 8})").place(),
                HasSubstr("pipe.stages"));
    EXPECT_THAT(refused(R"({"rows": [{"step_seconds": 1}], "row": 1})").text(),
                HasSubstr("unknown key"));
}

TEST(MeasuredRuns, RefuseWhatIsNoMeasurement) {
    EXPECT_THAT(refused(R"({"peak_bytes": 5})").text(), HasSubstr("step_seconds"));
    EXPECT_THAT(refused(R"({"step_seconds": 0})").text(), HasSubstr("above 0"));
    EXPECT_THAT(refused(R"({"step_seconds": "12 s"})").text(), HasSubstr("a number"));
    EXPECT_THAT(refused(R"({"step_seconds": 1, "peak_bytes": 0})").text(), HasSubstr("above 0"));
    EXPECT_THAT(refused(R"({"step_seconds": 1, "tflops_count": "model"})").text(),
                HasSubstr("tflops_per_device"));
    for (const auto& [word, count] : {std::pair{"model", FlopsCount::Palm},
                                      std::pair{"palm", FlopsCount::Palm},
                                      std::pair{"megatron", FlopsCount::Megatron},
                                      std::pair{"hardware", FlopsCount::Hardware}}) {
        const std::string row =
            fmt::format(R"({{"tflops_per_device": 1, "tflops_count": "{}"}})", word);
        EXPECT_EQ(parse_measured_runs(row, "x").front().flops_count, count) << word;
    }
    EXPECT_THAT(refused(R"({"tflops_per_device": 1, "tflops_count": "all"})").text(),
                HasSubstr("hardware"));
    EXPECT_THAT(refused(R"({"step_seconds": 1, "tokens_per_sample": 0})").text(),
                HasSubstr("from 1"));
    EXPECT_THAT(refused(R"({"step_seconds": 1, "pipeline.stages": null})").text(),
                HasSubstr("null"));
    EXPECT_THAT(
        refused(R"({"step_seconds": 1, "pipeline.stages": 2, "pipeline": {"stages": 2}})").text(),
        HasSubstr("twice"));
}

TEST(MeasuredRuns, RefuseTextsThatHaveNoRows) {
    EXPECT_THAT(refused("[]").text(), HasSubstr("0 rows"));
    EXPECT_THAT(refused(R"({"rows": []})").text(), HasSubstr("0 rows"));
    EXPECT_THAT(refused(R"({"rows": 3})").text(), HasSubstr("a list of rows"));
    EXPECT_THAT(refused("[3]").place(), HasSubstr("row 1"));
    EXPECT_THAT(refused("3").text(), HasSubstr("an object"));
    EXPECT_THAT(refused("{\"step_seconds\": 1}\n{\"step_seconds\": }").place(),
                HasSubstr("runs.json:2:"));
    std::string many = "[";
    for (int i = 0; i < 65; ++i) {
        many += std::string(i == 0 ? "" : ",") + R"({"step_seconds": 1})";
    }
    EXPECT_THAT(refused(many + "]").text(), HasSubstr("65 rows, expected 1 to 64"));
}

/// A row may be of another model than the scenario's; "model" may be a table of the scenario, too.
TEST(MeasuredRuns, NameModelDeviceStackAndPrecision) {
    const MeasuredRun run =
        parse_measured_runs(
            R"({"model": "llama-3-8b", "device": "h100-sxm", "stack": "nemo-2024", "precision": "fp8",
            "sequence": 8192, "step_seconds": 2})",
            "runs.json")
            .front();
    EXPECT_EQ(run.model, "llama-3-8b");
    EXPECT_EQ(run.device, "h100-sxm");
    EXPECT_EQ(run.stack, "nemo-2024");
    EXPECT_EQ(run.precision, "fp8");
    EXPECT_EQ(run.tokens_per_sample, 8192);
    EXPECT_TRUE(run.keys.empty());
    const MeasuredRun table =
        parse_measured_runs(R"({"model": {"kind": "gpt"}, "step_seconds": 2})", "runs.json")
            .front();
    EXPECT_TRUE(table.model.empty());
    EXPECT_EQ(table.keys.size(), 1U);
    EXPECT_THROW(parse_measured_runs(
                     R"({"sequence": 4096, "tokens_per_sample": 8192, "step_seconds": 2})", "x"),
                 Error);
}

}  // namespace measured_runs_test
}  // namespace pipetwin
