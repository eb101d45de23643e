// SPDX-License-Identifier: Apache-2.0
#include "sim/questions/model_on_cluster.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "core/base/error.h"
#include "core/costs/devices/shipped_profiles.h"
#include "core/scenario/rank_device.h"

namespace pipetwin::sim {
namespace model_on_cluster_test {

TEST(SamplesFor, AreNearTheTokensAndDividedByManyPowersOfTwo) {
    EXPECT_EQ(samples_for(4e6, 8192, 64), 512);
    EXPECT_EQ(samples_for(4e6, 4096, 64), 1024);
    EXPECT_EQ(samples_for(4'194'304, 8192, 64), 512);
    EXPECT_EQ(samples_for(512e3, 4096, 8), 128);  // not 125, which 8 devices cannot share out
    EXPECT_EQ(samples_for(1000, 100, 1), 10);
    EXPECT_EQ(samples_for(10, 100, 8), 1);
    for (double tokens = 5e3; tokens < 1e8; tokens *= 1.7) {
        const int samples = samples_for(tokens, 512, 24);
        EXPECT_LE(std::abs(samples * 512.0 - tokens), std::max(0.05 * tokens, 256.0)) << tokens;
    }
}

TEST(SamplesFor, AreDividedByTheDevicesWhereANumberWithinFivePercentIs) {
    EXPECT_EQ(samples_for(1008.0 * 4096, 4096, 72), 1008);  // as asked
    EXPECT_EQ(samples_for(4e6, 4096, 72), 1008);            // 16 * 63
    EXPECT_EQ(samples_for(4e6, 4096, 24), 960);             // 64 * 15
    EXPECT_EQ(samples_for(4e6, 4096, 3 * 128), 960);        // 192 * 5: none is divided by 384
    EXPECT_EQ(samples_for(4e6, 4096, 1013), 1013);
    EXPECT_EQ(samples_for(64e3, 1024, 72),
              60);  // 12 divides both; 9 divides 63, and 8 divides 64
}

/// Eight devices that share every layer sum its output and its gradient; a plan without replicas
/// waits for no shards. One device alone has nothing to sum.
/// Few and short samples of a small model.
ModelQuestion small_question(const std::string& cluster = "8x-h100-sxm") {
    return {.model = "gpt2-124m",
            .cluster = cluster,
            .sequence = 512,
            .batch_tokens = 32e3,
            .costs_file = "costs.profile.json"};
}

/// The scenario of the question with its overrides, as a user would write it with the samples,
/// precision and devices that were found.
Scenario written(const ModelQuestion& question, const ModelOnCluster& asked) {
    std::string text = fmt::format(
        "[model]\nkind = \"profile\"\nfile = \"costs.profile.json\"\n"
        "[training]\nbatch = {}\nprecision = \"{}\"\n"
        "[cluster]\nprofile = \"{}\"\ncount = {}\n[pipeline]\n",
        asked.scenario.training.batch,
        to_string(asked.scenario.training.precision),
        question.cluster,
        asked.scenario.cluster.count);
    for (const char* const key : {"stages",
                                  "micro_batches",
                                  "schedule",
                                  "chunks",
                                  "recompute",
                                  "data_parallel",
                                  "tensor_parallel",
                                  "shard",
                                  "sequence_parallel",
                                  "scatter_boundaries"}) {
        text += fmt::format("{} = \"auto\"\n", key);
    }
    return parse_scenario(text, question.model, question.overrides);
}

/// Megatron-Bridge sums gradients in bf16, Megatron-LM of 2023 in fp32.
TEST(ModelOnCluster, SumsGradientsAsItsStackUnlessTheUserSaysOtherwise) {
    ModelQuestion question = small_question();
    const auto in_fp32 = [&question] {
        const ModelOnCluster on = model_on_cluster(question);
        return has_fp32_gradients(on.scenario, on.found.profile);
    };
    EXPECT_EQ(model_on_cluster(question).found.profile.stack, "megatron-bridge-2026");
    EXPECT_FALSE(in_fp32());
    question.overrides = {{.key = "training.gradients", .value = "fp32"}};
    EXPECT_TRUE(in_fp32());
    question = small_question("8x-a100-sxm-80");
    EXPECT_EQ(model_on_cluster(question).found.profile.stack, "megatron-2023");
    EXPECT_TRUE(in_fp32());
}

TEST(ModelOnCluster, IsTheScenarioThatItsKeysSay) {
    for (const std::string& cluster : cluster_names()) {
        ModelQuestion question = small_question(cluster);
        question.nodes = 2;
        question.stack = "none";
        const ModelOnCluster asked = model_on_cluster(question);
        EXPECT_EQ(asked.scenario, written(question, asked)) << cluster;
        EXPECT_EQ(asked.scenario.cluster.count % question.nodes, 0) << cluster;
    }
}

TEST(ModelOnCluster, OverridesAreReadOverIt) {
    const std::vector<std::pair<std::string, std::string>> keys{
        {"pipeline.schedule", "1f1b"},
        {"pipeline.schedule", "[\"gpipe\", \"zb-h1\"]"},
        {"pipeline.stages", "2"},
        {"pipeline.recompute", "always"},
        {"pipeline.shard", "optimizer"},
        {"pipeline.partition", "[1, 1]"},
        {"training.batch", "24"},
        {"training.gradients", "same"},
        {"cluster.device", "a100-sxm-80"},
        {"cluster.memory_limit", "4 GiB"},
        {"cluster.node_link", "ethernet-25"},
        {"output.checkpoint_every", "3"}};
    for (const auto& [key, value] : keys) {
        ModelQuestion question = small_question();
        question.stack = "none";
        question.overrides = {{.key = key, .value = value}};
        try {
            const ModelOnCluster asked = model_on_cluster(question);
            EXPECT_EQ(asked.scenario, written(question, asked)) << key;
        } catch (const Error& error) {
            ADD_FAILURE() << key << ": " << error.what();
        }
    }
}

TEST(ModelOnCluster, RefusalsOfOverridesNameThem) {
    for (const char* const key : {"model.layers", "pipeline.nothing", "no.table"}) {
        ModelQuestion question = small_question();
        question.overrides = {{.key = key, .value = "4"}};
        try {
            model_on_cluster(question);
            ADD_FAILURE() << key;
        } catch (const Error& error) {
            EXPECT_EQ(error.place(), fmt::format("--set {}", key));
        }
    }
}

TEST(ModelOnCluster, MoreStagesThanDevicesAreRefusedHoweverTheyAreWritten) {
    for (const char* const stages : {"16", "0x10", "1_6"}) {
        ModelQuestion question = small_question();
        question.overrides = {{.key = "pipeline.stages", .value = stages}};
        EXPECT_THROW(model_on_cluster(question), Error) << stages;
        question.nodes = 2;
        EXPECT_EQ(model_on_cluster(question).scenario.pipeline.stages, 16) << stages;
    }
}

TEST(ModelOnCluster, CostsMayLieInAFileOfAnyName) {
    ModelQuestion question = small_question();
    question.costs_file = "a \"new\" model\\.profile.json";
    EXPECT_EQ(model_on_cluster(question).scenario.model.profile.filename(), question.costs_file);
}

TEST(ModelOnCluster, NodesChangeOnlyDevicesAndSamples) {
    const ModelOnCluster asked = model_on_cluster(small_question());
    Scenario more = asked.nodes.scenario_on(3);
    EXPECT_EQ(more.cluster.count, 3 * asked.scenario.cluster.count);
    more.cluster.count = asked.scenario.cluster.count;
    more.training.batch = asked.scenario.training.batch;
    EXPECT_EQ(more, asked.scenario);
}

}  // namespace model_on_cluster_test
}  // namespace pipetwin::sim
