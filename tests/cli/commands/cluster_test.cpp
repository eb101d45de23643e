// SPDX-License-Identifier: Apache-2.0
#include <cstdlib>
#include <filesystem>
#include <string>

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "tests/cli/support.h"
#include "tests/support/places.h"

/// Scenarios that describe clusters: what is said of them, and what is refused.
namespace pipetwin::cli {
namespace cluster_test {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// Two layers of 1 ms and 2 ms a sample, 1 MB of weights each, 8 samples.
constexpr std::string_view layers = R"(
 {"name": "a", "parameter_bytes": 1000000, "samples": [{"micro_batch_size": 1,
  "forward_ns": 1000000, "backward_ns": 2000000, "output_bytes": 0, "saved_bytes": 100}]},
 {"name": "b", "parameter_bytes": 1000000, "samples": [{"micro_batch_size": 1,
  "forward_ns": 1000000, "backward_ns": 2000000, "output_bytes": 0, "saved_bytes": 100}]})";

constexpr std::string_view scenario_text = R"(
[model]
kind = "profile"
file = "x.profile.json"
[training]
batch = 8
optimizer = "sgd"
[pipeline]
stages = 2
micro_batches = 8
schedule = "1f1b"
)";

class Cluster : public InFolder {
  protected:
    std::string profile(std::string_view device, std::string_view source = "measured") const {
        return file("x.profile.json",
                    fmt::format(R"({{"schema_version": 1, "source": "{}", "device": "{}",
 "precision": "bf16", "layers": [{}]}})",
                                source,
                                device,
                                layers));
    }

    /// Simulates the scenario with more tables and keys.
    Outcome simulate(std::string_view cluster, const std::vector<std::string>& more = {}) const {
        const std::string scenario =
            file("x.toml", fmt::format("{}[cluster]\n{}\n", scenario_text, cluster));
        return pipetwin(joined({"simulate", scenario, "--json"}, more));
    }
};

TEST_F(Cluster, CostsOfAnotherDeviceAreRefusedUntilTheScenarioSaysHowToScaleThem) {
    profile("a100-sxm-80");
    const Outcome refused = simulate("device = \"h100-sxm\"");
    EXPECT_EQ(refused.code, 3);
    EXPECT_THAT(refused.err,
                AllOf(HasSubstr("'a100-sxm-80'"), HasSubstr("'h100-sxm'"), HasSubstr("hint: ")));
    const Outcome scaled = simulate("device = \"h100-sxm\"\nscale_costs = \"memory\"");
    ASSERT_EQ(scaled.code, 0) << scaled.err;
    EXPECT_THAT(scaled.err, HasSubstr("estimated: times of 'a100-sxm-80' x 0.6087"));
    EXPECT_EQ(scaled.json()["cost_source"], "estimated");
    EXPECT_EQ(scaled.json()["notes"].size(), 1U);
    const Outcome own = simulate("device = \"a100-sxm-80\"");
    EXPECT_EQ(own.json()["cost_source"], "measured");
    EXPECT_EQ(own.json()["notes"].size(), 0U);
    // gpipe's closed form holds for 1f1b: (m + p - 1) (f + b). 2039 / 3350 of it when scaled.
    EXPECT_NEAR(own.json()["makespan_ms"].get<double>(), 27, 0.1);
    EXPECT_NEAR(scaled.json()["makespan_ms"].get<double>(), 27 * 2039.0 / 3350, 0.1);
}

TEST_F(Cluster, APredictionFromEstimatedCostsSaysSoInItsText) {
    profile("a100-sxm-80", "estimated");
    const std::string scenario = file("x.toml", scenario_text);
    EXPECT_THAT(pipetwin({"simulate", scenario}).out, HasSubstr("predicted from estimated costs"));
    profile("a100-sxm-80");
    EXPECT_THAT(pipetwin({"simulate", scenario}).out, HasSubstr("(predicted)"));
}

