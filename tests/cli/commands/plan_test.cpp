// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "core/model/model.h"
#include "tests/cli/support.h"

/// `pipetwin plan`, from a scenario to the plan that it proves.
namespace pipetwin::cli {
namespace plan_test {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::ContainsRegex;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

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

// The best of a list is the best of its schedules, each alone; others are not tried.
TEST_F(PlanCommand, SearchesTheSchedulesOfAList) {
    const std::string keys = "[pipeline]\ndata_parallel = 1\nstages = 2\n[cluster]\ncount = 2\n";
    const auto step = [&](const std::string& schedules) {
        const Outcome outcome = plan(keys, {"--json", "--schedule", schedules});
        EXPECT_EQ(outcome.code, 0) << outcome.err;
        return outcome.json()["best"]["step_ms"].get<double>();
    };
    EXPECT_EQ(step("gpipe,zb-h2"), std::min(step("gpipe"), step("zb-h2")));
    EXPECT_EQ(step("1f1b,zb-h1"), std::min(step("1f1b"), step("zb-h1")));
    const Outcome listed =
        plan(keys, {"--json", "--set", R"(pipeline.schedule=["gpipe", "zb-h2"])"});
    ASSERT_EQ(listed.code, 0) << listed.err;
    for (const auto& candidate : listed.json()["candidates"]) {
        EXPECT_THAT(candidate["schedule"].get<std::string>(), AnyOf("gpipe", "zb-h2"));
    }
    const Outcome unknown = plan(keys, {"--schedule", "1f1b,zbh1"});
    EXPECT_EQ(unknown.code, 2);
    EXPECT_THAT(unknown.err, AllOf(HasSubstr("--schedule: "), HasSubstr("zb-h1")));
}

/// The table of such a plan did not say that nothing can train with it.
TEST_F(PlanCommand, SaysThatAScheduleWithStaleGradientsIsSimulatedOnly) {
    const std::string keys = "[pipeline]\ndata_parallel = 1\nstages = 2\n[cluster]\ncount = 2\n";
    const std::string said = "gradients are stale: pipedream updates weights while";
    EXPECT_THAT(plan(keys, {"--schedule", "pipedream"}).err, HasSubstr(said));
    EXPECT_THAT(plan(keys, {"--schedule", "1f1b"}).err, Not(HasSubstr("stale")));
}

// Each of two replicas has four samples of 6 ms.
TEST_F(PlanCommand, SaysThatPipeliningDoesNotHelpWhereItDoesNot) {
    const Outcome outcome = plan("[cluster]\ncount = 2\n");
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_THAT(outcome.out,
                AllOf(HasSubstr("Pipelining does not help here"),
                      HasSubstr("Proven optimal within the model of costs: no other plan that was "
                                "searched is faster, with any"),
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

TEST_F(PlanCommand, OnePlanIsNoPlural) {
    const Outcome outcome = plan(
        "[cluster]\ncount = 1\n[pipeline]\nstages = 1\nmicro_batches = 8\nschedule = \"1f1b\"\n"
        "recompute = \"none\"\ndata_parallel = 1\ntensor_parallel = 1\n");
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_THAT(outcome.out, HasSubstr("1 combination was considered: 1 was simulated.\n"));
}

/// Ten combinations were counted as simulated above a table of eight.
TEST_F(PlanCommand, CountsPlansThatAreTheSameAsAnother) {
    const std::string keys =
        "[cluster]\ncount = 2\n[pipeline]\nstages = 2\nmicro_batches = 8\nschedule = \"gpipe\"\n"
        "data_parallel = 1\n";
    const auto json = plan(keys, {"--json"}).json();
    ASSERT_EQ(json["pruned"], 0);
    std::set<std::string> recomputes;
    for (const auto& candidate : json["candidates"]) {
        recomputes.insert(candidate["recompute"].dump());
    }
    const int searched = json["searched"].get<int>();
    const int repeated = searched - static_cast<int>(recomputes.size());
    ASSERT_GT(repeated, 0);
    EXPECT_THAT(
        plan(keys).out,
        HasSubstr(fmt::format("{0} combinations were considered: {0} were simulated ({1} of "
                              "them {2} the same plan as another).\n",
                              searched,
                              repeated,
                              repeated == 1 ? "is" : "are")));
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

// With Adam's state both layers take 8 MB: 2 MB of weights, as many of gradients and 4 MB of state,
// half of which each of two replicas has that share it.
TEST_F(PlanCommand, PrintsWhatReplicasShare) {
    const std::string keys =
        "[cluster]\ncount = 2\nmemory_limit = 6500000\n[pipeline]\nstages = 1\n"
        "shard = \"auto\"\n";
    const std::vector<std::string> adam{"--set", "training.optimizer=adam"};
    const Outcome text = plan(keys, adam);
    ASSERT_EQ(text.code, 0) << text.err;
    EXPECT_THAT(text.out, HasSubstr("data_parallel = 2\nshard = \"optimizer\"\n"));
    const auto json = plan(keys, joined(adam, {"--json"})).json();
    EXPECT_EQ(json["candidates"][0]["shard"], "optimizer");
    EXPECT_EQ(json["candidates"][0]["sequence_parallel"], false);
    EXPECT_EQ(json["candidates"][0]["scatter_boundaries"], false);
    const Outcome none = plan(keys, joined(adam, {"--set", "pipeline.shard=none"}));
    EXPECT_EQ(none.code, 4);
}

TEST_F(PlanCommand, SaysWhatIsMissingWhereNothingFits) {
    const Outcome outcome = plan("[cluster]\ncount = 2\nmemory_limit = 1500000\n");
    EXPECT_EQ(outcome.code, 4);
    EXPECT_THAT(outcome.err,
                AllOf(HasSubstr("can be run"),
                      HasSubstr("more memory"),
                      HasSubstr("closest to fitting: 2 stages"),
                      HasSubstr("needs 1.91 MiB"),  // a layer: 2 MB
                      HasSubstr("hint: ")));
}

// One micro-batch of eight samples, and costs for one.
TEST_F(PlanCommand, SaysWhichCostsAreMissing) {
    const Outcome outcome =
        plan("[cluster]\ncount = 2\n[pipeline]\nmicro_batches = 1\ndata_parallel = 1\n");
    EXPECT_EQ(outcome.code, 3);
    EXPECT_THAT(outcome.err,
                AllOf(HasSubstr("costs are known for micro-batches of 1 sample, but these have 8"),
                      HasSubstr("hint: profile the layers at these sizes")));
}

/// A hint to leave more open helps no plan where all lack costs of the device.
TEST_F(PlanCommand, HasTheHintOfWhatStandsInTheWayOfEveryPlan) {
    file("here.profile.json", R"({"schema_version": 1, "source": "measured",
 "device": "this-machine", "layers": [
 {"name": "a", "repeat": 2, "parameter_bytes": 1, "samples": [{"micro_batch_size": 1, "forward_ns": 1000000,
  "backward_ns": 2000000, "output_bytes": 0, "saved_bytes": 0}]}]})");
    for (const std::vector<std::string>& more :
         {std::vector<std::string>{}, {"--largest", "layers"}}) {
        const Outcome outcome =
            plan("[cluster]\ncount = 2\ndevice = \"h100-sxm\"\nscale_costs = \"cautious\"\n",
                 joined({"--set", "model.file=here.profile.json"}, more));
        EXPECT_EQ(outcome.code, 3);
        EXPECT_THAT(outcome.err,
                    AllOf(HasSubstr("rates are not known, so they cannot be scaled to 'h100-sxm'"),
                          HasSubstr("hint: profile the model on 'h100-sxm'")));
    }
}

// Ten digits of a table would do; what is the same in all rows is said once.
TEST_F(PlanCommand, FitsItsTableIntoTheWidthOfTheTerminal) {
    const Outcome outcome =
        plan("[cluster]\ncount = 2\n[pipeline]\nmicro_batches = 8\nrecompute = \"none\"\n");
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_THAT(outcome.out, HasSubstr("All of these plans: "));
    const std::string table = outcome.out.substr(0, outcome.out.find("What is proven"));
    EXPECT_THAT(table, HasSubstr("layers per stage"));
    std::istringstream lines(table);
    for (std::string line; std::getline(lines, line);) {
        EXPECT_LE(line.size(), 100U) << line;
    }
}

TEST_F(PlanCommand, AsksHowManyDevicesThereAre) {
    const Outcome outcome = plan("");
    EXPECT_EQ(outcome.code, 3);
    EXPECT_THAT(outcome.err, HasSubstr("set cluster.count"));
}

// With sgd a layer takes 2 MB, its weights and their gradients.
TEST_F(PlanCommand, FindsHowManyLayersFit) {
    const std::string cluster = "[cluster]\ncount = 3\nmemory_limit = 4500000\n";
    const Outcome outcome = plan(cluster, {"--largest", "layers"});
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_THAT(outcome.out,
                AllOf(HasSubstr("6 layers fit"),
                      HasSubstr("the profile has 2"),
                      HasSubstr("One more does not fit"),
                      HasSubstr("partition = [2, 2, 2]")));
    const auto json = plan(cluster, {"--largest", "layers", "--json"}).json()["largest"];
    EXPECT_EQ(json["layers"], 6);
    EXPECT_EQ(json["layers_in_profile"], 2);
    EXPECT_EQ(json["complete"], true);
    EXPECT_EQ(json["parameters"], nullptr);  // the profile has bytes alone
    EXPECT_EQ(json["stages"], 3);
    EXPECT_THAT(json["partition"].get<std::vector<int>>(), ElementsAre(2, 2, 2));
    for (const auto& device : json["devices"]) {
        EXPECT_EQ(device["peak_bytes"]["total"], 4'000'000);
        EXPECT_EQ(device["limit_bytes"], 4'500'000);
    }
    EXPECT_EQ(json["next"]["layers"], 7);
    EXPECT_EQ(json["next"]["peak_bytes"], 6'000'000);
    EXPECT_EQ(json["next"]["limit_bytes"], 4'500'000);
    EXPECT_EQ(json["next"]["why"], nullptr);
}

TEST_F(PlanCommand, NamesTheClosestPlanWhereNotEvenOneLayerFits) {
    const Outcome outcome =
        plan("[cluster]\ncount = 2\nmemory_limit = 1500000\n", {"--largest", "layers"});
    EXPECT_EQ(outcome.code, 4);
    EXPECT_THAT(outcome.err,
                AllOf(HasSubstr("not even one layer like a fits"),
                      HasSubstr("closest to fitting: "),
                      HasSubstr("needs 1.91 MiB"),
                      HasSubstr("hint: ")));
}

TEST_F(PlanCommand, AsksForTheMostOfLayersOnly) {
    const Outcome word = plan("[cluster]\ncount = 2\n", {"--largest", "layer"});
    EXPECT_EQ(word.code, 2);
    EXPECT_THAT(word.err, AllOf(HasSubstr("'layer'"), HasSubstr("did you mean 'layers'?")));
    const Outcome both =
        plan("[cluster]\ncount = 2\n", {"--largest", "layers", "--heatmap", path("heat.svg")});
    EXPECT_EQ(both.code, 2);
    const Outcome unlimited = plan("[cluster]\ncount = 2\n", {"--largest", "layers"});
    EXPECT_EQ(unlimited.code, 3);
    EXPECT_THAT(unlimited.err, HasSubstr("cluster.memory_limit"));
}

// One stage does not fit. Costs are known for micro-batches of one sample and, scaled, of two: 8 or
// 4 of them.
// first 1, an arm of 10, 10, 1 and an arm of 1, 1, 1, last 1 (ms forward, as long backward), with 8
// micro-batches on two devices, gpipe: (stage 0 + 8 * stage 1) * 2 with 11 and 15, or with 13 and
// 13 and the second arm between the long layers of the first.
TEST_F(PlanCommand, TakesTheLayersOfAGraphInABetterOrder) {
    struct Layer {
        std::string_view name;
        int forward;
        std::string_view inputs;
    };
    std::string layers;
    for (const Layer& layer : {Layer{"first", 1, ""},
                               Layer{"a0", 10, R"("first")"},
                               Layer{"a1", 10, R"("a0")"},
                               Layer{"a2", 1, R"("a1")"},
                               Layer{"b0", 1, R"("first")"},
                               Layer{"b1", 1, R"("b0")"},
                               Layer{"b2", 1, R"("b1")"},
                               Layer{"last", 1, R"("a2", "b2")"}}) {
        layers +=
            fmt::format(R"({}{{"name": "{}", "inputs": [{}], "parameter_bytes": 0, "samples": [
 {{"micro_batch_size": 1, "forward_ns": {}000000, "backward_input_ns": {}000000,
  "backward_weight_ns": 0, "output_bytes": 0, "saved_bytes": 0}}]}})",
                        layers.empty() ? "" : ", ",
                        layer.name,
                        layer.inputs,
                        layer.forward,
                        layer.forward);
    }
    file("g.profile.json",
         fmt::format(R"({{"schema_version": 1, "source": "measured", "layers": [{}]}})", layers));
    const std::string scenario = file("g.toml", R"(
model = {kind = "profile", file = "g.profile.json"}
training = {batch = 8, optimizer = "sgd"}
cluster = {count = 2}
pipeline = {stages = 2, schedule = "gpipe", micro_batches = 8, recompute = "none"}
)");
    const Outcome own = pipetwin({"plan", scenario, "--json"});
    ASSERT_EQ(own.code, 0) << own.err;
    EXPECT_EQ(own.json()["best"]["step_ms"], 2 * (11 + 8 * 15));
    EXPECT_THAT(own.err, HasSubstr("--order-out FILE.profile.json plans with it"));
    const std::string better = path("better.profile.json");
    const Outcome other = pipetwin({"plan", scenario, "--json", "--order-out", better});
    ASSERT_EQ(other.code, 0) << other.err;
    EXPECT_EQ(other.json()["best"]["step_ms"], 2 * (13 + 8 * 13));
    EXPECT_THAT(other.err,
                AllOf(HasSubstr("the largest of 2 stages can take 26"),
                      HasSubstr("costs in that order: ")));
    const Outcome simulated = pipetwin({"simulate",
                                        scenario,
                                        "--json",
                                        "--set",
                                        "model.file=" + better,
                                        "--set",
                                        "pipeline.chunks=1"});
    ASSERT_EQ(simulated.code, 0) << simulated.err;
    EXPECT_EQ(simulated.json()["step_ms"], 2 * (13 + 8 * 13));
    EXPECT_EQ(pipetwin({"plan", scenario, "--order-out", better}).code, 6);  // it is there already
}

// "a" is all work, "b" all weights: three devices take the micro-batches of "a" in turn, 30 ms
// each, and one does the 10 ms of "b". On one stage the sum of a gigabyte over a link of 1 GB/s
// alone takes 4 devices 1.5 s, an eighth of it per micro-batch.
TEST_F(PlanCommand, ShowsHowPipeDreamWouldShareTheDevicesOut) {
    file("v.profile.json", R"({"schema_version": 1, "source": "measured",
"links": [{"between": "ranks", "latency_ns": 0, "bytes_per_second": 1000000000}], "layers": [
 {"name": "a", "parameter_bytes": 0, "samples": [{"micro_batch_size": 1, "forward_ns": 10000000,
  "backward_input_ns": 10000000, "backward_weight_ns": 10000000, "output_bytes": 1000000, "saved_bytes": 0}]},
 {"name": "b", "parameter_bytes": 1000000000, "samples": [{"micro_batch_size": 1, "forward_ns": 4000000,
  "backward_input_ns": 3000000, "backward_weight_ns": 3000000, "output_bytes": 0, "saved_bytes": 0}]}]})");
    const std::string scenario = file("v.toml", R"(
model = {kind = "profile", file = "v.profile.json"}
training = {batch = 8, optimizer = "sgd"}
cluster = {count = 4}
pipeline = {micro_batches = 8, data_parallel = 1, tensor_parallel = 1}
)");
    const Outcome outcome = pipetwin({"plan", scenario, "--hybrid", "--json"});
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    const auto hybrid = outcome.json()["hybrid"];
    EXPECT_EQ(hybrid["micro_batch_size"], 1);
    EXPECT_EQ(hybrid["micro_batch_ms"], 10);
    EXPECT_EQ(hybrid["samples_per_second"], 100);
    EXPECT_EQ(hybrid["devices_used"], 4);
    ASSERT_EQ(hybrid["stages"].size(), 2U);
    EXPECT_EQ(hybrid["stages"][0]["devices"], 3);
    EXPECT_EQ(hybrid["stages"][0]["work_ms"], 30);
    EXPECT_EQ(hybrid["stages"][1]["devices"], 1);
    EXPECT_EQ(hybrid["stages"][1]["all_reduce_ms"], 0);
    EXPECT_THAT(
        pipetwin({"plan", scenario, "--hybrid"}).out,
        AllOf(HasSubstr("In the steady state one micro-batch of 1 sample ends every 10.000 ms on 4 "
                        "of 4 devices"),
              ContainsRegex("100[ \n]+samples"),
              Not(HasSubstr("fill and drain included"))));
    // One device has 40 ms to do; a message of 1 MB takes 1 ms.
    const Outcome alone =
        pipetwin({"plan", scenario, "--hybrid", "--json", "--set", "cluster.count=1"});
    EXPECT_EQ(alone.json()["hybrid"]["micro_batch_ms"], 40);
    const Outcome apart = pipetwin({"plan",
                                    scenario,
                                    "--hybrid",
                                    "--set",
                                    "cluster.speeds=[1, 2]",
                                    "--set",
                                    "pipeline.stages=2"});
    EXPECT_EQ(apart.code, 4);
    EXPECT_THAT(apart.err, HasSubstr("[cluster] tells them apart"));
}

