// SPDX-License-Identifier: Apache-2.0
#include "core/interop/megatron_flags.h"

#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/interop/launch/megatron_flag_table.h"
#include "tests/support/error_of.h"

namespace pipetwin {
namespace megatron_flags_test {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using testing::error_of;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

MegatronFlags parse(std::string_view text, LeaveOut unknown = LeaveOut::Nothing) {
    return parse_megatron_flags(text, "x.sh", unknown);
}

TEST(ParseMegatronFlags, ReadsALaunchScript) {
    const MegatronFlags flags = parse(
        "GPUS=8  # --num-layers 99 in a comment\n"
        "torchrun --nproc_per_node 8 pretrain_gpt.py \\\n"
        "    --num-layers 61 --hidden-size=7168 \\\r\n"
        "    --pipeline-model-parallel-size 16 --tensor-model-parallel-size 2 \\\n"
        "    --pipeline-model-parallel-layout \"Et*3|(tt|)*29L\" \\\n"
        "    --micro-batch-size '4' --global-batch-size 1024 --bf16 --lr 1e-4 \\\n"
        "    --recompute-granularity full --recompute-method uniform --recompute-num-layers 1 "
        "\\\n");
    EXPECT_EQ(flags.layers, 61);
    EXPECT_EQ(flags.hidden_size, 7168);
    EXPECT_EQ(flags.pipeline_size, 16);
    EXPECT_EQ(flags.tensor_size, 2);
    ASSERT_TRUE(flags.layout);
    EXPECT_EQ(flags.layout->stages.size(), 31U);
    EXPECT_EQ(flags.micro_batch_size, 4);
    EXPECT_EQ(flags.global_batch_size, 1024);
    EXPECT_TRUE(flags.recompute_full);
    EXPECT_EQ(flags.recompute_layers, 1);
    EXPECT_TRUE(flags.bf16);
    EXPECT_EQ(flags.processes, 8);  // of one node, which torchrun takes without a word
    EXPECT_THAT(flags.unused, ElementsAre("--lr"));
    EXPECT_THAT(flags.warnings, IsEmpty());
}

TEST(ParseMegatronFlags, ReadsWhatMakesAModel) {
    const MegatronFlags flags = parse(
        "--group-query-attention --num-query-groups 8 --kv-channels 128 --swiglu "
        "--disable-bias-linear --normalization RMSNorm --position-embedding-type rope "
        "--untie-embeddings-and-output-weights --qk-layernorm --num-experts 8 "
        "--moe-router-topk 2 --moe-layer-freq \"([0]*1+[1]*3)\" --window-size \"(4095, 0)\" "
        "--hidden-dropout 0.0 --clip-grad 0.5 --optimizer sgd");
    EXPECT_TRUE(flags.grouped && flags.gated && flags.no_bias && flags.rms_norm &&
                flags.no_positions && flags.untied && flags.head_norms);
    EXPECT_EQ(flags.query_groups, 8);
    EXPECT_EQ(flags.head_width, 128);
    EXPECT_EQ(flags.experts, 8);
    EXPECT_EQ(flags.experts_per_token, 2);
    EXPECT_EQ(flags.expert_pattern, "([0]*1+[1]*3)");
    EXPECT_EQ(flags.window, 4095);
    EXPECT_EQ(flags.hidden_dropout, 0);
    EXPECT_EQ(flags.clip_norm, 0.5);
    EXPECT_EQ(flags.optimizer, "sgd");
    EXPECT_EQ(parse("--window-size \"(-1, -1)\"").window, std::nullopt);
}

TEST(ParseMegatronFlags, PrintedFlagsReadBack) {
    MegatronFlags flags;
    flags.layers = 8;
    flags.pipeline_size = 2;
    flags.virtual_stage_layers = 2;
    flags.micro_batch_size = 1;
    flags.global_batch_size = 64;
    flags.recompute_full = true;
    flags.recompute_layers = 2;
    flags.first_layers = 3;
    flags.last_layers = 1;
    flags.account_for_embedding = true;
    flags.account_for_loss = true;
    flags.hidden_dropout = 0.1;
    flags.attention_dropout = 0;
    flags.clip_norm = 1;
    flags.is_after_core_models = true;  // by their names, of which some are new
    EXPECT_EQ(parse(print_megatron_flags(flags)), flags);
    flags.recompute_full = false;
    flags.recompute_selective = true;
    flags.shard_optimizer = true;
    flags.overlap_reduction = true;
    flags.virtual_stage_layers.reset();
    flags.layout = parse_megatron_layout("Et*3|(tt|)*2tL", "x");
    flags.group_size = 4;
    flags.gated = flags.grouped = flags.no_bias = flags.untied = flags.rms_norm = true;
    flags.no_positions = flags.head_norms = flags.bf16 = true;
    flags.query_groups = 2;
    flags.experts = 4;
    flags.expert_pattern = "[0]+[1]*7";
    flags.window = 15;
    flags.optimizer = "sgd";
    flags.recompute_modules = {"core_attn", "mlp"};
    flags.offloads_inputs = true;
    flags.offload_modules = {"attn_norm", "expert_fc1"};
    flags.offload_fraction = 0.75;
    flags.offloaded_layers = 5;
    flags.sequence_parallel = flags.whole_boundaries = flags.tensor_overlap = true;
    flags.optimizer_groups = 2;
    flags.fp8_recipe = "mxfp8";
    flags.megatron_fsdp = flags.gradients_narrow = true;
    flags.sharding = "optim_grads";
    flags.is_after_core_models = true;  // by their names, of which some are new
    EXPECT_EQ(parse(print_megatron_flags(flags)), flags);
}

/// v2.5 and v2.6 of Megatron-LM (2021); --checkpoint-num-layers is 1 by default.
TEST(ParseMegatronFlags, ReadsRecomputeOf2021) {
    for (const std::string_view text :
         {"--checkpoint-activations --checkpoint-num-layers 1",
          "--checkpoint-activations",
          "--activations-checkpoint-method uniform --activations-checkpoint-num-layers 1"}) {
        const MegatronFlags flags = parse(text);
        EXPECT_TRUE(flags.recompute_full) << text;
        EXPECT_EQ(flags.recompute_layers.value_or(1), 1) << text;
        EXPECT_TRUE(flags.is_before_2023) << text;
        EXPECT_THAT(flags.warnings, IsEmpty()) << text;
    }
    EXPECT_FALSE(parse("--recompute-granularity full").is_before_2023);
    EXPECT_FALSE(parse("checkpoint_activations: false\nnum_layers: 2\n").recompute_full);
}

/// args.recompute_granularity = 'selective' wherever --recompute-activations is given.
TEST(ParseMegatronFlags, RecomputeActivationsGoesBeforeAGranularity) {
    for (const std::string_view text : {"--recompute-granularity full --recompute-activations",
                                        "--recompute-activations --recompute-granularity full"}) {
        const MegatronFlags flags = parse(text);
        EXPECT_TRUE(flags.recompute_selective) << text;
        EXPECT_FALSE(flags.recompute_full) << text;
    }
}

/// The method "block" recomputes the first N layers of each stage.
TEST(ParseMegatronFlags, ABlockMethodHasANumberOfLayers) {
    const MegatronFlags flags = parse(
        "--num-layers 16 --pipeline-model-parallel-size 4 --recompute-granularity full "
        "--recompute-method block --recompute-num-layers 3");
    EXPECT_TRUE(flags.recompute_full && flags.recompute_first);
    EXPECT_EQ(flags.recompute_layers, 3);
    EXPECT_THAT(flags.warnings, IsEmpty());
    EXPECT_EQ(parse(print_megatron_flags(flags)), flags);
}

TEST(ParseMegatronFlags, ReadsOtherKindsOfAttention) {
    const MegatronFlags flags = parse(
        "--experimental-attention-variant gdn --linear-attention-freq 4 --linear-key-head-dim 64 "
        "--linear-num-value-heads 8 --attention-output-gate --softmax-type learnable "
        "--window-size 127,0 --window-attn-skip-freq 1 0 1 0 --moe-latent-size 512");
    EXPECT_EQ(flags.attention_variant, "gated_delta_net");
    EXPECT_EQ(flags.linear_pattern, "4");
    EXPECT_EQ(flags.linear_key_width, 64);
    EXPECT_EQ(flags.linear_value_heads, 8);
    EXPECT_TRUE(flags.output_gate && flags.sinks);
    EXPECT_EQ(flags.window_pattern, "[1,0,1,0]");
    EXPECT_EQ(flags.latent_experts, 512);
    EXPECT_EQ(parse(print_megatron_flags(flags)), flags);
    EXPECT_FALSE(parse("--softmax-type off-by-one").sinks);
    for (const std::string refused : {"--experimental-attention-variant gdn2",
                                      "--dsa-indexer-topk-freq 4",
                                      "--spec my.module layer_spec",
                                      "--mamba-expand 4"}) {
        EXPECT_EQ(error_of([&] { parse(refused); }).kind(), ErrorKind::BadInput) << refused;
    }
}

/// megatron/core/models/hybrid/hybrid_layer_allocation.py: bars are bounds of stages, and what
/// stands behind a slash predicts further tokens.
TEST(ParseMegatronFlags, LettersOfHalvesAreLayersAndStages) {
    const MegatronFlags flags = parse(
        "--hybrid-layer-pattern \"M-M*-|M-ME/*E/*E\" --num-experts 4 --num-layers 7 "
        "--spec megatron.core.models.hybrid.hybrid_layer_specs hybrid_stack_spec");
    EXPECT_EQ(flags.layers, 9);
    EXPECT_EQ(flags.prediction_layers, 2);
    ASSERT_TRUE(flags.layout);
    EXPECT_THAT(flags.layout->stages, ElementsAre("Ettttt", "ttttmmL"));
    EXPECT_THAT(error_of([] { parse("--hybrid-layer-pattern MG"); }).text(),
                HasSubstr("has the letter G"));
    EXPECT_EQ(parse("python pretrain_mamba.py --num-layers 3").hybrid_pattern, "MMM");
    EXPECT_THAT(error_of([] { parse("python pretrain_hybrid.py --seq-length 8"); }).text(),
                HasSubstr("without --num-layers"));
}

/// pattern_from_ratios of that file computes the same letters.
TEST(ParseMegatronFlags, LettersOfRatiosStandEvenly) {
    const auto letters = [](int layers, std::string_view ratios) {
        return parse(fmt::format("--is-hybrid-model --num-layers {} {}", layers, ratios))
            .hybrid_pattern;
    };
    EXPECT_EQ(letters(8, "--hybrid-attention-ratio 0.25"), "MM*MM*MM");
    EXPECT_EQ(letters(10, "--hybrid-attention-ratio 0.1"), "MMMMM*MMMM");
    EXPECT_EQ(letters(8, "--hybrid-attention-ratio 0.25 --hybrid-mlp-ratio 0.25"), "MM*-M*M-");
    EXPECT_EQ(letters(24, "--hybrid-attention-ratio 0.08 --hybrid-mlp-ratio 0.5"),
              "M-M-M--*M-M-M-M-*M--M-M-");
    EXPECT_EQ(letters(4, ""), "MMMM");
}

TEST(ParseMegatronFlags, ALayoutIsNoFlags) {
    EXPECT_FALSE(are_megatron_flags("Et*3|(tt|)*29,m|L\n"));
    EXPECT_TRUE(are_megatron_flags("  --num-layers 8"));
    EXPECT_TRUE(are_megatron_flags("model:\n  num_layers: 8\n"));
}

struct Breach {
    std::string text;
    std::string what;  ///< the whole message
};

TEST(ParseMegatronFlags, RefusesWithLineAndColumn) {
    const std::vector<Breach> breaches{
        {"--num-layers", "x.sh:1:1: --num-layers without a value"},
        {"a\n--num-layers --bf16", "x.sh:2:1: --num-layers without a value"},
        {"--bf16 \\\n--fp16",
         "x.sh:2:1: --bf16 and --fp16 at once, expected fp16 or bf16\nhint: Megatron refuses both, "
         "too: take one of them out"},
        {"--num-layers 1.5",
         "x.sh:1:14: --num-layers = '1.5', expected a whole number of at least 1"},
        {"--num-layers=99999999999",
         "x.sh:1:14: --num-layers = '99999999999', expected a whole number from 1 to 49999"},
        {"--num-layers=0", "x.sh:1:14: --num-layers = '0', expected a whole number of at least 1"},
        {"--num-layers 8\n --num-layers 8",
         "x.sh:2:2: --num-layers a second time\nhint: keep one of them"},
        {"--recompute-granularity all",
         "x.sh:1:25: --recompute-granularity = 'all', expected full or selective"},
        {"--recompute-method x", "x.sh:1:20: --recompute-method = 'x', expected uniform or block"},
        {"--normalization x", "x.sh:1:17: --normalization = 'x', expected LayerNorm or RMSNorm"},
        {"--num-layers $L",
         "x.sh:1:14: --num-layers = '$L', which has no value in this file, or one under a "
         "condition\nhint: give the value with --variable L=VALUE, or write it in place of the "
         "variable"},
    };
    for (const Breach& breach : breaches) {
        const Error error = error_of([&] { parse(breach.text); });
        EXPECT_EQ(error.kind(), ErrorKind::BadInput);
        EXPECT_EQ(std::string(error.what()), breach.what);
    }
    EXPECT_EQ(error_of([] { parse("--pipeline-model-parallel-layout t|L"); }).place(),
              "x.sh:1:34: --pipeline-model-parallel-layout");
}

/// What changes model, split, memory or schedule is never passed over: all such flags are named at
/// once, with what they change.
TEST(UnknownMegatronFlags, AreRefusedByNameOrLeftOutWithAWarning) {
    constexpr std::string_view text =
        "python pretrain_gpt.py --num-layers 8 --overlap-moe-expert-parallel-comm \\\n"
        "  --fp4-format e2m1 --num-layer 3 --odd-one";
    const Error error = error_of([&] { parse(text); });
    EXPECT_EQ(error.kind(), ErrorKind::BadInput);
    EXPECT_EQ(error.place(), "x.sh:1:39");
    EXPECT_EQ(
        error.text(),
        "--overlap-moe-expert-parallel-comm: messages of experts go beside the layers of another "
        "micro-batch; --fp4-format e2m1: products in 4 bits take other time and memory; "
        "--num-layer 3: no flag that is known "
        "here, did you mean '--num-layers'? ('layer' may say that it changes the run)");
    EXPECT_THAT(error.hint(), HasSubstr("--insist"));

    const MegatronFlags flags = parse(text, LeaveOut::All);
    EXPECT_EQ(flags.layers, 8);
    ASSERT_EQ(flags.warnings.size(), 4U);
    EXPECT_THAT(flags.warnings[0],
                AllOf(HasSubstr("x.sh:1:39"), HasSubstr("--overlap-moe-expert-parallel-comm")));
}

/// A name of which nothing says that it changes the run is left out, all in one line; a slip of the
/// pen is not.
TEST(UnknownMegatronFlags, AreAWarningUnlessTheyLookLikeOneThatIsKnown) {
    EXPECT_THAT(parse("--num-layers 8 --odd-one --logging-colour 3").warnings,
                ElementsAre("x.sh:1:16: not known here, and left out: --odd-one; --logging-colour "
                            "3"));
    const Error error = error_of([] { parse("--num-layers 8 --hiden-size 64"); });
    EXPECT_EQ(error.text(),
              "--hiden-size 64: no flag that is known here, did you mean '--hidden-size'?");
    EXPECT_THAT(error.hint(), HasSubstr("--ignore-unknown"));
    EXPECT_EQ(parse("--hiden-size 64", LeaveOut::Unknown).hidden_size, std::nullopt);
}

/// Python's switches have a flag that turns them off.
TEST(ParseMegatronFlags, SwitchesAreTurnedOff) {
    const MegatronFlags flags =
        parse("--num-layers 8 --no-sequence-parallel --no-cpu-offloading --no-timing-log-level");
    EXPECT_FALSE(flags.sequence_parallel);
    EXPECT_THAT(flags.warnings, IsEmpty());
    EXPECT_THAT(parse("--no-overlap-p2p-comm").warnings, ::testing::SizeIs(1));
    const std::string keys = "MODEL_ARGS:\n  --num-layers: 8\n  --no-overlap-p2p-comm: ";
    EXPECT_THAT(parse(keys + "true\n").warnings, ::testing::SizeIs(1));
    EXPECT_THAT(parse(keys + "false\n").warnings, IsEmpty());
    EXPECT_EQ(error_of([] { parse("--no-new-layer-thing"); }).kind(), ErrorKind::BadInput);
}

/// What only names a tokenizer may stay open.
TEST(ParseMegatronFlags, TokenizersMayBeVariables) {
    const MegatronFlags flags =
        parse("--num-layers 8 --tokenizer-type $TYPE --tokenizer-model ${ROOT}/t.model");
    EXPECT_EQ(flags.tokenizer, std::nullopt);
    EXPECT_EQ(flags.tokenizer_model, std::nullopt);
}

TEST(ParseMegatronFlags, ReadsTheTypeOfGradients) {
    EXPECT_TRUE(parse("--bf16 --main-grads-dtype bf16").gradients_narrow);
    EXPECT_FALSE(parse("--bf16 --main-grads-dtype fp32").gradients_narrow);
    EXPECT_EQ(error_of([] { parse("--bf16 --main-grads-dtype fp16"); }).kind(),
              ErrorKind::BadInput);
}

/// Flags that stood among those without effect, and have one; with the value that has none, and
/// with one that has.
TEST(UnknownMegatronFlags, WhatMovesAStepIsNamedByItsValue) {
    struct Pair {
        std::string_view none;
        std::string_view some;
    };
    for (const Pair& key :
         {Pair{"deallocate_pipeline_outputs: true", "deallocate_pipeline_outputs: false"},
          Pair{"pipeline_dtype: torch.bfloat16", "pipeline_dtype: torch.float32"},
          Pair{"moe_router_force_biased: null", "moe_router_force_biased: 0.5"},
          Pair{"nccl_ub: false", "nccl_ub: true"},
          Pair{"keep_fp8_transpose_cache: 0", "keep_fp8_transpose_cache: 1"},
          Pair{"tp_comm_overlap_rs: true", "tp_comm_overlap_rs: false"},
          Pair{"fsdp_double_buffer: false", "fsdp_double_buffer: true"}}) {
        const std::string model = "model:\n  num_layers: 8\n  ";
        EXPECT_THAT(parse(model + std::string(key.none)).warnings, IsEmpty()) << key.none;
        EXPECT_THAT(parse(model + std::string(key.some)).warnings, ::testing::SizeIs(1))
            << key.some;
    }
    EXPECT_EQ(error_of([] { parse("modules:\n  x:\n    framework: torchtitan\n"); }).kind(),
              ErrorKind::BadInput);
    EXPECT_EQ(
        error_of([] {
            parse("modules:\n  x:\n    overrides:\n      enable_turbo_attention_float8: true\n");
        }).kind(),
        ErrorKind::BadInput);
    // NeMo writes the gate as the function's name.
    EXPECT_TRUE(parse("model:\n  activation: fast-swiglu\n  num_layers: 2\n").gated);
    EXPECT_FALSE(parse("model:\n  activation: gelu\n  num_layers: 2\n").gated);
}

TEST(UnknownMegatronFlags, AreHarmlessWithTheValueThatChangesNothing) {
    EXPECT_THAT(parse("--expert-model-parallel-size 1 --data-parallel-sharding-strategy no_shard "
                      "--main-grads-dtype fp32 --mtp-num-layers 0")
                    .warnings,
                IsEmpty());
}

TEST(ParseMegatronFlags, ReadsHowSamplesAndExpertsAreDivided) {
    const MegatronFlags flags = parse(
        "--context-parallel-size 4 --cp-comm-type a2a+p2p --hierarchical-context-parallel-sizes 2 "
        "2 "
        "--expert-model-parallel-size 8 --expert-tensor-parallel-size 1 --num-experts 64 "
        "--moe-token-dispatcher-type flex --moe-flex-dispatcher-backend hybridep "
        "--moe-expert-capacity-factor 1.25 --moe-pad-expert-input-to-capacity "
        "--moe-router-padding-for-fp8 --moe-router-force-load-balancing --use-tp-pp-dp-mapping");
    EXPECT_EQ(flags.context_size, 4);
    EXPECT_EQ(flags.context_method, ContextMethod::RingAllToAll);
    EXPECT_THAT(flags.context_sizes, ElementsAre(2, 2));
    EXPECT_EQ(flags.expert_size, 8);
    EXPECT_EQ(flags.expert_tensor_size, 1);
    EXPECT_EQ(flags.flex_backend, "hybridep");
    EXPECT_EQ(flags.expert_capacity, 1.25);
    EXPECT_TRUE(flags.fills_capacity && flags.fills_rows && flags.balances_experts &&
                flags.pipeline_before_data);
    EXPECT_EQ(parse(print_megatron_flags(flags)), flags);
    const auto method = [](std::string_view words) {
        return parse(fmt::format("--context-parallel-size 2 {}", words)).context_method;
    };
    EXPECT_EQ(method(""), std::nullopt);
    EXPECT_EQ(method("--cp-comm-type p2p"), ContextMethod::Ring);
    EXPECT_EQ(method("--cp-comm-type all_gather all_gather"), ContextMethod::AllGather);
    EXPECT_EQ(method("--context-parallel-algo ulysses_cp_algo"), ContextMethod::AllToAll);
    const MegatronFlags bridge = parse(
        "model:\n  context_parallel_size: 2\n  cp_comm_type: a2a\n  expert_model_parallel_size: 8\n"
        "  expert_tensor_parallel_size: 1\n  moe_token_dispatcher_type: flex\n"
        "  moe_flex_dispatcher_backend: hybridep\n  moe_expert_capacity_factor: null\n"
        "dist:\n  use_tp_pp_dp_mapping: true\n");
    EXPECT_EQ(bridge.context_method, ContextMethod::AllToAll);
    EXPECT_EQ(bridge.expert_size, 8);
    EXPECT_EQ(bridge.flex_backend, "hybridep");
    EXPECT_EQ(bridge.expert_capacity, std::nullopt);
    EXPECT_TRUE(bridge.pipeline_before_data);
    const MegatronFlags primus = parse(
        "modules:\n  pre_trainer:\n    overrides:\n      expert_model_parallel_size: 8\n"
        "      use_turbo_deepep: true\n");
    EXPECT_EQ(primus.expert_size, 8);
    EXPECT_FALSE(primus.deepep);  // without enable_primus_turbo it has no effect
    EXPECT_THAT(error_of([&] { method("--cp-comm-type p2p a2a"); }).text(),
                HasSubstr("layers exchange keys and values in different ways"));
    EXPECT_THAT(error_of([&] { method("--cp-comm-type mail"); }).text(), HasSubstr("p2p, all_"));
    EXPECT_THAT(error_of([] { parse("--moe-pad-expert-input-to-capacity"); }).text(),
                HasSubstr("without --moe-expert-capacity-factor"));
    EXPECT_THAT(error_of([] { parse("--moe-expert-capacity-factor 0"); }).text(),
                HasSubstr("expected more than 0"));
}

TEST(UnknownMegatronFlags, ProgramsForOtherModelsAreNamed) {
    EXPECT_EQ(error_of([] { parse("python pretrain_bert.py --num-layers 8"); }).text(),
              "the program trains another kind of model than a decoder of text");
    EXPECT_EQ(parse("python examples/t5/pretrain_gpt.py --num-layers 8").layers, 8);
    for (const std::string program :
         {"pretrain_t5.py", "pretrain-vlm.py", "pretrain_ict.py", "x/Pretrain_BERT.py"}) {
        EXPECT_EQ(error_of([&] { parse("python " + program + " --num-layers 8"); }).text(),
                  "the program trains another kind of model than a decoder of text")
            << program;
    }
    // Words that have such a name inside.
    for (const std::string program : {"pretrain_predict.py",
                                      "train_restricted.py",
                                      "pretrain_revision3.py",
                                      "at500.py",
                                      "gpt_supervision.py"}) {
        EXPECT_EQ(parse("python " + program + " --num-layers 8").layers, 8) << program;
    }
}

TEST(UnknownMegatronFlags, NoNameIsInTwoLists) {
    for (const std::string_view name : known_flags()) {
        const int lists = (refused_flag(name) != nullptr ? 1 : 0) +
                          (noted_flag(name) != nullptr ? 1 : 0) + (flag_alias(name) ? 1 : 0) +
                          (is_harmless_flag(name) ? 1 : 0);
        EXPECT_LE(lists, 1) << name;
    }
}

// --- YAML. ---

TEST(MegatronYaml, APrimusExperimentContinuesItsModel) {
    const std::string experiment =
        "modules:\n  pre_trainer:\n    framework: megatron\n    model: m.yaml\n    overrides:\n"
        "      pipeline_model_parallel_size: 4\n      seq_length: 4096\n"
        "      overlap_grad_reduce: true\n      use_distributed_optimizer: false\n"
        "      gradient_accumulation_fusion: false\n      stderr_sink_level: DEBUG\n";
    const std::string model =
        "num_layers: 32\nseq_length: 8192\nuntie_embeddings_and_output_weights: true\n"
        "add_bias_linear: false\nmoe_layer_freq: [0, 1]\n";
    LaunchFile file = parse_launch_file(experiment, "x.yaml");
    EXPECT_THAT(file.models, ElementsAre("m.yaml"));
    add_base_settings(file, parse_launch_file(model, "m.yaml"));
    const MegatronFlags flags = megatron_flags(file);
    EXPECT_EQ(flags.layers, 32);
    EXPECT_EQ(flags.sequence, 4096);
    EXPECT_EQ(flags.pipeline_size, 4);
    EXPECT_TRUE(flags.overlap_reduction && flags.untied && flags.no_bias);
    EXPECT_FALSE(flags.shard_optimizer);
    EXPECT_EQ(flags.expert_pattern, "[0,1]");
}

TEST(MegatronYaml, AFileOfMegatronBridgeUsesOtherNames) {
    const MegatronFlags flags = parse(
        "model:\n"
        "  num_layers: 30\n"
        "  num_query_groups: 8\n"
        "  gated_linear_unit: true\n"
        "  share_embeddings_and_output_weights: false\n"
        "  add_bias_linear: true\n"
        "  pipeline_model_parallel_size: 2\n"
        "  virtual_pipeline_model_parallel_size: null\n"
        "  num_layers_in_first_pipeline_stage: 7\n"
        "  fp8: null\n"
        "  pipeline_model_parallel_layout: [[embedding, decoder], [decoder, loss]]\n"
        "train:\n  micro_batch_size: 1\n"
        "checkpoint:\n  save: x\n"
        "mixed_precision: bf16_mixed\n");
    EXPECT_EQ(flags.layers, 30);
    EXPECT_TRUE(flags.grouped && flags.gated && flags.untied && flags.bf16);
    EXPECT_FALSE(flags.no_bias);
    EXPECT_EQ(flags.first_layers, 7);
    EXPECT_EQ(flags.micro_batch_size, 1);
    ASSERT_TRUE(flags.layout);
    EXPECT_THAT(flags.layout->stages, ElementsAre("Et", "tL"));
}

/// Primus's own pre_trainer.yaml and trainer_base.yaml have `bf16: true`.
/// Launchers of such files give no flag for `false`, and quote patterns for the shell.
TEST(MegatronYaml, KeysWithDashesAreFlagsOfACommand) {
    const MegatronFlags flags = parse(
        "MODEL_ARGS:\n"
        "  --num-layers: 4\n"
        "  --num-layers-per-virtual-pipeline-stage: false\n"
        "  --moe-layer-freq: \"'([0]*1+[1]*3)'\"\n"
        "  --linear-attention-type: gated_delta_net\n");
    EXPECT_EQ(flags.layers, 4);
    EXPECT_FALSE(flags.virtual_stage_layers);
    EXPECT_EQ(flags.expert_pattern, "([0]*1+[1]*3)");
    EXPECT_EQ(flags.attention_variant, "gated_delta_net");
    EXPECT_EQ(error_of([] { parse("model:\n  num_layers: false\n"); }).kind(), ErrorKind::BadInput);
}

TEST(MegatronYaml, DefaultsOfAPrimusTrainerAreTold) {
    const std::string head =
        "modules:\n  pre_trainer:\n    config: pre_trainer.yaml\n    overrides:\n";
    const MegatronFlags silent = parse(head + "      num_layers: 2\n");
    EXPECT_TRUE(silent.bf16);
    EXPECT_THAT(silent.warnings, Contains(HasSubstr("bf16 is taken")));
    const MegatronFlags written = parse(head + "      bf16: false\n      fp16: true\n");
    EXPECT_FALSE(written.bf16);
    EXPECT_TRUE(written.fp16);
    EXPECT_THAT(written.warnings, Contains(HasSubstr("which is not read; write")));
}

/// primus/backends/megatron/patches of August 2026: mock data have a vocabulary of their own,
/// stages of experts turn others on, and Megatron-LM works the number of chunks out anew.
TEST(MegatronYaml, PrimusTurnsKeysIntoOthers) {
    const auto of = [](std::string_view keys) {
        return parse(fmt::format("modules:\n  pre_trainer:\n    overrides:\n{}", keys));
    };
    const MegatronFlags mock =
        of("      mock_data: true\n      tokenizer_type: HuggingFaceTokenizer\n"
           "      tokenizer_model: Qwen/Qwen3-8B\n");
    EXPECT_EQ(mock.vocabulary, 131'073);
    EXPECT_EQ(mock.tokenizer_model, std::nullopt);
    EXPECT_THAT(mock.warnings, Contains(HasSubstr("131072 words")));
    EXPECT_EQ(of("      mock_data: true\n      vocab_size: 163840\n").vocabulary, 163'841);
    EXPECT_EQ(of("      mock_data: false\n").vocabulary, std::nullopt);
    const std::string turbo = "      enable_primus_turbo: true\n";
    EXPECT_TRUE(of(turbo + "      use_turbo_deepep: true\n").deepep);
    EXPECT_FALSE(of(turbo + "      turbo_sync_free_moe_stage: 1\n").deepep);
    EXPECT_TRUE(of(turbo + "      turbo_sync_free_moe_stage: 2\n").deepep);
    const MegatronFlags narrow =
        of(turbo + "      turbo_sync_free_moe_stage: 1\n      fp8: hybrid\n      bf16: true\n");
    EXPECT_TRUE(narrow.fills_rows);
    const MegatronFlags sinks = of(turbo +
                                   "      use_turbo_attention: true\n      use_sink_attention: "
                                   "true\n      sink_sliding_window: 128\n");
    EXPECT_TRUE(sinks.sinks);
    EXPECT_EQ(sinks.window, 128);
    EXPECT_EQ(sinks.window_pattern, "2");
    EXPECT_FALSE(of("      use_sink_attention: true\n").sinks);
    const MegatronFlags chunks = of("      virtual_pipeline_model_parallel_size: 2\n");
    EXPECT_EQ(chunks.virtual_stages, std::nullopt);
    EXPECT_THAT(chunks.warnings, Contains(HasSubstr("takes no notice of it")));
    EXPECT_EQ(error_of([&] { of("      patch_zero_bubble: true\n"); }).kind(), ErrorKind::BadInput);
}

/// megatron.bridge.models.llama.llama_provider: RMSNorm, a gated unit, 8 groups of queries, ...
TEST(MegatronYaml, AClassThatHasAModelOfItsOwnIsRefused) {
    const std::string sizes = "  num_layers: 2\noptimizer:\n  _target_: some.OptimizerConfig\n";
    EXPECT_EQ(
        parse("model:\n  _target_: megatron.bridge.models.gpt_provider.GPTModelProvider\n" + sizes)
            .layers,
        2);
    const Error error = error_of([&] {
        parse("model:\n  _target_: megatron.bridge.models.llama.Llama31ModelProvider\n" + sizes);
    });
    EXPECT_THAT(error.text(), HasSubstr("_target_"));
    EXPECT_THAT(error.text(), HasSubstr("sizes, norms, activations and ties of its own"));
}

TEST(MegatronYaml, NullTakesAwayWhatTheBaseSays) {
    const std::string base =
        "num_layers: 32\nnum_experts: 8\nmoe_layer_freq: [0, 1]\nswiglu: true\nseq_length: 8192\n";
    for (const std::string null : {"null", "~", ""}) {
        LaunchFile file = parse_launch_file(
            "modules:\n  pre_trainer:\n    model: m.yaml\n    overrides:\n      num_experts: " +
                null + "\n      moe_layer_freq: " + null + "\n      swiglu: " + null +
                "\n      seq_length: 4096\n",
            "x.yaml");
        add_base_settings(file, parse_launch_file(base, "m.yaml"));
        const MegatronFlags flags = megatron_flags(file);
        EXPECT_EQ(flags.layers, 32);
        EXPECT_EQ(flags.experts, std::nullopt);
        EXPECT_EQ(flags.expert_pattern, std::nullopt);
        EXPECT_FALSE(flags.gated);
        EXPECT_EQ(flags.sequence, 4096);
    }
    // A null in the middle of a chain takes away what lies below it, and a value above it stands.
    LaunchFile middle = parse_launch_file("num_experts: null\nswiglu: null\n", "m.yaml");
    add_base_settings(middle, parse_launch_file(base, "b.yaml"));
    LaunchFile top = parse_launch_file("num_experts: 4\n", "x.yaml");
    add_base_settings(top, middle);
    EXPECT_EQ(megatron_flags(top).experts, 4);
    EXPECT_FALSE(megatron_flags(top).gated);
}

TEST(MegatronYaml, KeysThatMeanTheSameMustAgree) {
    const MegatronFlags flags =
        parse("model:\n  seq_length: 4096\n  num_layers: 2\ndataset:\n  sequence_length: 4096\n");
    EXPECT_EQ(flags.sequence, 4096);
    const Error error =
        error_of([] { parse("model:\n  seq_length: 4096\ndataset:\n  sequence_length: 8192\n"); });
    EXPECT_EQ(error.kind(), ErrorKind::BadInput);
    EXPECT_THAT(error.place(), HasSubstr(":4:3"));
    EXPECT_THAT(error.text(),
                HasSubstr("dataset.sequence_length = 8192, but model.seq_length = 4096 at "));
    EXPECT_EQ(parse("python t.py model.seq_length=8 dataset.seq_length=8").sequence, 8);
    EXPECT_THAT(error_of([] { parse("--seq-length 8 --seq-length 8"); }).text(),
                HasSubstr("--seq-length a second time"));
}

/// The recipes of megatron/bridge/training/mixed_precision.py.
TEST(MegatronYaml, ARecipeOfPrecisionIsReadByItsName) {
    const auto recipe = [](const std::string& name) {
        return parse("model:\n  num_layers: 2\nmixed_precision: " + name + "\n");
    };
    EXPECT_TRUE(recipe("bf16_mixed").bf16);
    EXPECT_FALSE(recipe("bf16_mixed").fp16);
    EXPECT_TRUE(recipe("fp16_mixed").fp16);
    EXPECT_FALSE(recipe("fp16_mixed").bf16);
    EXPECT_TRUE(recipe("16-mixed").fp16);
    EXPECT_FALSE(recipe("fp32").bf16 || recipe("fp32").fp16);
    EXPECT_TRUE(parse("model:\n  bf16: true\nmixed_precision: fp32\n").bf16);
    for (const std::string name : {"bf16_with_fp8_current_scaling_mixed",
                                   "bf16_with_fp8_delayed_scaling_mixed",
                                   "bf16_with_mxfp8_mixed",
                                   "fp16_with_fp8_subchannel_scaling_mixed",
                                   "bf16_with_nvfp4_mixed",
                                   "my_own"}) {
        EXPECT_THAT(error_of([&] { recipe(name); }).text(), HasSubstr("mixed_precision " + name))
            << name;
    }
    const MegatronFlags flags =
        parse_megatron_flags("mixed_precision: fp16_with_mxfp8_mixed\n", "x.yaml", LeaveOut::All);
    EXPECT_TRUE(flags.fp16);
    EXPECT_THAT(flags.warnings, ElementsAre(HasSubstr("products in 8 bits")));
}

TEST(MegatronFlagsOfBridge, AnOverrideWithoutASectionCounts) {
    const MegatronFlags flags =
        parse("python run.py model.num_layers=2 mixed_precision=bf16_mixed model.hidden_size=8");
    EXPECT_EQ(flags.layers, 2);
    EXPECT_TRUE(flags.bf16);
    EXPECT_EQ(flags.hidden_size, 8);
}

/// Keys of Megatron-Core whose false is a flag of the command line, and flags that count with their
/// value alone.
TEST(MegatronYaml, AKeyCountsWithItsValue) {
    EXPECT_TRUE(parse("gradient_accumulation_fusion: false\n").separate_accumulation);
    EXPECT_FALSE(parse("gradient_accumulation_fusion: true\n").separate_accumulation);
    EXPECT_THAT(parse("masked_softmax_fusion: false\n").warnings,
                Contains(HasSubstr("kernels fused")));
    EXPECT_THAT(parse("masked_softmax_fusion: true\nenable_cuda_graph: false\n").warnings,
                IsEmpty());
    EXPECT_TRUE(parse("params_dtype: torch.bfloat16\n").bf16);
    EXPECT_THAT(parse("model_type: gpt\nencoder_tensor_model_parallel_size: 0\n").unused,
                IsEmpty());
    EXPECT_EQ(error_of([] { parse("model_type: flux_schnell\n"); }).kind(), ErrorKind::BadInput);
}

/// A table was harmless as a whole, whatever it held.
TEST(MegatronYaml, NoTableIsHarmlessAsAWhole) {
    EXPECT_THAT(parse("checkpoint:\n  save: x\n  hf_source_path: y\n").unused,
                ElementsAre("checkpoint.save", "checkpoint.hf_source_path"));
    EXPECT_EQ(parse("tokenizer:\n  vocab_size: 32000\n").vocabulary, 32'000);
    EXPECT_EQ(parse("dist:\n  context_parallel_size: 2\n").context_size, 2);
    EXPECT_EQ(error_of([] { parse("checkpoint:\n  strange: 1\n"); }).kind(), ErrorKind::BadInput);
    EXPECT_THAT(parse("lora:\n  enabled: false\n  dim: 16\n").warnings, IsEmpty());
    EXPECT_THAT(error_of([] {
                    parse_megatron_flags(
                        "peft:\n  dim: 8\n  alpha: 16\n", "x.yaml", LeaveOut::Unknown);
                }).text(),
                HasSubstr("peft.dim 8: adapters are trained"));
}

TEST(MegatronYaml, AnswersAreTrueOrFalse) {
    EXPECT_FALSE(parse("recompute_granularity: full\nrecompute_method: block\n"
                       "recompute_num_layers: 0\n")
                     .recompute_full);
    EXPECT_EQ(
        error_of([] { parse("--recompute-granularity full --recompute-num-layers 0"); }).kind(),
        ErrorKind::BadInput);
    EXPECT_TRUE(parse("sequence_parallel: 1\n").sequence_parallel);
    EXPECT_FALSE(parse("sequence_parallel: 0\n").sequence_parallel);
    EXPECT_EQ(error_of([] { parse("swiglu: maybe\n"); }).text(),
              "swiglu = 'maybe', expected true or false");
}

}  // namespace megatron_flags_test
}  // namespace pipetwin
