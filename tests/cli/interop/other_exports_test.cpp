// SPDX-License-Identifier: Apache-2.0
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "core/scenario/scenario.h"
#include "tests/cli/interop/exchange_fixture.h"

namespace pipetwin::cli {
namespace other_exports_test {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

/// Each warning names the key that the other system lacks, or has otherwise.
TEST_F(Exchange, KeysThatTheOtherSystemLacksAreNamed) {
    const std::string gpt = file("gpt.toml", gpt_scenario);
    const auto said = [&](const std::string& format, const std::vector<std::string>& settings) {
        std::vector<std::string> args{"export", format, gpt};
        for (const std::string& setting : settings) {
            args.insert(args.end(), {"--set", "pipeline." + setting});
        }
        return said_of(args, path("exported"));
    };
    const std::string two = "tensor_parallel=2";
    EXPECT_THAT(said("megatron-flags", {two, "scatter_boundaries=true"}),
                HasSubstr("warning: pipeline.scatter_boundaries = true"));
    EXPECT_THAT(said("megatron-flags", {"sequence_parallel=true"}),
                HasSubstr("warning: pipeline.sequence_parallel changes nothing"));
    EXPECT_THAT(said("megatron-flags", {"recompute=always"}),
                AllOf(HasSubstr("warning: pipeline.recompute = \"always\""),
                      Not(HasSubstr("pipeline.recompute_timing"))));
    EXPECT_THAT(said("megatron-flags", {"recompute=always", "recompute_timing=eager"}),
                HasSubstr("warning: pipeline.recompute_timing = \"eager\""));
    EXPECT_THAT(said("megatron-flags", {"recompute=block", two, "sequence_parallel=true"}),
                Not(HasSubstr("warning")));

    // Gradients that replicas divide are added up in their sums: the setting that a note named
    // changes no such step.
    EXPECT_THAT(said("megatron-flags", {"shard=weights"}),
                HasSubstr("--set training.accumulation=separate"));
    EXPECT_THAT(said("megatron-flags", {"shard=weights", "data_parallel=2"}),
                Not(HasSubstr("training.accumulation=separate")));

    EXPECT_THAT(said("torchtitan", {"recompute=block", two, "sequence_parallel=true"}),
                AllOf(HasSubstr("parallelism.data_parallel_shard_degree = 1, "
                                "parallelism.tensor_parallel_degree = 2, "
                                "activation_checkpoint.mode = \"full\""),
                      Not(HasSubstr("warning"))));
    EXPECT_THAT(said("torchtitan", {"data_parallel=2", "shard=optimizer"}),
                AllOf(HasSubstr("parallelism.data_parallel_shard_degree = 2, "
                                "activation_checkpoint.mode = \"none\""),
                      HasSubstr("torchtitan has no ZeRO-1: data_parallel_shard_degree is FSDP"),
                      Not(HasSubstr("warning"))));
    EXPECT_THAT(said("torchtitan", {"data_parallel=2", "shard=weights", "prefetch=0"}),
                AllOf(Not(HasSubstr("no ZeRO-1")),
                      HasSubstr("parallelism.fsdp_reshard_after_forward = \"always\""),
                      HasSubstr("warning: pipeline.shard = \"weights\""),
                      HasSubstr("warning: pipeline.prefetch = 0")));
    EXPECT_THAT(said("torchtitan", {"data_parallel=4", "shard=weights", "shard_group=2"}),
                HasSubstr("parallelism.data_parallel_replicate_degree = 2, "
                          "parallelism.data_parallel_shard_degree = 2, "));
    EXPECT_THAT(said("torchtitan", {"data_parallel=2", "shard=gradients"}),
                HasSubstr("warning: pipeline.shard = \"gradients\""));
    EXPECT_THAT(said("torchtitan", {"recompute=selective"}),
                HasSubstr("activation_checkpoint.mode = \"selective\", "
                          "activation_checkpoint.selective_ac_option = \"op\""));
    EXPECT_THAT(said("torchtitan", {"recompute=except-last"}),
                HasSubstr("warning: pipeline.recompute, except-last"));
    EXPECT_THAT(said("torchtitan", {two, "scatter_boundaries=true"}),
                AllOf(HasSubstr("warning: pipeline.scatter_boundaries = true"),
                      HasSubstr("warning: pipeline.sequence_parallel = false")));
    EXPECT_THAT(said_of({"export",
                         "torchtitan",
                         gpt,
                         "--set",
                         "training={batch=8, precision=\"bf16\", gradients=\"same\"}"},
                        path("exported")),
                HasSubstr("warning: training.gradients = \"same\""));
}

// --- torchtitan, and profiles of transformers. ---

TEST_F(Exchange, StagesBecomeTorchtitansLists) {
    const std::string gpt = file("gpt.toml", gpt_scenario);
    EXPECT_EQ(written({"export", "torchtitan", gpt}),
              "[\n  [\"tok_embeddings\", \"layers.0\", \"layers.1\"],\n  [\"layers.2\"],\n"
              "  [\"layers.3\", \"layers.4\"],\n  [\"layers.5\", \"norm\", \"output\"]\n]\n");
    EXPECT_THAT(pipetwin({"export", "torchtitan", gpt, "--out", path("titan.json")}).err,
                AllOf(HasSubstr("pipeline_parallel_degree = 2"),
                      HasSubstr("pipeline_parallel_schedule = \"Interleaved1F1B\"")));
    const Outcome halves =
        refused({"export", "torchtitan", gpt, "--set", "pipeline.partition=[4, 3, 4, 3]"});
    EXPECT_EQ(halves.code, 4);
    EXPECT_THAT(halves.err, HasSubstr("stage 1 begins with block1.feed_forward"));
    EXPECT_EQ(refused({"export", "torchtitan", file("x.csv", "0F0,0B0\n")}).code, 4);
}

/// Messages beside products are a setting that only the compiler carries out.
TEST_F(Exchange, TorchtitansAsynchronousTensorParallelismComesBack) {
    const std::string gpt = file("gpt.toml", gpt_scenario);
    const auto settings = [&](const std::string& overlap) {
        const std::string said = said_of({"export",
                                          "torchtitan",
                                          gpt,
                                          "--set",
                                          "pipeline.tensor_parallel=2",
                                          "--set",
                                          "pipeline.sequence_parallel=true",
                                          "--set",
                                          "pipeline.tensor_overlap=" + overlap},
                                         path("exported"));
        const std::string intro = "set in torchtitan, too: ";
        const std::size_t begin = said.find(intro) + intro.size();
        std::string lines = said.substr(begin, said.find('\n', begin) - begin);
        for (std::size_t at = 0; (at = lines.find(", ", at)) != std::string::npos;) {
            lines.replace(at, 2, "\n");
        }
        return lines + "\n";
    };
    for (const std::string overlap : {"true", "false"}) {
        const std::string lines = settings(overlap);
        EXPECT_EQ(lines.find("enable_async_tensor_parallel = true\ncompile.enable = true\n") !=
                      std::string::npos,
                  overlap == "true")
            << lines;
        EXPECT_THAT(written({"import", "torchtitan", file("titan.toml", lines)}),
                    HasSubstr("tensor_parallel = 2\nsequence_parallel = true\ntensor_overlap = " +
                              overlap + "\n"));
    }
    EXPECT_EQ(settings("\"auto\""), settings("false"));  // no stack hides anything
}

// Flags and lists say nothing of the order, and Megatron has two of them.
TEST_F(Exchange, SchedulesThatTheOtherSystemLacksAreTold) {
    const std::string one = file("one.toml", transformer_scenario);
    file("costs.csv", transformer_profile);
    const std::string several = file("gpt.toml", gpt_scenario);
    const std::string out = path("exported");
    const auto with = [](const std::string& schedule) { return "pipeline.schedule=" + schedule; };
    for (const std::string format : {"megatron-layout", "megatron-flags"}) {
        EXPECT_THAT(said_of({"export", format, one, "--set", with("gpipe")}, out),
                    AllOf(HasSubstr("Megatron has no schedule like gpipe"),
                          HasSubstr("it runs 1f1b"),
                          HasSubstr("--set pipeline.schedule=1f1b")));
        EXPECT_THAT(said_of({"export", format, several, "--set", with("interleaved-zb")}, out),
                    HasSubstr("it runs interleaved-1f1b"));
        EXPECT_THAT(said_of({"export", format, one}, out), Not(HasSubstr("no schedule like")));
        EXPECT_THAT(said_of({"export", format, several}, out), Not(HasSubstr("no schedule like")));
    }
    EXPECT_THAT(said_of({"export", "torchtitan", one, "--set", with("zb-h1")}, out),
                AllOf(HasSubstr("torchtitan has no schedule zb-h1"),
                      HasSubstr("pipetwin export torch-csv --compute-only")));
    EXPECT_THAT(said_of({"export", "torchtitan", one}, out), Not(HasSubstr("of its own")));
}

/// PyTorch's 1F1B refuses fewer micro-batches than stages, and its Interleaved1F1B takes m in
/// max(1, m div p) rounds of equal size alone.
TEST_F(Exchange, ThePlanNamesASchedulesOfTorchtitanOnlyWhereItHasTheseRows) {
    const std::string scenario = file("gpt.toml", gpt_scenario);
    const auto said = [&](const std::string& schedule, int micro_batches, int group) {
        return said_of(
            {"export",
             "torchtitan",
             scenario,
             "--set",
             "pipeline.schedule=" + schedule,
             "--set",
             fmt::format("pipeline.chunks={}", schedule == "1f1b" ? 1 : 2),
             "--set",
             schedule == "1f1b" ? "pipeline.partition=[3, 3]" : "pipeline.partition=[2, 1, 2, 1]",
             "--set",
             fmt::format("pipeline.micro_batches={}", micro_batches),
             "--set",
             fmt::format("pipeline.group_size={}", group),
             "--set",
             fmt::format("training.batch={}", micro_batches)},
            path("x.txt"));
    };
    constexpr std::string_view named = "parallelism.pipeline_parallel_schedule = ";
    constexpr std::string_view other = "has no such order";
    EXPECT_THAT(said("1f1b", 2, 0), HasSubstr(std::string(named)));
    EXPECT_THAT(said("1f1b", 1, 0), HasSubstr(std::string(other)));
    EXPECT_THAT(said("interleaved-1f1b", 4, 0), HasSubstr(std::string(named)));
    EXPECT_THAT(said("interleaved-1f1b", 1, 0), HasSubstr(std::string(named)));
    EXPECT_THAT(said("interleaved-1f1b", 5, 0), HasSubstr(std::string(other)));
    EXPECT_THAT(said("interleaved-1f1b", 4, 4), HasSubstr(std::string(other)));
    EXPECT_THAT(said("hanayo", 2, 0), HasSubstr("ZBVZeroBubble"));
}

}  // namespace other_exports_test
}  // namespace pipetwin::cli
