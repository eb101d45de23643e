#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "tests/cli/support.h"

/// `pipetwin plan`, from a scenario to the plan that it proves.
namespace pipetwin::cli {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// Two layers of 1 ms forward and 2 ms backward a sample, 1 MB of weights each; free messages. With
/// sgd and gradients a layer takes 2 MB. Eight samples, two devices.
class PlanCommand : public InFolder {
  protected:
    Outcome plan(std::string_view keys, const std::vector<std::string>& more = {}) const {
        constexpr std::string_view layers = R"(
 {"name": "a", "parameter_bytes": 1000000, "samples": [{"micro_batch_size": 1, "forward_ns": 1000000,
  "backward_input_ns": 1000000, "backward_weight_ns": 1000000, "output_bytes": 0, "saved_bytes": 0}]},
 {"name": "b", "parameter_bytes": 1000000, "samples": [{"micro_batch_size": 1, "forward_ns": 1000000,
  "backward_input_ns": 1000000, "backward_weight_ns": 1000000, "output_bytes": 0, "saved_bytes": 0}]})";
        file("x.profile.json",
             fmt::format(R"({{"schema_version": 1, "source": "measured", "layers": [{}]}})",
                         layers));
        const std::string scenario = file("x.toml",
                                          fmt::format(R"(
[model]
kind = "profile"
file = "x.profile.json"
[training]
batch = 8
optimizer = "sgd"
{})",
                                                      keys));
        return pipetwin(joined({"plan", scenario}, more));
    }
};

// Each of two replicas has four samples of 6 ms.
TEST_F(PlanCommand, SaysThatPipeliningDoesNotHelpWhereItDoesNot) {
    const Outcome outcome = plan("[cluster]\ncount = 2\n");
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_THAT(outcome.out,
                AllOf(HasSubstr("Pipelining does not help here"),
                      HasSubstr("Proven: no other plan of the searched space is faster"),
                      HasSubstr("data_parallel = 2\n")));
    const auto json = plan("[cluster]\ncount = 2\n", {"--json"}).json();
    EXPECT_EQ(json["best"]["step_ms"], 24);
    EXPECT_EQ(json["best"]["stages"], 1);
    EXPECT_EQ(json["lower_bound_ms"], 24);
    EXPECT_EQ(json["proven_optimal"], true);
    std::int64_t infeasible = 0;
    for (const auto& entry : json["infeasible"]) {
        infeasible += entry["count"].get<std::int64_t>();
    }
    EXPECT_EQ(
        json["open"].get<std::int64_t>(),
        json["searched"].get<std::int64_t>() + json["pruned"].get<std::int64_t>() + infeasible);
}

// A device has room for one layer. The second cannot begin before 1 ms, and has 24 ms to do; the
// zero-bubble schedules come to that. 1f1b takes (m + p - 1) (f + b).
TEST_F(PlanCommand, PlansWhatFits) {
    const std::string cluster = "[cluster]\ncount = 2\nmemory_limit = 3000000\n";
    const auto open = plan(cluster, {"--json"}).json();
    EXPECT_EQ(open["best"]["step_ms"], 25);
    EXPECT_EQ(open["best"]["stages"], 2);
    EXPECT_THAT(open["best"]["partition"].get<std::vector<int>>(), ElementsAre(1, 1));
    EXPECT_EQ(open["proven_optimal"], true);
    const auto written = plan(cluster + "[pipeline]\nschedule = \"1f1b\"\n", {"--json"}).json();
    EXPECT_EQ(written["best"]["step_ms"], 27);
    EXPECT_EQ(written["best"]["schedule"], "1f1b");
    EXPECT_EQ(written["any_partition_bound_ms"], 27);
}

TEST_F(PlanCommand, WhatItFindsIsWhatSimulateSays) {
    const auto found =
        plan("[cluster]\ncount = 2\nmemory_limit = 3000000\n", {"--json"}).json()["best"];
    std::vector<std::string> args{"simulate", path("x.toml"), "--json"};
    for (const char* const key :
         {"stages", "micro_batches", "schedule", "recompute", "partition"}) {
        args.insert(args.end(), {"--set", fmt::format("pipeline.{}={}", key, found[key].dump())});
    }
    const auto simulated = pipetwin(args).json();
    EXPECT_EQ(simulated["step_ms"], found["step_ms"]);
}

TEST_F(PlanCommand, SaysWhatIsMissingWhereNothingFits) {
    const Outcome outcome = plan("[cluster]\ncount = 2\nmemory_limit = 1500000\n");
    EXPECT_EQ(outcome.code, 4);
    EXPECT_THAT(outcome.err,
                AllOf(HasSubstr("can be run"), HasSubstr("more memory"), HasSubstr("hint: ")));
}

TEST_F(PlanCommand, AsksHowManyDevicesThereAre) {
    const Outcome outcome = plan("");
    EXPECT_EQ(outcome.code, 3);
    EXPECT_THAT(outcome.err, HasSubstr("set cluster.count"));
}

// One stage does not fit. Costs are known for micro-batches of one sample and, scaled, of two: 8 or
// 4 of them.
TEST_F(PlanCommand, DrawsAHeatMap) {
    const std::string keys = "[cluster]\ncount = 2\nmemory_limit = 3000000\n";
    const std::string picture = path("heat.svg");
    const auto json = plan(keys, {"--json", "--heatmap", picture}).json();
    EXPECT_EQ(json["heat_map"].size(), 2U);
    for (const auto& cell : json["heat_map"]) {
        EXPECT_EQ(cell["stages"], 2);
    }
    const std::string svg = content_of(picture);
    EXPECT_THAT(svg, AllOf(HasSubstr("<svg"), HasSubstr("url(#none)"), HasSubstr("stages")));
    const Outcome again = plan(keys, {"--heatmap", picture});
    EXPECT_EQ(again.code, 6);  // it is there
    const Outcome forced = plan(keys, {"--heatmap", picture, "--force"});
    EXPECT_THAT(forced.out, HasSubstr("Samples per second of the best plan"));
}

}  // namespace
}  // namespace pipetwin::cli
