// SPDX-License-Identifier: Apache-2.0
#include "core/interop/megatron_memory.h"

#include <optional>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/schedule/lower.h"

namespace pipetwin {
namespace megatron_memory_test {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

MegatronFlags flags_of(std::string_view text) {
    return parse_megatron_flags(text, "x.sh");
}

/// The word for 16 layers in four stages of four.
RecomputeWord recompute_of(const std::string& text) {
    const MegatronFlags flags =
        flags_of("--num-layers 16 --pipeline-model-parallel-size 4 " + text);
    return megatron_recompute(flags, "x.sh");
}

std::string uniform(int layers) {
    return "--recompute-granularity full --recompute-method uniform --recompute-num-layers " +
           std::to_string(layers);
}

/// docs of megatron/core/transformer/transformer_config.py: uniform keeps the input of each group
/// of N layers.
TEST(MegatronRecompute, OneLayerAtATimeIsABlock) {
    EXPECT_EQ(recompute_of(uniform(1)), (RecomputeWord{.word = "block"}));
    EXPECT_EQ(recompute_of("--recompute-granularity full --recompute-method block "
                           "--recompute-num-layers 4"),
              (RecomputeWord{.word = "block"}));
    EXPECT_EQ(recompute_of(""), (RecomputeWord{.word = "none"}));
}

TEST(MegatronRecompute, GroupsOfLayersAreGroupsOfBlocks) {
    EXPECT_EQ(recompute_of(uniform(2)), (RecomputeWord{.word = "block", .blocks = 2}));
    EXPECT_EQ(recompute_of(uniform(4)), (RecomputeWord{.word = "block", .blocks = 4}));
}

/// megatron/core/transformer/transformer_block.py: the first layers of each chunk; those that
/// predict further tokens keep everything (multi_token_prediction.py).
TEST(MegatronRecompute, TheFirstLayersOfAStageAreANumberOfBlocks) {
    const std::string method = "--recompute-granularity full --recompute-method block ";
    EXPECT_EQ(recompute_of(method), (RecomputeWord{.word = "block", .only = 1}));
    EXPECT_EQ(recompute_of(method + "--recompute-num-layers 3"),
              (RecomputeWord{.word = "block", .only = 3}));
    EXPECT_EQ(recompute_of(method + "--recompute-num-layers 2 "
                                    "--num-layers-per-virtual-pipeline-stage 2"),
              (RecomputeWord{.word = "block"}));
    EXPECT_EQ(recompute_of(method + "--recompute-num-layers 4 --mtp-num-layers 1"),
              (RecomputeWord{.word = "block", .only = 4}));
    EXPECT_EQ(recompute_of(method + "--recompute-num-layers 0"), (RecomputeWord{.word = "none"}));
}

TEST(MegatronRecompute, SelectiveIsCoreAttentionUnlessModulesSayOtherwise) {
    const RecomputeWord selective{.word = "selective"};
    EXPECT_EQ(recompute_of("--recompute-activations"), selective);
    EXPECT_EQ(recompute_of("--recompute-granularity selective"), selective);
    EXPECT_EQ(recompute_of("--recompute-granularity selective --recompute-modules core_attn"),
              selective);
    const RecomputeWord more =
        recompute_of("--recompute-granularity selective --recompute-modules core_attn mlp moe_act");
    EXPECT_EQ(more.word, "none");
    EXPECT_THAT(more.modules, ElementsAre("core_attn", "mlp"));  // there are no experts
    EXPECT_EQ(more.left_out, "");
    const std::string experts = "--num-experts 8 --recompute-granularity selective ";
    EXPECT_THAT(recompute_of(experts + "--recompute-modules layernorm moe_act").modules,
                ElementsAre("layernorm", "moe_act"));
    const RecomputeWord other = recompute_of(experts + "--recompute-modules core_attn odd");
    EXPECT_THAT(other.modules, ElementsAre("core_attn"));
    EXPECT_THAT(other.left_out, HasSubstr("--recompute-modules odd: "));
}

TEST(MegatronOffload, IsOfTheModulesThatTheModelHas) {
    const std::string on = "--fine-grained-activation-offloading ";
    const std::string modules = "--offload-modules attn_norm expert_fc1 ";
    EXPECT_EQ(megatron_offload(flags_of(modules)), OffloadWords{});
    EXPECT_THAT(megatron_offload(flags_of(on + modules)).modules, ElementsAre("attn_norm"));
    const OffloadWords experts = megatron_offload(
        flags_of(on + modules + "--num-experts 8 --activation-offload-fraction 0.5"));
    EXPECT_THAT(experts.modules, ElementsAre("attn_norm", "expert_fc1"));
    EXPECT_EQ(experts.fraction, 0.5);
    EXPECT_THAT(megatron_offload(flags_of(on + "--offload-modules gdn_norm")).left_out,
                HasSubstr("--offload-modules gdn_norm: "));
}

TEST(MegatronRecompute, TheLargestStageIsThatOfALayoutToo) {
    EXPECT_EQ(largest_stage(flags_of("--num-layers 6 --pipeline-model-parallel-size 3 "
                                     "--pipeline-model-parallel-layout \"Et|t*3|ttL\""),
                            "x.sh"),
              3);
    EXPECT_EQ(largest_stage(flags_of("--num-layers 8 --pipeline-model-parallel-size 2 "
                                     "--num-layers-per-virtual-pipeline-stage 2"),
                            "x.sh"),
              2);
    EXPECT_EQ(largest_stage(flags_of("--pipeline-model-parallel-size 2"), "x.sh"), std::nullopt);
}

/// docs/user-guide/parallelism-guide.md: optim is ZeRO-1, optim_grads ZeRO-2, optim_grads_params
/// ZeRO-3.
TEST(MegatronShard, IsTheStageOfZero) {
    const auto shard = [](std::string_view text) { return megatron_shard(flags_of(text)); };
    EXPECT_EQ(shard(""), Shard::None);
    EXPECT_EQ(shard("--use-distributed-optimizer"), Shard::Optimizer);
    const std::string fsdp = "--use-megatron-fsdp --use-distributed-optimizer ";
    EXPECT_EQ(shard(fsdp + "--data-parallel-sharding-strategy no_shard"), Shard::None);
    EXPECT_EQ(shard(fsdp + "--data-parallel-sharding-strategy optim"), Shard::Optimizer);
    EXPECT_EQ(shard(fsdp + "--data-parallel-sharding-strategy optim_grads"), Shard::Gradients);
    EXPECT_EQ(shard("--use-custom-fsdp --data-parallel-sharding-strategy optim_grads_params"),
              Shard::Weights);
    EXPECT_EQ(shard("--use-torch-fsdp2"), Shard::Weights);
    EXPECT_EQ(shard("--use-torch-fsdp2 --torch-fsdp2-no-reshard-after-forward"), Shard::Gradients);
    // Without FSDP the strategy is not looked at.
    EXPECT_EQ(shard("--data-parallel-sharding-strategy optim_grads_params"), Shard::None);
}

/// "accumulate and all-reduce gradients in fp32 for bfloat16 data type", arguments.py.
TEST(MegatronGradients, AreFp32ForBf16UnlessToldOtherwise) {
    const auto gradients = [](std::string_view text) { return megatron_gradients(flags_of(text)); };
    EXPECT_EQ(gradients("--bf16"), GradientType::Fp32);
    EXPECT_EQ(gradients("--bf16 --accumulate-allreduce-grads-in-fp32"), GradientType::Fp32);
    EXPECT_EQ(gradients("--bf16 --grad-reduce-in-bf16"), GradientType::Same);
    EXPECT_EQ(gradients("--fp16"), GradientType::Same);
    EXPECT_EQ(gradients("--fp16 --accumulate-allreduce-grads-in-fp32"), GradientType::Fp32);
    EXPECT_EQ(gradients(""), std::nullopt);
    EXPECT_EQ(gradients("model:\n  num_layers: 2\n  bf16: true\nddp:\n"
                        "  grad_reduce_in_fp32: false\n"),
              GradientType::Same);
}

/// megatron/core/optimizer: means as wide as their types; the copy of a bf16 weight is the 16 bits
/// that the weight does not have, unless Megatron keeps it itself, for recipes of 8 bits.
TEST(MegatronOptimizer, KeepsAsManyBytesAsItsTypesSay) {
    const auto bytes = [](const std::string& text) { return megatron_state_bytes(flags_of(text)); };
    const std::string aware = "--bf16 --use-precision-aware-optimizer ";
    const std::string narrow = "--exp-avg-dtype bf16 --exp-avg-sq-dtype bf16 ";
    EXPECT_EQ(bytes("--bf16"), std::nullopt);
    EXPECT_EQ(bytes("--bf16 --main-params-dtype fp32 --exp-avg-dtype fp32"), std::nullopt);
    EXPECT_EQ(bytes(aware), 2 + 4 + 4);
    EXPECT_EQ(bytes(aware + narrow), 2 + 2 + 2);
    EXPECT_EQ(bytes(aware + "--exp-avg-dtype fp8"), 2 + 1 + 4);
    EXPECT_EQ(bytes(aware + narrow + "--fp8-format hybrid"), 2 + 2 + 2);
    EXPECT_EQ(bytes(aware + narrow + "--fp8-format e4m3 --fp8-recipe mxfp8"), 4 + 2 + 2);
    EXPECT_EQ(bytes("--fp16 --use-precision-aware-optimizer " + narrow), 4 + 2 + 2);
    EXPECT_EQ(bytes("--fp16 --use-precision-aware-optimizer --main-params-dtype fp16 " + narrow),
              2 + 2 + 2);
    EXPECT_EQ(bytes("--use-precision-aware-optimizer"), std::nullopt);  // weights of four bytes
}

/// "Disabling sequence parallelism because tensor model parallelism is disabled", arguments.py.
TEST(MegatronSequence, IsDividedByDevicesOfARankAlone) {
    EXPECT_TRUE(divides_sequence(flags_of("--tensor-model-parallel-size 2 --sequence-parallel")));
    EXPECT_FALSE(divides_sequence(flags_of("--sequence-parallel")));
    EXPECT_FALSE(divides_sequence(flags_of("--tensor-model-parallel-size 2")));
}

/// The messages in parts were dropped in March 2023; flags of 2021 are of a version that has them.
TEST(MegatronBoundaries, AreSentInPartsByVersionsBefore2023Alone) {
    const std::string split = "--tensor-model-parallel-size 8 --pipeline-model-parallel-size 8 ";
    const std::string old = "--checkpoint-activations ";
    EXPECT_TRUE(scatters_boundaries(flags_of(split + old)));
    EXPECT_FALSE(
        scatters_boundaries(flags_of(split + old + "--no-scatter-gather-tensors-in-pipeline")));
    EXPECT_FALSE(scatters_boundaries(flags_of(split)));
    EXPECT_FALSE(scatters_boundaries(flags_of("--tensor-model-parallel-size 8 " + old)));
    EXPECT_FALSE(scatters_boundaries(flags_of("--pipeline-model-parallel-size 8 " + old)));
    EXPECT_TRUE(has_whole_boundaries(flags_of(split)));
    EXPECT_FALSE(has_whole_boundaries(flags_of(split + "--sequence-parallel")));
}

TEST(MegatronShard, GathersOfWeightsThatOverlapWarnOfNothing) {
    for (const std::string shard : {"--use-megatron-fsdp --data-parallel-sharding-strategy "
                                    "optim_grads_params ",
                                    "--use-distributed-optimizer "}) {
        const MegatronFlags flags =
            flags_of(shard + "--overlap-grad-reduce --overlap-param-gather");
        EXPECT_TRUE(flags.overlap_gather);
        EXPECT_TRUE(flags.warnings.empty());
    }
}

}  // namespace megatron_memory_test
}  // namespace pipetwin
