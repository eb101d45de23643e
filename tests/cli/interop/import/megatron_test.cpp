// SPDX-License-Identifier: Apache-2.0
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <toml++/toml.h>

#include "tests/cli/interop/import/megatron_import.h"

namespace pipetwin::cli {
namespace import_megatron_test {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

TEST_F(ImportMegatron, AGatedModelIsCountedAndItsProfileNamed) {
    const Outcome outcome = import(llama_8b);
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_THAT(outcome.out, HasSubstr("4 ranks, 8 stages, 8,030,261,248 parameters"));
    EXPECT_THAT(outcome.err,
                AllOf(HasSubstr("warning: the model is more than a gpt (a gated inner layer"),
                      HasSubstr("--device NAME"),
                      HasSubstr("x.profile.json")));
    const std::string text = content_of(path("x.toml"));
    EXPECT_THAT(text,
                AllOf(HasSubstr("kind = \"profile\"\nfile = \"x.profile.json\"\n"),
                      HasSubstr("batch = 128\n"),
                      HasSubstr("stages = 4\nchunks = 2\nschedule = \"interleaved-1f1b\"\n"),
                      HasSubstr("micro_batches = 64\ndata_parallel = 2\n"),
                      HasSubstr("shard = \"optimizer\"\n"),
                      HasSubstr("partition = [4, 4, 4, 4, 4, 4, 4, 4]\n")));
    EXPECT_FALSE(std::filesystem::exists(path("x.profile.json")));
}

TEST_F(ImportMegatron, WithADeviceTheFragmentIsAWholeScenario) {
    for (const std::vector<std::string>& more :
         {std::vector<std::string>{}, std::vector<std::string>{"--whole-blocks"}}) {
        std::vector<std::string> options{"--device", "h100-sxm"};
        options.insert(options.end(), more.begin(), more.end());
        fragment(llama_8b, options);
        const Outcome simulated = pipetwin({"simulate", path("x.toml"), "--json"});
        ASSERT_EQ(simulated.code, 0) << simulated.err;
        const Outcome layout = pipetwin(
            {"export", "megatron-layout", path("x.toml"), "--force", "--out", path("layout")});
        EXPECT_EQ(layout.code, 0) << layout.err;
        EXPECT_EQ(content_of(path("layout")), "Et*4|(t*4|)*6t*4L\n");
    }
    const Outcome there = pipetwin({"import",
                                    "megatron",
                                    file("train.sh", llama_8b),
                                    "--device",
                                    "h100-sxm",
                                    "--out",
                                    path("other.toml")});
    EXPECT_EQ(there.code, 0);
    std::filesystem::remove(path("other.toml"));
    const Outcome kept = pipetwin({"import",
                                   "megatron",
                                   file("train.sh", llama_8b),
                                   "--device",
                                   "h100-sxm",
                                   "--out",
                                   path("other.toml")});
    EXPECT_EQ(kept.code, 6);
    EXPECT_THAT(kept.err, HasSubstr("other.profile.json: the file is there already"));
}

/// Layers that predict further tokens stand with the head, as in the layout of DeepSeek-V3.
TEST_F(ImportMegatron, LayersThatPredictFurtherTokensStandWithTheHead) {
    const std::string flags =
        "torchrun --nproc_per_node 2 pretrain_gpt.py --num-layers 4 --hidden-size 512 "
        "--num-attention-heads 8 --seq-length 512 --max-position-embeddings 512 "
        "--vocab-size 8192 --micro-batch-size 1 --global-batch-size 8 "
        "--pipeline-model-parallel-size 2 --mtp-num-layers 1 --pipeline-model-parallel-layout ";
    const std::string text = fragment(flags + "\"Ettt|tmL\"", {"--device", "h100-sxm"});
    EXPECT_THAT(text, HasSubstr("partition = [3, 1]\n"));
    EXPECT_THAT(content_of(path("x.profile.json")), HasSubstr("\"mtp0\""));
    EXPECT_EQ(pipetwin({"simulate", path("x.toml")}).code, 0);
    const auto exported = [this](const std::string& format) {
        return pipetwin({"export", format, path("x.toml"), "--out", path(format)});
    };
    ASSERT_EQ(exported("megatron-layout").code, 0);
    EXPECT_EQ(content_of(path("megatron-layout")), "Et*3|tmL\n");
    ASSERT_EQ(exported("megatron-flags").code, 0);
    EXPECT_THAT(content_of(path("megatron-flags")), HasSubstr("--mtp-num-layers 1 "));
    const Outcome titan = exported("torchtitan");
    EXPECT_EQ(titan.code, 4);
    EXPECT_THAT(titan.err, HasSubstr("a layer that predicts further tokens"));
    const Outcome before = import(flags + "\"Et|tt|tm|L\"", {"--device", "h100-sxm"});
    EXPECT_EQ(before.code, 4);
    EXPECT_THAT(before.err, HasSubstr("stage 2 has a layer m"));
}

TEST_F(ImportMegatron, FirstAndLastStagesAreAsTheFlagsSay) {
    const std::string gpt =
        "torchrun pretrain_gpt.py --hidden-size 64 --num-attention-heads 4 --seq-length 32 "
        "--vocab-size 512 --pipeline-model-parallel-size 4 --micro-batch-size 1 "
        "--global-batch-size 32 ";
    const std::string text = fragment(gpt +
                                      "--num-layers 32 --decoder-first-pipeline-num-layers 6 "
                                      "--decoder-last-pipeline-num-layers 6");
    EXPECT_THAT(text, HasSubstr("partition = [6, 10, 10, 6]\n"));
    EXPECT_THAT(text, HasSubstr("kind = \"gpt\"\nlayers = 32\n"));
    EXPECT_EQ(pipetwin({"export", "megatron-flags", path("x.toml"), "--out", path("flags")}).code,
              0);
    EXPECT_THAT(content_of(path("flags")),
                HasSubstr("--decoder-first-pipeline-num-layers 6 "
                          "--decoder-last-pipeline-num-layers 6 "));
    EXPECT_THAT(fragment(gpt + "--num-layers 30 --account-for-embedding-in-pipeline-split "
                               "--account-for-loss-in-pipeline-split"),
                HasSubstr("partition = [7, 8, 8, 7]\n"));
}

/// 6 micro-batches on 4 ranks: Megatron wants to be told of groups of 6.
TEST_F(ImportMegatron, GroupsOfMicroBatchesAreThoseOfTheFlags) {
    const std::string flags =
        "torchrun --nproc_per_node 4 pretrain_gpt.py --num-layers 8 "
        "--pipeline-model-parallel-size 4 --num-virtual-stages-per-pipeline-rank 2 "
        "--micro-batch-size 1 --global-batch-size 6 ";
    EXPECT_THAT(import(flags).err, HasSubstr("Megatron refuses 6 micro-batches in groups of 4"));
    const std::string grouped = flags + "--microbatch-group-size-per-virtual-pipeline-stage 6";
    EXPECT_THAT(import(grouped).err, Not(HasSubstr("Megatron refuses")));
    EXPECT_THAT(content_of(path("x.toml")), HasSubstr("group_size = 6\n"));
    for (const char* size : {"3", "4", "5", "7"}) {
        const std::string refused =
            flags + "--microbatch-group-size-per-virtual-pipeline-stage " + size;
        const Outcome outcome = import(refused);
        EXPECT_EQ(outcome.code, 4) << size;
        EXPECT_THAT(
            outcome.err,
            AllOf(HasSubstr("train.sh: --microbatch-group-size-per-virtual-pipeline-stage " +
                            std::string(size)),
                  HasSubstr("hint: Megatron takes "
                            "--microbatch-group-size-per-virtual-pipeline-stage 6")));
    }
}

/// Separate kernels keep all scores: as --attention standard estimates them.
TEST_F(ImportMegatron, AttentionIsEstimatedAsTheFlagsComputeIt) {
    const std::string model =
        "--num-layers 4 --hidden-size 512 --num-attention-heads 8 --seq-length 1024 "
        "--vocab-size 32000 --swiglu --bf16 --pipeline-model-parallel-size 4 ";
    const auto layers = [&](const std::string& flags, const std::vector<std::string>& more = {}) {
        std::vector<std::string> options{"--device", "h100-sxm"};
        options.insert(options.end(), more.begin(), more.end());
        fragment(model + flags, options);
        return nlohmann::json::parse(content_of(path("x.profile.json")))["layers"];
    };
    const nlohmann::json flash = layers("--use-flash-attn");
    const nlohmann::json standard = layers("", {"--attention", "standard"});
    EXPECT_NE(standard, flash);
    EXPECT_EQ(layers("--attention-backend unfused"), standard);
    EXPECT_EQ(layers("--attention-backend unfused", {"--attention", "flash"}), flash);
    EXPECT_EQ(layers(""), flash);
    EXPECT_THAT(import(model, {"--device", "h100-sxm"}).err,
                HasSubstr("neither --attention-backend nor --use-flash-attn"));
    EXPECT_THAT(import(model + "--use-flash-attn", {"--device", "h100-sxm"}).err,
                Not(HasSubstr("attention is")));
    EXPECT_EQ(import(model + "--attention-backend fast").code, 3);
    const std::string variables = "export NVTE_FLASH_ATTN=0 NVTE_FUSED_ATTN=0\n";
    EXPECT_THAT(import(variables + model, {"--device", "h100-sxm"}).err,
                HasSubstr("NVTE_FLASH_ATTN=0 and NVTE_FUSED_ATTN=0: attention is estimated as "
                          "separate kernels"));
}

TEST_F(ImportMegatron, ProductsInEightBitsAreAPrecisionOfTheProfile) {
    const auto precision = [this](const std::string& flags) {
        fragment(llama_in(4) + "--use-flash-attn " + flags, {"--device", "h100-sxm"});
        return nlohmann::json::parse(content_of(path("x.profile.json")))["precision"]
            .get<std::string>();
    };
    EXPECT_EQ(precision("--fp8-format hybrid"), "fp8");
    EXPECT_EQ(precision("--fp8-format hybrid --fp8-recipe tensorwise"), "fp8");
    EXPECT_EQ(precision("--fp8-format e4m3 --fp8-recipe blockwise"), "fp8-block");
    EXPECT_EQ(
        import(llama_in(4) + "--fp8-format e4m3 --fp8-recipe mxfp8", {"--device", "h100-sxm"}).code,
        3);
    EXPECT_EQ(precision(""), "bf16");
    EXPECT_EQ(import(llama_in(4) + "--fp8-format hybrid", {"--device", "a100-sxm-80"}).code, 3);
    EXPECT_EQ(import(llama_in(4) + "--fp8-param-gather").code, 3);
}

TEST_F(ImportMegatron, AStackIsInTheProfileAndInTheFragment) {
    const std::string text = fragment(llama_in(4) + "--use-flash-attn --fp8-format hybrid",
                                      {"--device", "h100-sxm", "--stack", "nemo-2024"});
    EXPECT_THAT(text, HasSubstr("stack = \"nemo-2024\"\n"));
    EXPECT_EQ(nlohmann::json::parse(content_of(path("x.profile.json")))["stack"], "nemo-2024");
    const Outcome other =
        import(llama_in(4) + "--bf16", {"--device", "b200", "--stack", "nemo-2024"});
    EXPECT_EQ(other.code, 3);
    EXPECT_THAT(other.err, HasSubstr("'megatron-bridge-2026'"));
}

/// The flags say which software it is; --stack says it otherwise.
TEST_F(ImportMegatron, TheStackIsThatOfTheFlags) {
    const auto chosen = [this](const std::string& flags,
                               const std::vector<std::string>& more = {}) {
        const Outcome outcome =
            import(llama_in(4) + flags, joined({"--device", "a100-sxm-80"}, more));
        EXPECT_EQ(outcome.code, 0) << outcome.err;
        const auto profile = nlohmann::json::parse(content_of(path("x.profile.json")));
        const std::string stack = profile["stack"].get<std::string>();
        const bool is_said =
            outcome.err.find(fmt::format("\nstack {}: ", stack)) != std::string::npos ||
            outcome.err.starts_with(fmt::format("stack {}: ", stack));
        EXPECT_EQ(is_said, more.empty() || more.front() == "--attention") << outcome.err;
        return stack;
    };
    EXPECT_EQ(chosen("--use-flash-attn"), "megatron-2023");
    EXPECT_EQ(chosen("--transformer-impl local"), "megatron-2021");
    EXPECT_EQ(chosen("--transformer-impl local", {"--attention", "flash"}), "megatron-2023");
    EXPECT_EQ(chosen("--transformer-impl local", {"--stack", "megatron-2023"}), "megatron-2023");
    const Outcome local = import(llama_in(4) + "--transformer-impl local", {"--device", "b200"});
    EXPECT_THAT(local.err,
                HasSubstr("stack megatron-bridge-2026: the newest that knows b200, as none with "
                          "standard attention does (--transformer-impl local without"));
}

/// verl's examples: the engine that generates has devices of its own.
TEST_F(ImportMegatron, TheTableSaysWhoseSettingItIs) {
    const std::string actor =
        "python3 -m verl.trainer.main_ppo --config-path=config "
        "actor_rollout_ref.actor.megatron.pipeline_model_parallel_size=2 "
        "actor_rollout_ref.actor.megatron.tensor_model_parallel_size=2 ";
    const Outcome outcome = import(actor +
                                   "actor_rollout_ref.rollout.tensor_model_parallel_size=4 "
                                   "actor_rollout_ref.ref.megatron.pipeline_model_parallel_size=8 "
                                   "critic.megatron.tensor_model_parallel_size=8");
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_THAT(outcome.err,
                AllOf(HasSubstr("'rollout' is another model or program"),
                      HasSubstr("'ref' is another"),
                      HasSubstr("'critic' is another")));
    EXPECT_THAT(content_of(path("x.toml")),
                AllOf(HasSubstr("stages = 2\n"), HasSubstr("tensor_parallel = 2\n")));
    const Outcome strange = import(actor + "strange.context_parallel_size=4", {"--ignore-unknown"});
    EXPECT_EQ(strange.code, 3);
    EXPECT_THAT(strange.err, HasSubstr("whether 'strange' is about the model that is trained"));
    // NeMo's NeVA: a vision encoder beside the language model.
    EXPECT_THAT(fragment("model:\n  num_layers: 4\n  hidden_size: 64\n  num_attention_heads: 4\n"
                         "  seq_length: 32\n  mm_cfg:\n    vision_encoder:\n"
                         "      hidden_size: 1024\n      num_layers: 24\n"),
                AllOf(HasSubstr("layers = 4\n"), HasSubstr("d_model = 64\n")));
    EXPECT_EQ(import(actor + "actor_rollout_ref.model.lora.rank=8", {"--ignore-unknown"}).code, 3);
}

/// Tables and keys that an import writes.
bool is_key_of_a_fragment(const std::string& table, std::string_view key) {
    const std::map<std::string, std::set<std::string_view>> known{
        {"model",
         {"kind",
          "layers",
          "d_model",
          "heads",
          "context",
          "vocabulary",
          "feed_forward",
          "tied",
          "dropout",
          "gelu",
          "file"}},
        {"training",
         {"batch", "precision", "optimizer", "clip_norm", "gradients", "optimizer_state_bytes"}},
        {"pipeline",
         {"stages",
          "chunks",
          "schedule",
          "group_size",
          "micro_batches",
          "recompute",
          "recompute_blocks",
          "tensor_parallel",
          "sequence_parallel",
          "tensor_overlap",
          "scatter_boundaries",
          "shard",
          "shard_group",
          "overlap_reduction",
          "overlap_gather",
          "data_parallel",
          "partition"}},
        {"cluster", {"device", "per_node"}}};
    const auto found = known.find(table);
    return found != known.end() && found->second.contains(key);
}

// A flag whose name went on in the next line became a key of the fragment.
TEST_F(ImportMegatron, WritesOnlyWhatItUnderstoodSoCommentsCannotBecomeKeys) {
    constexpr std::string_view flags =
        "torchrun --nproc_per_node 4 pretrain_gpt.py --num-layers 8 --hidden-size 64 "
        "--num-attention-heads 4 --seq-length 32 --max-position-embeddings 32 --vocab-size 1000 "
        "--pipeline-model-parallel-size 2 --micro-batch-size 1 --global-batch-size 16 "
        "--log-interval 5 --wandb-project x --data-path y --tensorboard-dir z";
    const std::vector<std::string> injected{"'\n[cluster]\nmemory_limit = 7\n'",
                                            "'\nmemory_limit = 7'",
                                            "'\r[cluster]\r\nx = 1'",
                                            "\"\n[output]\n\"",
                                            "'\xc2\x85[cluster]'",
                                            "'\xe2\x80\xa8x = 1'",
                                            "'\xff\n[x]'",
                                            "'#'"};
    int written = 0;
    for (std::size_t at = flags.find(" --num"); at != std::string_view::npos;
         at = flags.find(' ', at + 1)) {
        for (const std::string& text : injected) {
            std::string changed(flags);
            changed.insert(at, text);
            const Outcome outcome = import(changed, {"--insist"});
            EXPECT_TRUE(outcome.code == 0 || outcome.code == 3 || outcome.code == 4) << outcome.err;
            if (outcome.code != 0) {
                continue;
            }
            ++written;
            const toml::table tables = toml::parse(content_of(path("x.toml")));
            for (const auto& [name, table] : tables) {
                ASSERT_TRUE(table.is_table()) << name.str() << " of " << changed;
                for (const auto& [key, value] : *table.as_table()) {
                    EXPECT_TRUE(is_key_of_a_fragment(std::string(name.str()), key.str()))
                        << name.str() << '.' << key.str() << " of " << changed;
                }
            }
        }
    }
    EXPECT_GT(written, 50);
}

}  // namespace import_megatron_test
}  // namespace pipetwin::cli
