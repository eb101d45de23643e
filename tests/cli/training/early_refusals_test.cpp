// SPDX-License-Identifier: Apache-2.0
#include "cli/training/early_refusals.h"

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include <gmock/gmock.h>

#include "core/base/error.h"
#include "core/model/model.h"
#include "core/scenario/settled_scenario.h"
#include "core/timeline/footprint.h"
#include "exec/profiling/profiler.h"
#include "tests/cli/support.h"

namespace pipetwin::cli {
namespace early_refusals_test {

using ::testing::HasSubstr;

/// Three layers of (8+1)*8, (8+1)*8 and (8+1)*4 numbers in fp32: 288, 288 and 144 bytes of weights.
/// SGD keeps nothing, and gradients are as large as the weights: 1440 bytes in all.
constexpr std::string_view three_layers = R"toml([model]
kind = "mlp"
sizes = [8, 8, 8, 4]
[data]
kind = "synthetic"
[training]
batch = 8
steps = 1
optimizer = "sgd"
learning_rate = 0.1
[pipeline]
stages = 2
micro_batches = 4
)toml";

class EarlyRefusals : public InFolder {
  protected:
    /// The command without a profile: what is not refused would be measured.
    Outcome of(const std::string& command, const std::vector<std::string>& settings) const {
        std::vector<std::string> args{
            command, file("three.toml", three_layers), "--out", path("out")};
        for (const std::string& setting : settings) {
            args.insert(args.end(), {"--set", setting});
        }
        return pipetwin(args);
    }
};

struct Refused {
    std::vector<std::string> settings;
    int code;
    std::string text;
};

// Each of them was told only after the layers had been measured, which takes half a minute.
TEST_F(EarlyRefusals, NothingIsMeasuredOrWrittenForAPlanThatCannotBe) {
    const std::vector<Refused> all{
        {{"pipeline.stages=4"}, 4, "3 units cannot fill 4 stages"},
        {{"cluster.count=1"}, 3, "--set cluster.count: 1, expected at least the 2"},
        {{"pipeline.schedule=interleaved-1f1b", "pipeline.chunks=2"},
         4,
         "3 units cannot fill 4 stages"},
        {{"cluster.memory_limit=500"}, 4, "layer 'linear0' needs 576 B"},
        {{"cluster.memory_limit=700"}, 4, "of all layers need 1.41 KiB, but 2 ranks together"},
        {{"pipeline.stages=3", "cluster.memory_limit=600"}, 4, "ranks need more than the limit"},
        {{"pipeline.partition=[2,1]", "cluster.memory_limit=1152"},
         4,
         "1 of 2 ranks needs more than the limit"},
    };
    for (const Refused& refused : all) {
        for (const std::string command : {"run", "train", "profile"}) {
            const Outcome outcome = of(command, refused.settings);
            EXPECT_EQ(outcome.code, refused.code) << command << ": " << outcome.err;
            EXPECT_THAT(outcome.err, HasSubstr(refused.text)) << command;
            EXPECT_THAT(outcome.err, HasSubstr("hint: ")) << command;
            EXPECT_FALSE(std::filesystem::exists(path("out"))) << command;
        }
    }
}

TEST_F(EarlyRefusals, WhatNoPlanOfAnOpenScenarioCouldHaveIsRefusedByRun) {
    const std::vector<Refused> all{
        {{"pipeline.schedule=auto", "pipeline.stages=4"}, 4, "3 units cannot fill 4 stages"},
        {{"pipeline.micro_batches=auto", "cluster.count=1"}, 3, "--set cluster.count: 1, expected"},
        {{"pipeline.stages=auto", "cluster.count=2", "cluster.memory_limit=700"},
         4,
         "of all layers need 1.41 KiB, but 2 ranks together"},
        {{"pipeline.stages=auto", "cluster.memory_limit=500"}, 4, "layer 'linear0'"},
    };
    for (const Refused& refused : all) {
        const Outcome outcome = of("run", refused.settings);
        EXPECT_EQ(outcome.code, refused.code) << outcome.err;
        EXPECT_THAT(outcome.err, HasSubstr(refused.text));
        EXPECT_FALSE(std::filesystem::exists(path("out")));
    }
}

TEST_F(EarlyRefusals, FirstBlocksThatAreComputedAgainAreOnlySimulated) {
    const Outcome outcome = of("train", {"pipeline.recompute=block", "pipeline.recompute_only=1"});
    EXPECT_EQ(outcome.code, 4) << outcome.err;
    EXPECT_THAT(outcome.err, HasSubstr("can only be simulated"));
    EXPECT_FALSE(std::filesystem::exists(path("out")));
}

TEST_F(EarlyRefusals, GpusOfARankNeedAProcessEach) {
    const Outcome outcome = of("train", {"pipeline.tensor_parallel=2", "cluster.backend=cuda"});
    EXPECT_EQ(outcome.code, 5) << outcome.err;
    EXPECT_THAT(outcome.err, HasSubstr("2 GPUs of a rank in one process"));
    EXPECT_THAT(outcome.err, HasSubstr("start a process for each GPU of each rank"));
}

TEST_F(EarlyRefusals, DataThatCannotBeReadIsRefusedBeforeLayersAreMeasured) {
    const std::vector<std::string> missing{
        "model.sizes=[784,8,8,10]", "data.kind=mnist", "data.path=nowhere"};
    for (const std::string command : {"run", "train"}) {
        const Outcome outcome = of(command, missing);
        EXPECT_EQ(outcome.code, 3) << outcome.err;
        EXPECT_THAT(outcome.err, HasSubstr("nowhere: there is no such folder"));
        EXPECT_FALSE(std::filesystem::exists(path("out"))) << command;
    }
    // The data of the validation are missing, those of the training are there.
    const Outcome validation = of("train",
                                  {"model={kind=\"gpt\",layers=1,d_model=8,heads=2,context=4,"
                                   "vocabulary=256}",
                                   "data.kind=text",
                                   "data.path=" + file("some.txt", std::string(100, 'a')),
                                   "data.validation=nowhere-else",
                                   "training.validate_every=1"});
    EXPECT_EQ(validation.code, 3);
    EXPECT_THAT(validation.err, HasSubstr("nowhere-else"));
    EXPECT_FALSE(std::filesystem::exists(path("out")));
}

TEST_F(EarlyRefusals, AProfileIsNotMeasuredForAFolderThatIsNotThere) {
    const Outcome outcome = pipetwin({"profile",
                                      file("three.toml", three_layers),
                                      "--out",
                                      path("no-such-folder/three.profile.json")});
    EXPECT_EQ(outcome.code, 6);
    EXPECT_THAT(outcome.err, HasSubstr("there is no folder"));
}

// The folder stayed, and the next try was refused as it held "a run already".
TEST_F(EarlyRefusals, WhatIsRefusedLaterLeavesNoFolderAndAnOldRunAsItWas) {
    const std::string costs =
        "name,forward_ms,backward_ms,output_bytes,saved_bytes,parameter_bytes\n"
        "linear0,0.02,0.04,64,160,576\nlinear1,0.01,0.02,64,100,272\n"
        "linear2,0.01,0.02,0,100,272\n";
    const std::vector<std::string> good{"train",
                                        file("three.toml", three_layers),
                                        "--profile",
                                        file("costs.csv", costs),
                                        "--out",
                                        path("old")};
    ASSERT_EQ(pipetwin(good).code, 0);
    const std::string metrics = content_of(folder() / "old" / "metrics.jsonl");
    const std::string two_layers = costs.substr(0, costs.rfind("linear2"));
    const std::vector<std::pair<std::vector<std::string>, int>> refused{
        {{"--profile", path("none.csv")}, 6},
        {{"--profile", file("broken.csv", "name\n")}, 3},
        {{"--profile", file("two.csv", two_layers)}, 3},
        {{"--profile", path("costs.csv"), "--set", "cluster.memory_limit=900"}, 4},
    };
    for (const std::string command : {"train", "run"}) {
        for (const auto& [options, code] : refused) {
            SCOPED_TRACE(command + " " + options[1]);
            const std::vector<std::string> words = joined({command, path("three.toml")}, options);
            const Outcome fresh = pipetwin(joined(words, {"--out", path("a/b/new")}));
            EXPECT_EQ(fresh.code, code) << fresh.err;
            EXPECT_FALSE(std::filesystem::exists(path("a")));
            const Outcome forced = pipetwin(joined(words, {"--out", path("old"), "--force"}));
            EXPECT_EQ(forced.code, code) << forced.err;
            EXPECT_EQ(content_of(folder() / "old" / "metrics.jsonl"), metrics);
            EXPECT_TRUE(std::filesystem::exists(folder() / "old" / "report.html"));
            EXPECT_FALSE(std::filesystem::exists(folder() / "old" / "lock"));
        }
    }
}

/// Whether the scenario is refused with this limit of every rank.
bool is_refused(SettledScenario scenario, const Model& model, Bytes limit) {
    scenario.cluster.memory_limit = limit;
    try {
        refuse_what_no_costs_help(scenario, model);
        return false;
    } catch (const Error& error) {
        EXPECT_EQ(error.kind(), ErrorKind::Infeasible);
        return true;
    }
}

Bytes peak(const SettledScenario& scenario, const Model& model) {
    const std::vector<MemoryUse> peaks = peak_memory(exec::unmeasured_plan(scenario, model));
    return std::ranges::max_element(peaks, {}, &MemoryUse::total)->total();
}

// Refusing early must never refuse what the measured costs would allow: every partition may be what
// they give, so no limit that the best of all partitions keeps is refused.
TEST_F(EarlyRefusals, NoLimitIsRefusedThatSomePartitionKeeps) {
    const SettledScenario scenario = settle(parse_scenario(R"toml([model]
kind = "gpt"
layers = 2
d_model = 16
heads = 2
context = 8
vocabulary = 32
[data]
kind = "synthetic"
[training]
batch = 4
steps = 1
optimizer = "adamw"
learning_rate = 0.1
[pipeline]
stages = 2
micro_batches = 2
)toml",
                                                           "gpt.toml"));
    const Model model = scenario_model(scenario);
    const int layers = model.layer_count();
    std::optional<Bytes> best;
    for (int first = 1; first < layers; ++first) {
        SettledScenario cut = scenario;
        cut.pipeline.partition = std::vector<int>{first, layers - first};
        const Bytes most = peak(cut, model);
        EXPECT_FALSE(is_refused(cut, model, most)) << first;
        EXPECT_TRUE(is_refused(cut, model, most - Bytes{1})) << first;
        best = best ? std::min(*best, most) : most;
    }
    EXPECT_FALSE(is_refused(scenario, model, *best));
    EXPECT_TRUE(is_refused(scenario, model, Bytes{best->count / 2}));
}

// Momentum of 720 bytes is shared by two replicas, and the rest is 1440: together they fit into
// what one replica alone has no room for.
TEST_F(EarlyRefusals, WhatReplicasShareIsNotRefusedInAnOpenScenario) {
    const auto refused = [](const std::vector<Override>& more) {
        std::vector<Override> overrides{{"training.optimizer", "momentum"},
                                        {"pipeline.stages", "auto"},
                                        {"pipeline.data_parallel", "2"},
                                        {"cluster.count", "2"},
                                        {"cluster.memory_limit", "1900 B"}};
        overrides.insert(overrides.end(), more.begin(), more.end());
        const Scenario scenario = parse_scenario(three_layers, "three.toml", overrides);
        try {
            refuse_what_no_costs_help(scenario, scenario_model(scenario));
            return false;
        } catch (const Error& error) {
            EXPECT_EQ(error.kind(), ErrorKind::Infeasible);
            return true;
        }
    };
    EXPECT_TRUE(refused({{"pipeline.stages", "1"}}));
    EXPECT_FALSE(refused({{"pipeline.stages", "1"}, {"pipeline.shard", "optimizer"}}));
}

}  // namespace early_refusals_test
}  // namespace pipetwin::cli