TEST_F(PlanCommand, WritesTheBestPlanAsARunFolder) {
    const std::string keys = "[cluster]\ncount = 2\n";
    const std::string out = path("best");
    ASSERT_EQ(plan(keys, {"--out", out}).code, 0);
    for (const char* const name : {"scenario.toml",
                                   "profile.json",
                                   "search.json",
                                   "plan.json",
                                   "schedule.csv",
                                   "predicted.trace.json"}) {
        EXPECT_TRUE(std::filesystem::exists(folder() / "best" / name)) << name;
    }
    EXPECT_EQ(
        pipetwin({"simulate", out + "/scenario.toml", "--profile", out + "/profile.json", "--json"})
            .json()["step_ms"],
        24);
    EXPECT_EQ(plan(keys, {"--out", out}).code, 6);  // it is there
    EXPECT_EQ(plan(keys, {"--out", out, "--force"}).code, 0);
}

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

/// Llama 3 8B in whole blocks on 8 H100, with one efficiency for every product. By hand, with the
/// work of ranks balanced and not that of pieces, zb-v with two chunks takes 376.91 ms and 26.1
/// GiB; 359.8 ms in half blocks.
class LlamaOnEightDevices : public InFolder {
  protected:
    std::string scenario(const std::vector<std::string>& import, std::string_view pipeline) const {
        std::vector<std::string> args{"import",
                                      "hf",
                                      "llama-3-8b",
                                      "--device",
                                      "h100-sxm",
                                      "--sequence",
                                      "1024",
                                      "--micro-batch-size",
                                      "1",
                                      "--out",
                                      path("m.profile.json")};
        args.insert(args.end(), rates_.begin(), rates_.end());
        const Outcome imported = pipetwin(joined(std::move(args), import));
        EXPECT_EQ(imported.code, 0) << imported.err;
        return file("s.toml",
                    fmt::format(R"(
model = {{kind = "profile", file = "m.profile.json"}}
training = {{batch = 24, precision = "bf16"}}
[pipeline]
stages = 8
micro_batches = 24
data_parallel = 1
recompute = "none"
{}
[cluster]
profile = "8x-h100-sxm"
)",
                                pipeline));
    }

    /// One efficiency for all kernels.
    std::vector<std::string> rates_{
        "--efficiency", "0.5", "--memory-efficiency", "0.8", "--stack", "none"};
};