TEST_F(Cluster, ADeviceOffersItsMemoryWithoutItsContext) {
    profile("h100-sxm");
    const Outcome outcome = simulate("device = \"h100-sxm\"");
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_EQ(outcome.json()["devices"][1]["peak_bytes"]["context"], 1'000'000'000);
    const Outcome small = simulate("device = \"h100-sxm\"\nmemory_limit = \"1 GB\"");
    EXPECT_EQ(small.code, 4);
    EXPECT_THAT(small.err, HasSubstr("context"));
}

/// The slow rank in front works for 8 (2 + 4) ms and waits once: its second forward ends 1 ms
/// before the first gradient is there, after 2 + 1 + 2 ms.
TEST_F(Cluster, SpeedsOfRanksCount) {
    profile("");
    const Outcome outcome = simulate("speeds = [0.5, 1]");
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_EQ(outcome.json()["makespan_ms"], 8 * 6.0 + 1);
    EXPECT_EQ(outcome.json()["devices"][0]["busy_ms"], 48);
}

/// Each of two replicas has 4 of the 8 samples: (4 + 1) 3 ms. Then a ring of two sends half of the
/// gradients of 1 MB of weights, 2 MB in fp32, twice at a gigabyte per second.
TEST_F(Cluster, ReplicasShareTheBatchAndSumTheirGradients) {
    profile("");
    const std::string links = "link_gbps = 8\n";
    const Outcome outcome = simulate(links, {"--set", "pipeline.data_parallel=2"});
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    const auto result = outcome.json();
    EXPECT_EQ(result["data_parallel"], 2);
    EXPECT_EQ(result["makespan_ms"], 15);
    EXPECT_EQ(result["step_ms"], 15 + 2);
    EXPECT_DOUBLE_EQ(result["samples_per_second"].get<double>(), 8 / 17e-3);
    const Outcome halves =
        simulate(links, {"--set", "pipeline.data_parallel=2", "--set", "training.gradients=same"});
    EXPECT_EQ(halves.json()["step_ms"], 15 + 1);
    EXPECT_GT(result["breakdown_ms"]["reduction"].get<double>(), 0);
    const Outcome odd = simulate(links, {"--set", "pipeline.data_parallel=3"});
    EXPECT_EQ(odd.code, 3);
    EXPECT_THAT(odd.err, AllOf(HasSubstr("batch = 8"), HasSubstr("data_parallel = 3")));
}

TEST_F(Cluster, WhatIsNotHereIsNotTrainedWith) {
    const std::string scenario = file("small.toml", small_scenario);
    const auto code_with = [&](const std::string& setting) {
        const Outcome outcome =
            pipetwin({"train", scenario, "--out", path("run"), "--set", setting});
        EXPECT_THAT(outcome.err, HasSubstr("simulate")) << setting;
        EXPECT_FALSE(std::filesystem::exists(path("run"))) << setting;
        return outcome.code;
    };
    EXPECT_EQ(code_with("cluster.device=h100-sxm"), 5);
    EXPECT_EQ(code_with("cluster.devices=[\"h100-sxm\", \"h100-sxm\"]"), 5);
    EXPECT_EQ(code_with("cluster.speeds=[1, 2]"), 5);
}

// --- Bad input. ---

TEST_F(Cluster, AProfileThatDoesNotFitTheModelIsRefusedNamingBoth) {
    const std::string scenario = file("small.toml", small_scenario);
    const auto error_with = [&](std::string_view rows) {
        const std::string csv = file(
            "bad.csv",
            fmt::format("name,forward_ms,backward_ms,output_bytes,saved_bytes,parameter_bytes\n{}",
                        rows));
        const Outcome outcome = pipetwin({"simulate", scenario, "--profile", csv});
        EXPECT_EQ(outcome.code, 3) << rows;
        EXPECT_THAT(outcome.err, HasSubstr("hint: ")) << rows;
        return outcome.err;
    };
    EXPECT_THAT(error_with("linear0,1,2,3,4,5\n"),
                AllOf(HasSubstr("costs of 1 layer,"), HasSubstr("the model has 2")));
    EXPECT_THAT(error_with("linear0,1,2,3,4,5\nlinear2,1,2,3,4,5\n"),
                AllOf(HasSubstr("'linear2'"), HasSubstr("'linear1' in the model")));
}

TEST_F(Cluster, CostsThatAreNoCostsAreRefusedWithTheirPlace) {
    const std::string scenario = file("x.toml", scenario_text);
    struct Case {
        const char* from;
        const char* to;
        const char* said;
    };
    const std::vector<Case> cases{
        {"\"forward_ns\": 1000000", "\"forward_ns\": -1", "/layers/0/samples/0/forward_ns: -1"},
        {"\"forward_ns\": 1000000", "\"forward_ns\": NaN", "x.profile.json:4:"},
        {"\"forward_ns\": 1000000", "\"forward_ns\": 1e999", "x.profile.json:4:"},
        {"\"forward_ns\": 1000000,", "", "/layers/0/samples/0/forward_ns: missing"},
        {"\"forward_ns\": 1000000", "\"forward_ns\": \"1 ms\"", "\"1 ms\", expected a whole"},
        {"\"forward_ns\": 1000000", "\"forward_ns\": 9007199254740992", "above 2^53"},
        {"\"forward_ns\"", "\"forwards_ns\"", "did you mean 'forward_ns'?"},
        {"\"name\": \"b\"", "\"name\": \"a\"", "/layers/1/name: 'a' names two layers"},
    };
    for (const Case& one : cases) {
        const std::string written = profile("h100-sxm");
        std::string text = content_of(written);
        const std::size_t at = text.find(one.from);
        ASSERT_NE(at, std::string::npos) << one.from;
        file("x.profile.json", text.replace(at, std::string_view(one.from).size(), one.to));
        const Outcome outcome = pipetwin({"simulate", scenario});
        EXPECT_EQ(outcome.code, 3) << one.to;
        EXPECT_THAT(outcome.err, HasSubstr(one.said));
    }
}

/// Sets PIPETWIN_PROFILES as long as it lives.
class ProfilesIn {
  public:
    explicit ProfilesIn(const std::string& folder) {
        setenv("PIPETWIN_PROFILES", folder.c_str(), 1);
    }
    ~ProfilesIn() { unsetenv("PIPETWIN_PROFILES"); }
    ProfilesIn(const ProfilesIn&) = delete;
    ProfilesIn& operator=(const ProfilesIn&) = delete;
};

TEST_F(Cluster, DeviceFilesOfOnesOwnAreReadAsStrictly) {
    profile("mine");
    std::filesystem::create_directories(folder() / "devices");
    const ProfilesIn own(folder().string());
    EXPECT_THAT(simulate("device = \"mine\"").err,
                AllOf(HasSubstr("cluster.device = \"mine\""), HasSubstr("PIPETWIN_PROFILES")));
    const auto said = [&](std::string_view content) {
        file("devices/mine.json", content);
        const Outcome outcome = simulate("device = \"mine\"");
        EXPECT_EQ(outcome.code, 3) << content;
        return outcome.err;
    };
    EXPECT_THAT(said("{"), HasSubstr("mine.json:1:"));
    EXPECT_THAT(said("[]"), HasSubstr("expected an object"));
    EXPECT_THAT(said("{\"schema_version\": 1, \"nam\": \"mine\"}"),
                AllOf(HasSubstr("mine.json: /nam: unknown key"), HasSubstr("did you mean 'name'")));
    EXPECT_THAT(said("{\"schema_version\": 1, \"name\": \"mine\"}"),
                HasSubstr("/matrix_flops_per_second: missing"));
}

TEST_F(Cluster, HugeClustersAreRefusedBeforeAnythingIsAllocated) {
    profile("");
    const auto code_with = [&](const std::string& setting) {
        return simulate("", {"--set", setting}).code;
    };
    EXPECT_EQ(code_with("pipeline.data_parallel=1000000000"), 3);
    EXPECT_EQ(code_with("pipeline.stages=1000000000"), 3);
    EXPECT_EQ(code_with("cluster.count=1000000000"), 3);
    EXPECT_EQ(code_with("cluster.per_node=1000000000"), 3);
    EXPECT_EQ(code_with("cluster.placement=[0, 1000000000]"), 3);
    EXPECT_EQ(code_with("cluster.speeds=[1e400, 1]"), 3);
}

// gpipe keeps 100 bytes of each of 8 micro-batches; 100 bytes take 100 ns on a link of 8 Gbit/s.
// The last is needed at once; of the others a rank holds the one it makes or uses and the one under
// way.
TEST_F(Cluster, OffloadSaysWhatItMovesAndSaves) {
    profile("this machine");
    const std::vector<std::string> on_device{
        "--set", "pipeline.schedule=gpipe", "--set", "pipeline.recompute=none"};
    std::vector<std::string> offloaded = on_device;
    offloaded.insert(offloaded.end(), {"--set", "pipeline.offload=stash"});
    const std::string_view host = "host_link_gbps = 8";

    const Outcome outcome = simulate(host, offloaded);
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    const auto result = outcome.json();
    for (const std::size_t rank : {0U, 1U}) {
        EXPECT_EQ(result["devices"][rank]["peak_bytes"]["stash"], 200);
        const auto& moved = result["offload"]["devices"][rank];
        EXPECT_EQ(moved["rank"], rank);
        EXPECT_EQ(moved["copied_bytes"], 700);
        EXPECT_EQ(moved["peak_bytes_on_device"]["stash"], 800);
    }
    EXPECT_EQ(result["offload"]["step_ms_on_device"], result["step_ms"]);
    EXPECT_TRUE(simulate(host, on_device).json()["offload"].is_null());

    offloaded.insert(offloaded.begin(), {"simulate", file("x.toml", scenario_text)});
    offloaded.insert(offloaded.end(), {"--set", "cluster.host_link_gbps=8"});
    EXPECT_THAT(pipetwin(offloaded).out,
                HasSubstr("offload: 700 B to host memory and back per step on rank 0, the most"));
}

// What the comment of the example promises: 13 layers of 44.64 ms, a head of 53.64 ms and an
// embedding of 0.24 ms for each of 8 micro-batches, and forwards once more with recompute.
TEST_F(Cluster, TheExampleOfOffloadTradesMemoryForTime) {
    const auto run = [](const std::string& change) {
        return pipetwin({"simulate",
                         places::source_folder() + "/scenarios/offload.toml",
                         "--json",
                         "--set",
                         change});
    };
    const double forward = 13 * 14.88 + 17.88 + 0.08;
    const auto offloaded = run("pipeline.offload=stash").json();
    EXPECT_NEAR(offloaded["step_ms"].get<double>(), 8 * 3 * forward, 1e-3);
    const auto recomputed = run("pipeline.recompute=always").json();
    EXPECT_NEAR(recomputed["step_ms"].get<double>(), 8 * 4 * forward, 1e-3);
    EXPECT_EQ(run("pipeline.offload=none").code, 4);
    EXPECT_EQ(run("cluster.host_link=pcie-3").code, 4);
}

TEST_F(Cluster, OffloadIsWhatTheMemoryLimitIsComparedWith) {
    profile("this machine");
    const std::vector<std::string> on_device{
        "--set", "pipeline.schedule=gpipe", "--set", "pipeline.recompute=none"};
    std::vector<std::string> offloaded = on_device;
    offloaded.insert(offloaded.end(), {"--set", "pipeline.offload=stash"});
    // Weights of 1 MB in bf16, gradients and a copy of 2 MB each in fp32, and room for 5 stashes.
    const std::string_view limits = "host_link_gbps = 8\nmemory_limit = 5000500";
    EXPECT_EQ(simulate(limits, on_device).code, 4);
    EXPECT_EQ(simulate(limits, offloaded).code, 0);
    const Outcome refused = simulate("host_link_gbps = 8\nmemory_limit = 5000100", offloaded);
    EXPECT_EQ(refused.code, 4);
    EXPECT_THAT(refused.err, HasSubstr("peaks at 4.77 MiB (5000200 bytes)"));
}

}  // namespace cluster_test
}  // namespace pipetwin::cli
