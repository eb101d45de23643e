// SPDX-License-Identifier: Apache-2.0
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "tests/cli/interop/import/megatron_import.h"

namespace pipetwin::cli {
namespace megatron_division_test {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

/// Weights are gathered beside the next step only with a flag of their own, which comes back.
TEST_F(ImportMegatron, GathersOfWeightsOverlapAsTheFlagSays) {
    const std::string sums = std::string(llama_8b) + "--overlap-grad-reduce ";
    EXPECT_THAT(fragment(llama_8b), Not(HasSubstr("overlap_gather")));
    EXPECT_THAT(fragment(sums), HasSubstr("overlap_gather = false\n"));
    EXPECT_THAT(fragment(sums + "--overlap-param-gather", {"--device", "h100-sxm"}),
                HasSubstr("overlap_gather = true\n"));
    ASSERT_EQ(pipetwin({"export", "megatron-flags", path("x.toml"), "--out", path("flags")}).code,
              0);
    EXPECT_THAT(content_of(path("flags")), HasSubstr("--overlap-param-gather"));
}

TEST_F(ImportMegatron, DevicesThatShareSamplesAreAKey) {
    const std::string context = std::string(llama_8b) + "--context-parallel-size 2";
    const Outcome outcome = import(context, {"--device", "h100-sxm"});
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_THAT(outcome.err, Not(HasSubstr("context")));
    const std::string text = content_of(path("x.toml"));
    EXPECT_THAT(text, HasSubstr("micro_batches = 128\ndata_parallel = 1\n"));
    EXPECT_THAT(text, HasSubstr("context_parallel = 2\n"));
    EXPECT_THAT(fragment(context + " --cp-comm-type a2a", {"--device", "h100-sxm"}),
                HasSubstr("context_parallel = 2\ncontext_method = \"all-to-all\"\n"));
}

/// 16 experts in 8 groups over the 16 devices of a stage; what comes in goes out again.
TEST_F(ImportMegatron, DividedExpertsGoInAndOut) {
    const std::string flags =
        "torchrun --nproc_per_node 8 --nnodes 4 pretrain_gpt.py --num-layers 8 --hidden-size 512 "
        "--ffn-hidden-size 1024 --num-attention-heads 8 --seq-length 512 "
        "--max-position-embeddings 512 --vocab-size 8192 --swiglu --disable-bias-linear "
        "--normalization RMSNorm --position-embedding-type rope "
        "--untie-embeddings-and-output-weights --bf16 --micro-batch-size 1 "
        "--global-batch-size 64 --tensor-model-parallel-size 2 --sequence-parallel "
        "--pipeline-model-parallel-size 2 --context-parallel-size 2 --cp-comm-type all_gather "
        "--num-experts 16 --moe-router-topk 2 --moe-ffn-hidden-size 512 "
        "--use-distributed-optimizer "
        "--expert-model-parallel-size 8 --expert-tensor-parallel-size 1 ";
    const std::string text =
        fragment(flags +
                     "--moe-token-dispatcher-type flex --moe-flex-dispatcher-backend hybridep "
                     "--moe-expert-capacity-factor 1.5 --moe-pad-expert-input-to-capacity "
                     "--moe-router-force-load-balancing --use-tp-pp-dp-mapping",
                 {"--device", "h100-sxm"});
    EXPECT_THAT(text,
                HasSubstr("context_parallel = 2\ncontext_method = \"all-gather\"\n"
                          "expert_parallel = 8\nexpert_tensor_parallel = 1\n"
                          "expert_dispatch = \"hybridep\"\norder = \"tp-cp-ep-pp-dp\"\n"));
    EXPECT_THAT(text, HasSubstr("expert_load = \"balanced\"\nexpert_capacity = 1.5\n"));
    EXPECT_THAT(text, HasSubstr("data_parallel = 4\n"));
    const Outcome out = pipetwin({"export",
                                  "megatron-flags",
                                  path("x.toml"),
                                  "--set",
                                  between_nodes,
                                  "--out",
                                  path("flags")});
    ASSERT_EQ(out.code, 0) << out.err;
    EXPECT_THAT(content_of(path("flags")),
                AllOf(HasSubstr("--context-parallel-size 2 --cp-comm-type all_gather "
                                "--expert-model-parallel-size 8 --expert-tensor-parallel-size 1 "
                                "--moe-token-dispatcher-type flex "
                                "--moe-flex-dispatcher-backend hybridep "
                                "--moe-expert-capacity-factor 1.5 "),
                      HasSubstr("--moe-pad-expert-input-to-capacity "),
                      HasSubstr("--use-tp-pp-dp-mapping ")));
    // torchtitan has the same degrees, but another order of devices and no capacity.
    const Outcome titan = pipetwin({"export",
                                    "torchtitan",
                                    path("x.toml"),
                                    "--set",
                                    between_nodes,
                                    "--out",
                                    path("titan.json")});
    ASSERT_EQ(titan.code, 0) << titan.err;
    const std::string degrees =
        "parallelism.context_parallel_degree = 2, "
        "parallelism.context_parallel_rotate_method = \"allgather\", "
        "parallelism.expert_parallel_degree = 8, parallelism.expert_tensor_parallel_degree = 1, "
        "parallelism.expert_parallel_comm_backend = \"hybridep\"";
    EXPECT_THAT(titan.err,
                AllOf(HasSubstr("parallelism.data_parallel_shard_degree = 4, "
                                "parallelism.tensor_parallel_degree = 2, " +
                                degrees),
                      HasSubstr("warning: devices in the order tp-cp-ep-pp-dp"),
                      HasSubstr("warning: training.expert_capacity = 1.5"),
                      Not(HasSubstr("warning: pipeline.expert"))));
    std::string lines =
        "parallelism.data_parallel_shard_degree = 4\n"
        "parallelism.tensor_parallel_degree = 2\n" +
        degrees + "\n";
    for (std::size_t at = 0; (at = lines.find(", ", at)) != std::string::npos;) {
        lines.replace(at, 2, "\n");
    }
    const Outcome back =
        pipetwin({"import", "torchtitan", file("titan.toml", lines), "--out", path("back.toml")});
    EXPECT_EQ(back.code, 0) << back.err;
    EXPECT_THAT(content_of(path("back.toml")),
                HasSubstr("context_parallel = 2\ncontext_method = \"all-gather\"\n"
                          "expert_parallel = 8\nexpert_tensor_parallel = 1\n"
                          "expert_dispatch = \"hybridep\"\n"));
    const Outcome other = pipetwin({"export",
                                    "torchtitan",
                                    path("x.toml"),
                                    "--set",
                                    between_nodes,
                                    "--set",
                                    "pipeline.expert_tensor_parallel=4",
                                    "--set",
                                    "pipeline.expert_parallel=4",
                                    "--set",
                                    "pipeline.context_method=all-to-all",
                                    "--out",
                                    path("other.json")});
    EXPECT_THAT(other.err,
                AllOf(HasSubstr("warning: pipeline.expert_tensor_parallel = 4: torchtitan takes 1 "
                                "or the 2 of tensor_parallel"),
                      HasSubstr("warning: pipeline.context_method = \"all-to-all\"")));
    const Outcome gathers = import(flags, {"--device", "h100-sxm"});
    EXPECT_EQ(gathers.code, 0) << gathers.err;
    EXPECT_THAT(gathers.err, HasSubstr("no --moe-token-dispatcher-type, which is allgather"));
    const Outcome odd = import(flags + "--expert-tensor-parallel-size 3", {"--device", "h100-sxm"});
    EXPECT_EQ(odd.code, 3);
    const Outcome uneven = import(
        "torchrun --nproc_per_node 8 pretrain_gpt.py --num-experts 12 --expert-model-parallel-size "
        "3");
    EXPECT_EQ(uneven.code, 4);
    EXPECT_THAT(uneven.err,
                HasSubstr("8 devices of a stage cannot be shared out to groups of 3 x 1 devices"));
}

/// Flags as in Megatron-LM's examples and documentation. Each fragment simulates as it is, and its
/// keys come back from the flags that are exported of it.
TEST_F(ImportMegatron, WhatDevicesKeepAndShareIsPredictedAndComesBack) {
    const std::string one = "--tensor-model-parallel-size 1 ";
    const std::string full = one + "--recompute-granularity full --recompute-method uniform ";
    const std::string pairs = "--tensor-model-parallel-size 2 ";
    const std::string fsdp = "--use-megatron-fsdp --ckpt-format fsdp_dtensor ";
    const std::vector<Said> pipelines{
        {full + "--recompute-num-layers 1", "recompute = \"block\"\n"},
        {one + "--recompute-activations", "recompute = \"selective\"\n"},
        {one + "--recompute-granularity selective", "recompute = \"selective\"\n"},
        {pairs + "--sequence-parallel", "tensor_parallel = 2\nsequence_parallel = true\n"},
        {pairs + "--sequence-parallel --use-distributed-optimizer",
         "sequence_parallel = true\ntensor_overlap = false\nshard = \"optimizer\"\n"},
        {pairs + "--sequence-parallel --tp-comm-overlap",
         "sequence_parallel = true\ntensor_overlap = true\n"},
        {one + "--grad-reduce-in-bf16", "gradients = \"same\"\n"},
        {one + "--use-precision-aware-optimizer --main-params-dtype fp32 --exp-avg-dtype bf16 "
               "--exp-avg-sq-dtype bf16",
         "optimizer_state_bytes = 6\n"},
        {one + "--no-gradient-accumulation-fusion", "accumulation = \"separate\"\n"},
        {one + "--accumulate-allreduce-grads-in-fp32", "gradients = \"fp32\"\n"},
    };
    const std::vector<Said> replicas{
        {full + "--recompute-num-layers 1 " + fsdp +
             "--data-parallel-sharding-strategy optim_grads_params",
         "shard = \"weights\"\n"},
        {full + "--recompute-num-layers 1 " + fsdp +
             "--data-parallel-sharding-strategy optim_grads",
         "shard = \"gradients\"\n"},
        {full + "--recompute-num-layers 1 " + fsdp + "--data-parallel-sharding-strategy optim",
         "shard = \"optimizer\"\n"},
        {full + "--recompute-num-layers 1 --use-distributed-optimizer "
                "--num-distributed-optimizer-instances 2",
         "shard = \"optimizer\"\nshard_group = 8\n"},
        {full + "--recompute-num-layers 1 --use-torch-fsdp2", "shard = \"weights\"\n"},
    };
    for (const auto& [stages, cases] : {std::pair(4, pipelines), std::pair(1, replicas)}) {
        for (const Said& said : cases) {
            const std::string text =
                fragment(llama_in(stages) + said.flags, {"--device", "h100-sxm"});
            EXPECT_THAT(text, HasSubstr(said.lines)) << said.flags;
            const Outcome simulated =
                pipetwin({"simulate", path("x.toml"), "--set", between_nodes});
            EXPECT_EQ(simulated.code, 0) << said.flags << simulated.err;
            EXPECT_THAT(simulated.err, Not(HasSubstr("changes nothing"))) << said.flags;
            ASSERT_EQ(
                pipetwin(
                    {"export", "megatron-flags", path("x.toml"), "--force", "--out", path("flags")})
                    .code,
                0);
            const std::string again = fragment(std::string(launcher) + content_of(path("flags")));
            std::string expected = tables_of(text);
            if (content_of(path("flags")).find("--use-megatron-fsdp") != std::string::npos) {
                // Megatron up to core 0.14 refuses gradients that are divided and added up by the
                // matrix products; the export says so.
                const std::string before = "gradients = \"fp32\"\n";
                expected.insert(expected.find(before) + before.size(),
                                "accumulation = \"separate\"\n");
            }
            EXPECT_EQ(tables_of(again), expected) << said.flags;
        }
    }
}

/// Korthikanti et al., arXiv 2205.05198: full recompute adds a forward, and keeps the inputs of
/// blocks alone; sequence parallelism divides what is else whole on every device.
TEST_F(ImportMegatron, RecomputeAndDividedSequencesNeedLessMemory) {
    const auto predicted = [&](const std::string& flags) {
        fragment(llama_in(4) + "--tensor-model-parallel-size 2 " + flags, {"--device", "h100-sxm"});
        return pipetwin({"simulate", path("x.toml"), "--set", between_nodes, "--json"}).json();
    };
    const auto peak = [](const nlohmann::json& json) {
        return json["devices"][0]["peak_bytes"]["total"].get<std::int64_t>();
    };
    const nlohmann::json plain = predicted("");
    const nlohmann::json full = predicted(
        "--recompute-granularity full --recompute-method uniform --recompute-num-layers 1");
    const nlohmann::json divided = predicted("--sequence-parallel");
    EXPECT_GT(full["step_ms"].get<double>(), plain["step_ms"].get<double>());
    EXPECT_LT(peak(full), peak(plain));
    EXPECT_LT(peak(divided), peak(plain));
}

/// One device to a rank: Megatron turns sequence parallelism off, with a warning of its own.
TEST_F(ImportMegatron, ASequenceOfOneDeviceIsNotDivided) {
    const Outcome outcome = import(llama_in(4) + "--sequence-parallel", {"--device", "h100-sxm"});
    EXPECT_EQ(outcome.code, 0);
    EXPECT_THAT(outcome.err, HasSubstr("warning: --sequence-parallel: Megatron turns it off"));
    EXPECT_THAT(content_of(path("x.toml")), Not(HasSubstr("sequence_parallel")));
    EXPECT_THAT(outcome.err, HasSubstr("the links between nodes are those of 8x-h100-sxm"));
    EXPECT_EQ(pipetwin({"simulate", path("x.toml")}).code, 0);
    EXPECT_EQ(pipetwin({"simulate", path("x.toml"), "--set", between_nodes}).code, 0);
    EXPECT_THAT(import(llama_in(4)).err,
                HasSubstr("warning: several nodes: set cluster.node_link"));
}

/// The bias and GELU that Megatron fuses by default are those of tanh.
TEST_F(ImportMegatron, TheFormOfGeluIsReadAndComesBack) {
    const std::string gpt =
        "--num-layers 4 --hidden-size 64 --num-attention-heads 4 --seq-length 32 --vocab-size 128 "
        "--pipeline-model-parallel-size 2 --micro-batch-size 1 --global-batch-size 8 ";
    const std::string by_tanh = "gelu = \"tanh\"\n";
    EXPECT_THAT(fragment(gpt), HasSubstr(by_tanh));
    EXPECT_THAT(fragment(gpt + "--no-bias-gelu-fusion --openai-gelu"), HasSubstr(by_tanh));
    EXPECT_THAT(fragment(gpt + "--no-bias-gelu-fusion"), Not(HasSubstr("gelu")));
    ASSERT_EQ(pipetwin({"export", "megatron-flags", path("x.toml"), "--out", path("flags")}).code,
              0);
    EXPECT_THAT(content_of(path("flags")), HasSubstr("--no-bias-gelu-fusion"));
}

TEST_F(ImportMegatron, GroupsOfLayersAndModulesWithoutAWordAreTold) {
    const std::string full = "--recompute-granularity full --recompute-method uniform ";
    EXPECT_THAT(import(llama_in(4) + full + "--recompute-num-layers 2").err,
                Not(HasSubstr("recompute-num-layers")));
    EXPECT_THAT(content_of(path("x.toml")),
                HasSubstr("recompute = \"block\"\nrecompute_blocks = 2\n"));
    // A stage has 8 blocks.
    EXPECT_THAT(fragment(llama_in(4) + full + "--recompute-num-layers 8"),
                HasSubstr("recompute = \"block\"\nrecompute_blocks = 8\n"));
    const std::string first = "--recompute-granularity full --recompute-method block ";
    const Outcome some = import(llama_in(4) + first + "--recompute-num-layers 5");
    EXPECT_EQ(some.code, 0);
    EXPECT_THAT(content_of(path("x.toml")),
                HasSubstr("recompute = \"block\"\nrecompute_only = 5\n"));
    EXPECT_THAT(fragment(llama_in(4) + first + "--recompute-num-layers 8"),
                HasSubstr("recompute = \"block\"\n"));
    EXPECT_THAT(fragment(llama_in(4) +
                             "--recompute-granularity selective --recompute-modules core_attn mlp",
                         {"--device", "h100-sxm"}),
                HasSubstr("recompute = \"none\"\nrecompute_modules = [\"core_attn\", \"mlp\"]\n"));
    ASSERT_EQ(pipetwin({"export",
                        "megatron-flags",
                        path("x.toml"),
                        "--set",
                        between_nodes,
                        "--out",
                        path("flags")})
                  .code,
              0);
    EXPECT_THAT(content_of(path("flags")), HasSubstr("--recompute-granularity selective"));
    EXPECT_THAT(content_of(path("flags")), HasSubstr("--recompute-modules core_attn mlp "));
}

TEST_F(ImportMegatron, InputsThatGoToHostMemoryComeInAndGoOut) {
    const std::string text =
        "offload_modules = [\"attn_norm\", \"core_attn\"]\n"
        "offload_fraction = 0.75\n";
    const std::string words =
        "--fine-grained-activation-offloading "
        "--offload-modules attn_norm core_attn "
        "--activation-offload-fraction 0.75";
    EXPECT_THAT(fragment(llama_in(4) + words, {"--device", "h100-sxm"}), HasSubstr(text));
    const auto exported = [&](const std::string& setting) {
        return pipetwin({"export",
                         "megatron-flags",
                         path("x.toml"),
                         "--set",
                         between_nodes,
                         "--set",
                         setting,
                         "--force",
                         "--out",
                         path("flags")});
    };
    ASSERT_EQ(exported("pipeline.prefetch=1").code, 0);
    EXPECT_THAT(content_of(path("flags")), HasSubstr("--fine-grained-activation-offloading"));
    EXPECT_THAT(content_of(path("flags")), HasSubstr("--offload-modules attn_norm core_attn"));
    EXPECT_THAT(content_of(path("flags")), HasSubstr("--activation-offload-fraction 0.75"));
    for (const std::string lists : {"pipeline.recompute_modules=[[\"mlp\"],[],[],[]]",
                                    "pipeline.offload_modules=[[\"attn_norm\"],[],[],[]]",
                                    "pipeline.recompute_modules=[\"mlp:2\"]"}) {
        const Outcome refused = exported(lists);
        EXPECT_NE(refused.code, 0) << lists;
        EXPECT_THAT(refused.err, HasSubstr("Megatron")) << lists;
    }
}

TEST_F(ImportMegatron, LayersThatGoToHostMemoryAreOffloadedBlocks) {
    EXPECT_THAT(fragment(llama_in(1) + "--cpu-offloading-num-layers 3", {"--device", "h100-sxm"}),
                HasSubstr("offload_blocks = 3\n"));
    EXPECT_THAT(fragment(llama_in(1) + "--cpu-offloading-num-layers 0", {"--device", "h100-sxm"}),
                Not(HasSubstr("offload_blocks")));
}

/// The parts of v2.5, of 2021 (Narayanan et al., arXiv 2104.04473, section 4.1).
TEST_F(ImportMegatron, BoundariesAreScatteredByVersionsThatDidSo) {
    const std::string split = llama_in(2) + "--tensor-model-parallel-size 4 ";
    const std::string old = "--checkpoint-activations --checkpoint-num-layers 1 ";
    EXPECT_THAT(
        fragment(split + old, {"--device", "h100-sxm"}),
        AllOf(HasSubstr("recompute = \"block\"\n"), HasSubstr("scatter_boundaries = true\n")));
    const Outcome simulated = pipetwin({"simulate", path("x.toml"), "--set", between_nodes});
    EXPECT_EQ(simulated.code, 0) << simulated.err;
    EXPECT_THAT(
        pipetwin({"export", "megatron-flags", path("x.toml"), "--force", "--out", path("flags")})
            .err,
        HasSubstr("warning: pipeline.scatter_boundaries = true"));
    EXPECT_THAT(fragment(split + old + "--no-scatter-gather-tensors-in-pipeline"),
                Not(HasSubstr("scatter_boundaries")));
    const Outcome newer = import(split);
    EXPECT_THAT(newer.err, HasSubstr("set pipeline.scatter_boundaries = true"));
    EXPECT_THAT(content_of(path("x.toml")), Not(HasSubstr("scatter_boundaries")));
    EXPECT_THAT(import(split + "--sequence-parallel").err, Not(HasSubstr("scatter_boundaries")));
}

/// NVLink of a GB200 NVL72 joins 18 nodes of four.
TEST_F(ImportMegatron, RacksOfADeviceAreOneDomain) {
    const auto on = [&](int per_node, const std::string& device) {
        return fragment(
            fmt::format("torchrun --nproc_per_node {} pretrain_gpt.py --num-layers 8 "
                        "--micro-batch-size 1 --global-batch-size 64 --bf16 --hidden-size 512 "
                        "--num-attention-heads 8 --seq-length 1024 --max-position-embeddings "
                        "1024 --vocab-size 32000",
                        per_node),
            {"--device", device});
    };
    EXPECT_THAT(on(4, "gb200"), HasSubstr("per_node = 4\nnvlink_domain = 72\n"));
    EXPECT_THAT(on(16, "gb200"), Not(HasSubstr("nvlink_domain")));
    EXPECT_THAT(on(4, "h100-sxm"), Not(HasSubstr("nvlink_domain")));
}

TEST_F(ImportMegatron, GroupsThatDivideTheStateAreSaidWhereTheyAreKnown) {
    const std::string groups = "--use-distributed-optimizer --num-distributed-optimizer-instances ";
    // 16 devices, 4 stages
    EXPECT_THAT(fragment(llama_in(4) + groups + "2", {"--device", "h100-sxm"}),
                HasSubstr("shard_group = 2\n"));
    EXPECT_THAT(fragment(llama_in(4) + groups + "1", {"--device", "h100-sxm"}),
                Not(HasSubstr("shard_group")));
    EXPECT_EQ(import(llama_in(1) + groups + "3").code, 4);
    EXPECT_THAT(fragment(llama_in(2) + "--context-parallel-size 2 " + groups + "2",
                         {"--device", "h100-sxm"}),
                HasSubstr("shard_group = 2\n"));
    for (const std::string& flags : {llama_in(4) + groups + "4",
                                     llama_in(4) + "--num-distributed-optimizer-instances 2",
                                     std::string(small_gpt) + groups + "2"}) {
        const Outcome refused = import(flags);
        EXPECT_EQ(refused.code, 3) << flags;
        EXPECT_THAT(refused.err, HasSubstr("--num-distributed-optimizer-instances")) << flags;
    }
    const Outcome insisted = import(std::string(small_gpt) + groups + "2", {"--insist"});
    EXPECT_EQ(insisted.code, 0) << insisted.err;
    EXPECT_THAT(content_of(path("x.toml")), HasSubstr("--num-distributed-optimizer-instances 2"));
}

TEST_F(ImportMegatron, MessagesBesideProductsAreAKey) {
    const std::string pairs = "--tensor-model-parallel-size 2 --sequence-parallel ";
    const auto with = [&](const std::string& flags) {
        return import(llama_in(4) + pairs + flags, {"--device", "h100-sxm"});
    };
    EXPECT_THAT(with("--tp-comm-overlap").err,
                AllOf(HasSubstr("stack megatron-bridge-2026: --tp-comm-overlap: "),
                      Not(HasSubstr("overlapped, a step"))));
    EXPECT_THAT(content_of(path("x.toml")), HasSubstr("tensor_overlap = true\n"));
    with("");
    EXPECT_THAT(content_of(path("x.toml")), HasSubstr("tensor_overlap = false\n"));
    // A file of keys may leave out what another one says.
    const std::string keys =
        "num_layers: 8\nhidden_size: 64\nnum_attention_heads: 4\nseq_length: 32\n"
        "pipeline_model_parallel_size: 2\ntensor_model_parallel_size: 2\nsequence_parallel: true\n";
    EXPECT_THAT(fragment(keys), Not(HasSubstr("tensor_overlap")));
    EXPECT_THAT(fragment(keys + "tp_comm_overlap: true\n"), HasSubstr("tensor_overlap = true\n"));
}

}  // namespace megatron_division_test
}  // namespace pipetwin::cli