/// That partition, with the rates that kernels of each size reach.
TEST_F(LlamaOnEightDevices, APartitionByHandIsNoFasterWithOtherRates) {
    rates_.clear();
    const std::string scenario_file =
        scenario({"--whole-blocks"}, "schedule = \"zb-v\"\nchunks = 2");
    const auto step = [&](const std::vector<std::string>& more) {
        const Outcome outcome = pipetwin(joined({"simulate", scenario_file, "--json"}, more));
        EXPECT_EQ(outcome.code, 0) << outcome.err;
        return outcome.json()["step_ms"].get<double>();
    };
    EXPECT_LE(step({}), step({"--set", "pipeline.partition=[2,3,3,3,2,2,2,2,2,2,2,2,2,2,2,1]"}));
}

TEST_F(LlamaOnEightDevices, APartitionOfChunksBalancesRanks) {
    const std::string zb_v = "schedule = \"zb-v\"\nchunks = 2";
    const auto whole = pipetwin({"simulate", scenario({"--whole-blocks"}, zb_v), "--json"}).json();
    EXPECT_LE(whole["step_ms"].get<double>(), 376.91);
    const auto halves = pipetwin({"simulate", scenario({"--force"}, zb_v), "--json"}).json();
    EXPECT_LE(halves["step_ms"].get<double>(), 359.8);
}

TEST_F(LlamaOnEightDevices, APlanThatFitsWithSomePartitionIsFound) {
    const auto found = pipetwin({"plan",
                                 scenario({"--whole-blocks"}, "tensor_parallel = 1"),
                                 "--set",
                                 "cluster.memory_limit=\"28 GiB\"",
                                 "--json"})
                           .json();
    EXPECT_LE(found["best"]["step_ms"].get<double>(), 377);
    EXPECT_GE(found["best"]["step_ms"].get<double>(), found["any_partition_bound_ms"]);
    EXPECT_GE(found["any_partition_bound_ms"].get<double>(), found["any_order_bound_ms"]);
}

TEST_F(LlamaOnEightDevices, DevicesOfARankDivideTheSequence) {
    const std::vector<std::string> command{
        "plan",
        scenario({"--whole-blocks"}, "tensor_parallel = 2\nschedule = \"1f1b\""),
        "--set",
        "pipeline.stages=4"};
    const Outcome text = pipetwin(command);
    ASSERT_EQ(text.code, 0) << text.err;
    EXPECT_THAT(text.out, HasSubstr("tensor_parallel = 2\nsequence_parallel = true\n"));
    const auto open = pipetwin(joined(command, {"--json"})).json();
    EXPECT_EQ(open["best"]["sequence_parallel"], true);
    EXPECT_EQ(open["candidates"][0]["sequence_parallel"], true);
    EXPECT_THAT(open["not_tried"], Not(::testing::Contains("sequence_parallel")));
    const auto whole =
        pipetwin(joined(command, {"--json", "--set", "pipeline.sequence_parallel=false"})).json();
    EXPECT_EQ(whole["best"]["sequence_parallel"], false);
    EXPECT_GT(whole["best"]["step_ms"], open["best"]["step_ms"]);
    EXPECT_THAT(whole["not_tried"], ::testing::Contains("sequence_parallel"));
    // What is not tried is not faster than the bound that is named for it.
    EXPECT_LE(whole["any_order_bound_ms"].get<double>(), open["best"]["step_ms"].get<double>());
}

}  // namespace plan_test
}  // namespace pipetwin::cli
