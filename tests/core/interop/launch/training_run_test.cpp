// SPDX-License-Identifier: Apache-2.0
#include "core/interop/launch/training_run.h"

#include <string>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/interop/launch/table_settings.h"
#include "tests/support/error_of.h"

namespace pipetwin {
namespace training_run_test {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using testing::error_of;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

TrainingRun titan(std::string_view text, LeaveOut leave_out = LeaveOut::Nothing) {
    return torchtitan_run(parse_toml_settings(text, "x.toml"), leave_out);
}

TrainingRun deepspeed(std::string_view text, LeaveOut leave_out = LeaveOut::Nothing) {
    return deepspeed_run(parse_json_settings(text, "x.json"), leave_out);
}

// --- torchtitan. ---

/// Llama 3 8B on eight ranks with two stages each: 32 blocks, and embedding and head as one each,
/// are 34 for 16 stages: the first two take 3, one of which is the embedding.
TEST(TorchtitanRun, SharesBlocksOutAsTorchtitanDoes) {
    const TrainingRun run = titan(
        "[job]\ndescription = \"x\"\n"
        "[model]\nname = \"llama3\"\nflavor = \"8B\"\n"
        "[optimizer]\nname = \"AdamW\"\nlr = 3e-4\n"
        "[training]\nlocal_batch_size = 16\nseq_len = 8192\nmax_norm = 1.0\nsteps = 1000\n"
        "[parallelism]\ndata_parallel_shard_degree = 1\npipeline_parallel_degree = 8\n"
        "pipeline_parallel_schedule = \"Interleaved1F1B\"\n"
        "pipeline_parallel_microbatch_size = 2\ntensor_parallel_degree = 2\n"
        "[activation_checkpoint]\nmode = \"full\"\n");
    EXPECT_EQ(run.stages, 8);
    EXPECT_EQ(run.chunks, 2);
    EXPECT_EQ(run.schedule, "interleaved-1f1b");
    EXPECT_THAT(run.blocks, ElementsAre(2, 3, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 1));
    EXPECT_EQ(run.batch, 16);
    EXPECT_EQ(run.micro_batches, 8);
    EXPECT_EQ(run.tensor_parallel, 2);
    EXPECT_EQ(run.recompute, "block");
    EXPECT_TRUE(run.sequence_parallel);
    EXPECT_EQ(run.shard, "");
    // torchtitan/distributed/utils.py, maybe_enable_amp: mixed precision "with TP or PP is only
    // supported when FSDP/HSDP/CP is enabled".
    EXPECT_EQ(run.precision, "fp32");
    EXPECT_EQ(run.clip_norm, 1);
    EXPECT_THAT(run.warnings, ElementsAre(HasSubstr("mixes precisions only where FSDP is on")));
    EXPECT_EQ(run.sequence, 8192);
}

/// train_configs of 2024: the pipeline stands in [experimental], the degrees in [training].
TEST(TorchtitanRun, TheKeysOf2024SayTheSame) {
    const TrainingRun run = titan(
        "[model]\nname = \"llama3\"\nflavor = \"8B\"\n[training]\nbatch_size = 8\nseq_len = 8192\n"
        "data_parallel_shard_degree = 2\ntensor_parallel_degree = 2\n"
        "enable_float8_linear = false\n"
        "[experimental]\npipeline_parallel_degree = 4\npipeline_parallel_schedule = \"1F1B\"\n"
        "pipeline_parallel_microbatches = 8\n[activation_checkpoint]\nmode = \"full\"\n");
    EXPECT_EQ(run.stages, 4);
    EXPECT_EQ(run.tensor_parallel, 2);
    EXPECT_EQ(run.data_parallel, 2);
    EXPECT_EQ(run.micro_batches, 8);
    EXPECT_EQ(run.batch, 16);
    EXPECT_EQ(run.recompute, "block");
    EXPECT_EQ(run.precision, "bf16");
    EXPECT_EQ(titan("[training]\ndata_parallel_degree = 4\n").data_parallel, 4);
    EXPECT_EQ(titan("[training]\nsequence_parallel_degree = 2\n").tensor_parallel, 2);
    const Error both = error_of([] {
        titan(
            "[experimental]\npipeline_parallel_degree = 4\n"
            "[parallelism]\npipeline_parallel_degree = 2\n");
    });
    EXPECT_THAT(both.text(), HasSubstr("experimental.pipeline_parallel_degree beside"));
}

/// torchtitan/parallelisms/pipelining_utils.py of December 2024: "Middle stages get an extra layer
/// if there are any remaining".
TEST(TorchtitanRun, StagesOf2024HaveTheLayersOfThatTime) {
    const auto run = [](const std::string& pipeline) {
        return titan(
            "[model]\nname = \"llama3\"\nflavor = \"8B\"\n[training]\nbatch_size = 12\n"
            "[experimental]\n" +
            pipeline);
    };
    const TrainingRun six = run("pipeline_parallel_degree = 6\n");
    EXPECT_THAT(six.blocks, ElementsAre(5, 6, 6, 5, 5, 5));
    EXPECT_EQ(six.micro_batches, 6);
    EXPECT_THAT(six.warnings, Contains(HasSubstr("as many as stages")));
    const TrainingRun points =
        run("pipeline_parallel_degree = 2\npipeline_parallel_schedule = \"interleaved_1f1b\"\n"
            "pipeline_parallel_split_points = [\"layers.4\", \"layers.16\", \"layers.30\"]\n"
            "pipeline_parallel_microbatches = 4\n");
    EXPECT_EQ(points.schedule, "interleaved-1f1b");
    EXPECT_EQ(points.chunks, 2);
    EXPECT_THAT(points.blocks, ElementsAre(4, 12, 14, 2));
    EXPECT_THAT(run("pipeline_parallel_degree = 2\n"
                    "pipeline_parallel_split_points = \"layers.20\"\n")
                    .blocks,
                ElementsAre(20, 12));
    EXPECT_EQ(error_of([&] {
                  run("pipeline_parallel_degree = 2\n"
                      "pipeline_parallel_split_points = [\"layers.40\"]\n");
              }).kind(),
              ErrorKind::Infeasible);
    EXPECT_EQ(error_of([&] { run("pipeline_parallel_degree = 5\n"); }).kind(),
              ErrorKind::Infeasible);  // 12 samples in 5 micro-batches
}

TEST(TorchtitanRun, SaysWhatIsCompiledAndWhatIsBesideProducts) {
    EXPECT_EQ(titan("[job]\n").compiles, false);
    EXPECT_EQ(titan("[compile]\nenable = true\n").compiles, true);
    EXPECT_EQ(titan("[training]\ncompile = true\n").compiles, true);
    EXPECT_EQ(titan("[compile]\nenable = true\ncomponents = [\"loss\"]\n").compiles, false);
    const auto overlap = [](const std::string& more) {
        return titan("[parallelism]\ntensor_parallel_degree = 2\n" + more).tensor_overlap;
    };
    EXPECT_EQ(overlap(""), false);
    EXPECT_EQ(overlap("enable_async_tensor_parallel = true\n"), true);
    EXPECT_EQ(overlap("enable_sequence_parallel = false\n"), std::nullopt);
    EXPECT_EQ(titan("[job]\n").tensor_overlap, std::nullopt);
}

/// torchtitan/distributed/parallel_dims.py: experts lie over the devices that shard weights, those
/// of context and of tensor parallelism; ETP is 1 or TP.
TEST(TorchtitanRun, SamplesAndExpertsAreDivided) {
    const std::string degrees =
        "[parallelism]\ndata_parallel_shard_degree = 4\ncontext_parallel_degree = 2\n"
        "tensor_parallel_degree = 2\nexpert_parallel_degree = 8\n";
    const TrainingRun run = titan(degrees + "expert_parallel_comm_backend = \"deepep\"\n");
    EXPECT_EQ(run.context_parallel, 2);
    EXPECT_EQ(run.context_method, "all-gather");
    EXPECT_EQ(run.expert_parallel, 8);
    EXPECT_EQ(run.expert_tensor_parallel, 1);
    EXPECT_EQ(run.expert_dispatch, "deepep");
    EXPECT_EQ(run.data_parallel, 4);
    EXPECT_EQ(titan(degrees + "context_parallel_rotate_method = \"alltoall\"\n").context_method,
              "ring");
    EXPECT_EQ(titan(degrees + "expert_tensor_parallel_degree = 2\n").expert_tensor_parallel, 2);
    EXPECT_EQ(titan("[experimental]\ncontext_parallel_degree = 2\n").context_parallel, 2);
    const TrainingRun dense = titan("[parallelism]\ntensor_parallel_degree = 2\n");
    EXPECT_EQ(dense.context_parallel, std::nullopt);
    EXPECT_EQ(dense.expert_parallel, std::nullopt);
    const auto fault = [&](const std::string& more) {
        return error_of([&] { titan(degrees + more); });
    };
    const Error tensor = fault("expert_tensor_parallel_degree = 4\n");
    EXPECT_EQ(tensor.kind(), ErrorKind::Infeasible);
    EXPECT_EQ(tensor.text(), "4 devices share an expert, expected 1 or the 2 of a layer");
    EXPECT_EQ(
        error_of([] {
            titan(
                "[parallelism]\ndata_parallel_shard_degree = 4\n"
                "expert_parallel_degree = 8\n");
        }).text(),
        "4 devices that shard weights cannot be shared out to groups of 8 x 1 devices: expert "
        "x expert tensor parallelism");
    // FSDP shards over the devices of a sample, too.
    EXPECT_EQ(
        titan("[parallelism]\ndata_parallel_shard_degree = 1\ncontext_parallel_degree = 2\n").shard,
        "weights");
}

TEST(DeepSpeedRun, SamplesAndExpertsAreDivided) {
    const std::string batch =
        R"({"train_batch_size": 16, "train_micro_batch_size_per_gpu": 1, "gradient_accumulation_steps": 4)";
    const TrainingRun run = deepspeed_run(
        parse_json_settings(batch + R"(, "sequence_parallel_size": 4, "zero_optimization": )" +
                                R"({"stage": 2}, "expert_parallel": {"enabled": true, )" +
                                R"("autoep_size": 2, "preset_model": "mixtral"}})",
                            "x.json"),
        LeaveOut::Nothing);
    EXPECT_EQ(run.data_parallel, 4);
    EXPECT_EQ(run.context_parallel, 4);
    EXPECT_EQ(run.context_method, "all-to-all");
    EXPECT_EQ(run.expert_parallel, 2);
    EXPECT_EQ(run.expert_tensor_parallel, 1);
    const TrainingRun off = deepspeed_run(
        parse_json_settings(batch + R"(, "expert_parallel": {"enabled": false, "autoep_size": 2}})",
                            "x.json"),
        LeaveOut::Nothing);
    EXPECT_EQ(off.expert_parallel, std::nullopt);
}

/// Keys that stood among those without effect, and have one.
TEST(TorchtitanRun, WhatMovesAStepIsReadOrWarnedOf) {
    EXPECT_TRUE(titan("[debug]\nmoe_force_load_balance = true\n").balances_experts);
    EXPECT_FALSE(titan("[debug]\nmoe_force_load_balance = false\n").balances_experts);
    const std::string samples = "[parallelism]\ncontext_parallel_degree = 2\n";
    EXPECT_THAT(titan(samples + "context_parallel_load_balancer = \"none\"\n").warnings,
                Contains(HasSubstr("the run has most on the last")));
    EXPECT_THAT(titan(samples + "context_parallel_load_balancer = \"headtail\"\n").warnings,
                Not(Contains(HasSubstr("the run has most on the last"))));
    EXPECT_THAT(titan("[experimental]\ncustom_import = \"my.models\"\n").warnings,
                Contains(HasSubstr("my.models: Python code")));
    EXPECT_THAT(titan("[debug]\ndeterministic = true\n").warnings,
                Contains(HasSubstr("deterministic kernels")));
}

TEST(TorchtitanRun, NoTableIsHarmlessAsAWhole) {
    for (const std::string table : {"[float8]\nenable_float8_linear = true\n",
                                    "[training]\nfp8_linear = \"dynamic\"\n",
                                    "[memory_estimation]\nenable = true\n",
                                    "[comm]\nmode = \"fake_backend\"\n",
                                    "[fault_tolerance]\nsemi_sync_method = \"diloco\"\n",
                                    "[experimental]\npipeline_parallel_depth = 2\n",
                                    "[quantize.linear]\nkind = \"x\"\n"}) {
        EXPECT_EQ(error_of([&] { titan(table, LeaveOut::Unknown); }).kind(), ErrorKind::BadInput)
            << table;
    }
    EXPECT_THAT(titan("[job]\nstrange = 1\n").warnings,
                Contains(HasSubstr("not known here, and left out: job.strange")));
    EXPECT_THAT(titan("[float8]\nenable_float8_linear = false\nrecipe_name = \"rowwise\"\n"
                      "[training]\nfp8_linear = \"\"\n")
                    .harmless,
                ElementsAre("float8.recipe_name"));
    EXPECT_THAT(titan("[optimizer]\nearly_step_in_backward = true\n").warnings,
                Contains(HasSubstr("the run needs less memory")));
}

/// debug_model.toml of torchtitan 0.2: a schedule for several stages, and a degree of 1.
TEST(TorchtitanRun, ADegreeOfOneHasNoSchedule) {
    const TrainingRun run = titan(
        "[model]\nname = \"llama3\"\nflavor = \"debugmodel\"\n"
        "[training]\nlocal_batch_size = 8\n[parallelism]\npipeline_parallel_degree = 1\n"
        "pipeline_parallel_schedule = \"Interleaved1F1B\"\n");
    EXPECT_EQ(run.schedule, "1f1b");
    EXPECT_EQ(run.chunks, 1);
    EXPECT_EQ(run.micro_batches, 1);
    EXPECT_THAT(run.blocks, ElementsAre(6));
}

TEST(TorchtitanRun, ListsOfModulesSayTheStages) {
    const TrainingRun run = titan(
        "[model]\nname = \"x\"\nflavor = \"y\"\n"
        "[parallelism]\ndata_parallel_shard_degree = 1\npipeline_parallel_degree = 2\n"
        "module_fqns_per_model_part = [[\"tok_embeddings\", \"layers.0\"],\n"
        "  [\"layers.1\", \"layers.2\", \"norm\", \"output\"]]\n"
        "[activation_checkpoint]\nmode = \"none\"\n");
    EXPECT_THAT(run.blocks, ElementsAre(1, 2));
    EXPECT_EQ(run.schedule, "1f1b");
    EXPECT_EQ(run.chunks, 1);
    EXPECT_EQ(run.micro_batches, 8);  // of one sample each, of a batch of 8: the defaults
}

/// torchtitan's stages leave out what no list names, and run twice what two name, without a word.
TEST(TorchtitanRun, ListsOfModulesNameTheWholeModelOnce) {
    const auto refusal = [](const std::string& modules, const std::string& model = "x") {
        const std::string flavor = model == "llama3" ? "debugmodel" : "y";
        return error_of([&] {
            titan("[model]\nname = \"" + model + "\"\nflavor = \"" + flavor +
                  "\"\n[parallelism]\npipeline_parallel_degree = 2\n"
                  "module_fqns_per_model_part = [" +
                  modules + "]\n");
        });
    };
    const Error missing = refusal(R"(["tok_embeddings", "layers.0"], ["layers.2", "norm"])");
    EXPECT_EQ(missing.kind(), ErrorKind::Infeasible);
    EXPECT_EQ(missing.place(), "x.toml:6:30");
    EXPECT_EQ(missing.text(), "no stage has 'layers.1'");
    EXPECT_FALSE(missing.hint().empty());
    EXPECT_EQ(refusal(R"(["layers.1"], ["layers.2"])").text(), "no stage has 'layers.0'");
    EXPECT_EQ(refusal(R"(["tok_embeddings"], ["norm", "output"])").text(),
              "no stage has 'layers.0'");
    EXPECT_EQ(refusal(R"(["layers.0", "layers.1"], ["layers.1", "layers.2"])").text(),
              "'layers.1' is in stage 0 and again in stage 1");
    EXPECT_EQ(refusal(R"(["layers.0", "norm"], ["layers.1", "norm"])").text(),
              "'norm' is in stage 0 and again in stage 1");
    EXPECT_EQ(refusal(R"(["layers.1"], ["layers.0"])").text(),
              "'layers.1' is in stage 0, in front of 'layers.0' in stage 1");
    EXPECT_EQ(refusal(R"(["layers.0"], ["layers.1.attention"])").text(),
              "'layers.1.attention' names no layer");
    // The six layers of a model that is known, and what stands around them.
    const std::string first = R"(["tok_embeddings", "layers.0", "layers.1", "layers.2"], )";
    EXPECT_EQ(refusal(first + R"(["layers.3", "layers.4", "norm", "output"])", "llama3").text(),
              "no stage has 'layers.5'");
    EXPECT_EQ(refusal(first + R"(["layers.3", "layers.4", "layers.5", "output"])", "llama3").text(),
              "no stage has 'norm'");
    EXPECT_EQ(refusal(first + R"(["layers.3", "layers.4", "layers.5", "norm"])", "llama3").text(),
              "no stage has 'output'");
    EXPECT_EQ(
        refusal(first + R"(["layers.3", "layers.4", "layers.5", "layers.6"])", "llama3").text(),
        "'layers.6' is in stage 1, but the layers of llama3 debugmodel are layers.0 to "
        "layers.5");
}

TEST(TorchtitanRun, ALayerMayStandAnywhereInTheListOfItsStage) {
    const TrainingRun run = titan(
        "[model]\nname = \"llama3\"\nflavor = \"debugmodel\"\n"
        "[parallelism]\npipeline_parallel_degree = 2\n"
        "module_fqns_per_model_part = [[\"layers.1\", \"layers.0\", \"tok_embeddings\"],\n"
        "  [\"norm\", \"layers.5\", \"layers.3\", \"layers.4\", \"layers.2\", "
        "\"lm_head\"]]\n");
    EXPECT_THAT(run.blocks, ElementsAre(2, 4));
}

/// Linear layers in 8 bits leave the products of experts as they are.
TEST(TorchtitanRun, ConvertersSayTheTypeOfProducts) {
    const auto with = [](std::string_view name, std::string_view converters) {
        return fmt::format(
            "[model]\nname = \"{}\"\nflavor = \"8B\"\nconverters = [{}]\n", name, converters);
    };
    EXPECT_EQ(titan(with("llama3", "\"float8\"")).narrow, "fp8");
    EXPECT_EQ(titan(with("llama3", "\"quantize.linear.mx\"")).narrow, "mxfp8");
    EXPECT_EQ(titan(with("llama3", "")).narrow, "");
    const std::string both = "\"quantize.linear.float8\", \"quantize.grouped_mm.float8\"";
    EXPECT_EQ(titan(with("deepseek_v3", both)).narrow, "fp8");
    EXPECT_EQ(titan(with("deepseek_v3", both)).not_narrow, "");
    const TrainingRun linear = titan(with("deepseek_v3", "\"float8\""));
    EXPECT_EQ(linear.narrow, "fp8");
    EXPECT_EQ(linear.not_narrow, "experts");
    EXPECT_EQ(titan(with("deepseek_v3", "\"quantize.grouped_mm.mx\"")).not_narrow, "linear layers");
    const std::string two = with("llama3", "\"float8\", \"quantize.linear.mx\"");
    EXPECT_THAT(error_of([&] { titan(two); }).text(), HasSubstr("model.converters"));
}

/// Primus: kernels of AMD's compute experts in 8 bits, whatever the converters.
TEST(TorchtitanRun, KernelsMaySayTheTypeOfExperts) {
    const std::string turbo =
        "[primus_turbo]\nenable_primus_turbo = true\nuse_turbo_grouped_mm = true\n"
        "use_moe_fp8 = true\n[model]\nname = \"deepseek_v3\"\nflavor = \"16B\"\n";
    EXPECT_EQ(titan(turbo + "converters = [\"quantize.linear.float8\"]\n").narrow, "fp8");
    const TrainingRun experts = titan(turbo);
    EXPECT_EQ(experts.narrow, "fp8");
    EXPECT_EQ(experts.not_narrow, "linear layers");
    EXPECT_THAT(error_of([&] { titan(turbo + "converters = [\"quantize.linear.mx\"]\n"); }).text(),
                HasSubstr("primus_turbo.use_moe_fp8"));
}

/// Primus makes a model of so many layers of a flavour.
TEST(TorchtitanRun, AModelMayHaveAnotherNumberOfLayers) {
    const std::string model = "[model]\nname = \"llama3\"\nflavor = \"405B\"\nn_layers = ";
    const TrainingRun whole = titan(model + "126\n");
    EXPECT_EQ(whole.shipped_model, "llama-3.1-405b");
    EXPECT_THAT(whole.blocks, ElementsAre(126));
    const TrainingRun cut = titan(model + "8\n");
    EXPECT_EQ(cut.shipped_model, "");
    EXPECT_EQ(cut.model, "llama3 405B of 8 layers");
    EXPECT_THAT(cut.blocks, ElementsAre(8));
}

TEST(TorchtitanRun, WhatItCannotSayIsRefusedWithItsPlaceOrLeftOut) {
    constexpr std::string_view text =
        "[parallelism]\npipeline_parallel_degree = 2\n"
        "data_parallel_shard_degree = 8\nstrange = 1\n"
        "[model]\nconverters = [\"pruning\"]\n"
        "[activation_checkpoint]\nmode = \"memory_budget\"\n";
    const Error error = error_of([&] { titan(text); });
    EXPECT_EQ(error.kind(), ErrorKind::BadInput);
    EXPECT_THAT(error.place(), HasSubstr("x.toml:"));
    EXPECT_THAT(error.text(),
                AllOf(HasSubstr("activation_checkpoint.mode: the compiler chooses"),
                      HasSubstr("model.converters: it changes layers"),
                      HasSubstr("parallelism.strange: no setting that is known here")));
    EXPECT_EQ(error_of([&] { titan(text, LeaveOut::Unknown); }).kind(), ErrorKind::BadInput);
    const TrainingRun run = titan(text, LeaveOut::All);
    EXPECT_EQ(run.stages, 2);
    EXPECT_THAT(run.warnings, Contains(HasSubstr("left out: parallelism.strange")));
    EXPECT_THAT(run.left_out, Contains("model.converters"));
    EXPECT_EQ(error_of([] { titan("[parallelism]\npipeline_parallel_degree = 0\n"); }).place(),
              "x.toml:2:28");
    EXPECT_EQ(error_of([] { titan("[parallelism\n"); }).kind(), ErrorKind::BadInput);
    EXPECT_EQ(error_of([] {
                  titan(
                      "[model]\nname = \"llama3\"\nflavor = \"debugmodel\"\n[parallelism]\n"
                      "pipeline_parallel_degree = 9\n");
              }).kind(),
              ErrorKind::Infeasible);
}

/// 2^30 is the largest number that a key takes; sums and products of two are still right.
TEST(TorchtitanRun, NumbersThatAreTooLargeTogetherAreRefused) {
    const std::string most = "1073741824\n";
    const std::string llama = "[model]\nname = \"llama3\"\nflavor = \"8B\"\n[parallelism]\n";
    EXPECT_THAT(error_of([&] {
                    titan(llama +
                          "pipeline_parallel_schedule = \"Interleaved1F1B\"\n"
                          "pipeline_parallel_degree = " +
                          most);
                }).text(),
                HasSubstr("2147483648 stages, expected at most 262144"));
    EXPECT_THAT(error_of([&] {
                    titan(llama +
                          "pipeline_parallel_degree = 2\n"
                          "pipeline_parallel_layers_per_stage = 1\n"
                          "pipeline_parallel_first_stage_less_layers = " +
                          most + "pipeline_parallel_last_stage_less_layers = " + most);
                }).text(),
                HasSubstr("2147483680 stages"));
    EXPECT_THAT(error_of([&] {
                    titan(llama +
                          "pipeline_parallel_degree = 4\n"
                          "pipeline_parallel_first_stage_less_layers = " +
                          most + "pipeline_parallel_last_stage_less_layers = " + most);
                }).text(),
                HasSubstr("for 4 stages"));
    EXPECT_THAT(error_of([&] {
                    titan(llama + "data_parallel_replicate_degree = " + most +
                          "[training]\nlocal_batch_size = " + most);
                }).text(),
                HasSubstr("a batch of 1152921504606846976, expected at most 1073741824"));
    EXPECT_THAT(error_of([&] {
                    titan(llama + "data_parallel_replicate_degree = " + most +
                          "data_parallel_shard_degree = " + most);
                }).text(),
                HasSubstr("expected at most 1073741824 replicas"));
}

// What torchtitan's FSDP shares: docs/fsdp.md (ZeRO-3, and ZeRO-2 where weights stay gathered).

std::string titan_shares(const std::string& parallelism) {
    return "[training]\nlocal_batch_size = 4\n[parallelism]\n" + parallelism +
           "[activation_checkpoint]\nmode = \"none\"\n";
}

TEST(TorchtitanShares, AreWeightsAndWithoutReshardingGradients) {
    const auto shard = [](const std::string& more) {
        return titan(titan_shares("data_parallel_shard_degree = 8\n" + more)).shard;
    };
    EXPECT_EQ(shard(""), "weights");
    EXPECT_EQ(shard("fsdp_reshard_after_forward = \"default\"\n"), "weights");
    EXPECT_EQ(shard("fsdp_reshard_after_forward = \"always\"\n"), "weights");
    EXPECT_EQ(shard("fsdp_reshard_after_forward = \"never\"\n"), "gradients");
    const TrainingRun run = titan(titan_shares("data_parallel_shard_degree = 8\n"));
    EXPECT_EQ(run.data_parallel, 8);
    EXPECT_EQ(run.batch, 32);
    EXPECT_EQ(run.micro_batches, 1);  // without a pipeline a pass has the local batch
    EXPECT_EQ(error_of([&] { shard("fsdp_reshard_after_forward = \"often\"\n"); }).kind(),
              ErrorKind::BadInput);
}

/// get_fsdp_reshard_after_forward_policy: "default" keeps weights gathered in a pipeline; and
/// PyTorch's stages synchronize gradients with the last backward alone.
TEST(TorchtitanShares, AreTheOptimizersInAPipeline) {
    const std::string pipeline = "data_parallel_shard_degree = 8\npipeline_parallel_degree = 2\n";
    const auto run = [&](const std::string& more) { return titan(titan_shares(pipeline + more)); };
    EXPECT_EQ(run("").shard, "optimizer");
    EXPECT_EQ(run("fsdp_reshard_after_forward = \"never\"\n").shard, "optimizer");
    const TrainingRun always = run("fsdp_reshard_after_forward = \"always\"\n");
    EXPECT_EQ(always.shard, "weights");
    EXPECT_THAT(always.warnings, Contains(HasSubstr("fsdp_reshard_after_forward = always")));
}

/// -1, the default: "leftover ranks will be used".
TEST(TorchtitanShares, TheNumberOfDevicesThatAreLeftIsAskedFor) {
    const TrainingRun run = titan(titan_shares(""));
    EXPECT_EQ(run.shard, "weights");
    EXPECT_EQ(run.data_parallel, 1);
    EXPECT_THAT(run.warnings,
                Contains(AllOf(HasSubstr("set pipeline.data_parallel to their number"),
                               HasSubstr("multiply training.batch"))));
    // Eight passes of 4 samples, fewer on each of several devices.
    const TrainingRun passes = titan("[training]\nlocal_batch_size = 4\nglobal_batch_size = 32\n");
    EXPECT_EQ(passes.batch, 32);
    EXPECT_EQ(passes.micro_batches, 8);
    EXPECT_THAT(passes.warnings, Contains(HasSubstr("divide pipeline.micro_batches")));
    const TrainingRun groups =
        titan(titan_shares("data_parallel_replicate_degree = 2\ndata_parallel_shard_degree = 8\n"));
    EXPECT_EQ(groups.data_parallel, 16);
    EXPECT_EQ(groups.shard_group, 8);
    EXPECT_EQ(groups.shard, "weights");
    const TrainingRun copies = titan(titan_shares("data_parallel_replicate_degree = 2\n"));
    EXPECT_EQ(copies.shard, "");
    EXPECT_EQ(copies.data_parallel, 2);
    EXPECT_THAT(copies.warnings, Contains(HasSubstr("HSDP")));
}

/// torchtitan's ActivationCheckpoint: "'int' (e.g., 2) for every nth layer, or 'op' for op level
/// ac", by default every second.
TEST(TorchtitanRecompute, SelectiveIsNeverSaidInSilence) {
    const auto run = [](const std::string& table) {
        return titan("[parallelism]\ndata_parallel_shard_degree = 1\n[activation_checkpoint]\n" +
                     table);
    };
    EXPECT_EQ(run("mode = \"selective\"\nselective_ac_option = \"1\"\n").recompute, "block");
    EXPECT_EQ(run("mode = \"selective\"\nselective_ac_option = 1\n").recompute, "block");
    const TrainingRun parts = run("mode = \"selective\"\nselective_ac_option = \"op\"\n");
    EXPECT_EQ(parts.recompute, "selective");
    EXPECT_THAT(parts.warnings, Not(Contains(HasSubstr("activation_checkpoint"))));
    EXPECT_THAT(run("mode = \"selective\"\n").warnings,
                Contains(HasSubstr("one block of every 2")));
    EXPECT_EQ(run("mode = \"none\"\n").recompute, "none");
    EXPECT_EQ(error_of([&] { run("mode = \"some\"\n"); }).kind(), ErrorKind::BadInput);
}

TEST(TorchtitanRun, TensorParallelismDividesTheSequence) {
    const auto divides = [](const std::string& more) {
        return titan("[parallelism]\ndata_parallel_shard_degree = 1\n" + more).sequence_parallel;
    };
    EXPECT_TRUE(divides("tensor_parallel_degree = 2\n"));
    EXPECT_FALSE(divides("tensor_parallel_degree = 1\n"));
    EXPECT_FALSE(divides("tensor_parallel_degree = 2\nenable_sequence_parallel = false\n"));
}

/// "put all parameters, gradients, and optimizer states in bfloat16, without an extra copy".
TEST(TorchtitanRun, WeightsWithoutCopiesInFp32AreTold) {
    const TrainingRun run = titan("[training]\ndtype = \"bfloat16\"\n");
    EXPECT_EQ(run.gradients, "same");
    EXPECT_EQ(run.optimizer_state_bytes, 4);  // two means of two bytes
    EXPECT_EQ(titan("[training]\nmixed_precision_param = \"float32\"\n").gradients, "");
}

// --- DeepSpeed. ---

TEST(DeepSpeedRun, ReadsBatchPrecisionAndStages) {
    const TrainingRun run = deepspeed(
        R"({"train_batch_size": 64, "train_micro_batch_size_per_gpu": 2,
            "gradient_accumulation_steps": 8, "gradient_clipping": 1.0,
            "optimizer": {"type": "Adam", "params": {"lr": 1e-4, "betas": [0.9, 0.95]}},
            "bf16": {"enabled": true}, "zero_optimization": {"stage": 1},
            "pipeline": {"stages": 4, "partition": "uniform", "activation_checkpoint_interval": 0},
            "steps_per_print": 10, "wandb": {"enabled": true}})");
    EXPECT_EQ(run.batch, 64);
    EXPECT_EQ(run.micro_batches, 8);
    EXPECT_EQ(run.data_parallel, 4);
    EXPECT_EQ(run.stages, 4);
    EXPECT_EQ(run.precision, "bf16");
    EXPECT_EQ(run.optimizer, "adam");
    EXPECT_EQ(run.clip_norm, 1);
    EXPECT_EQ(run.shard, "optimizer");
    EXPECT_EQ(run.gradients, "same");  // bf16 with ZeRO, in all versions of get_data_types
    EXPECT_EQ(run.recompute, "none");
    EXPECT_THAT(run.warnings, IsEmpty());
    EXPECT_THAT(run.harmless, ElementsAre("steps_per_print", "wandb.enabled"));
}

TEST(DeepSpeedRun, WhatIsLeftOpenIsTold) {
    const TrainingRun run =
        deepspeed(R"({"train_batch_size": 64, "train_micro_batch_size_per_gpu": 2,
                      "gradient_accumulation_steps": "auto"})");
    EXPECT_EQ(run.micro_batches, 32);
    EXPECT_THAT(run.warnings,
                AllOf(Contains(HasSubstr("one replica")), Contains(HasSubstr("how many stages"))));
}

TEST(DeepSpeedRun, WhatItCannotSayIsRefused) {
    const Error error = error_of([] {
        deepspeed(R"({"zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu"},
                                            "zero_quantized_weights": true},
                      "pipeline": {"stages": 2}, "strange": {"x": 1}})");
    });
    EXPECT_EQ(error.kind(), ErrorKind::BadInput);
    EXPECT_THAT(error.text(),
                AllOf(HasSubstr("zero_optimization.stage: replicas share gradients or weights"),
                      HasSubstr("zero_optimization.offload_optimizer.device: state is in host"),
                      HasSubstr("zero_optimization.zero_quantized_weights: messages have fewer"),
                      Not(HasSubstr("strange.x"))));
    EXPECT_EQ(error_of([] {
                  deepspeed(R"({"train_batch_size": 7, "train_micro_batch_size_per_gpu": 2})");
              }).text(),
              "7 samples are no multiple of the 2 of a replica");
    EXPECT_EQ(error_of([] { deepspeed("[]"); }).kind(), ErrorKind::BadInput);
    EXPECT_EQ(error_of([] { deepspeed(R"({"bf16": {"enabled": 1}})"); }).place(),
              "x.json: /bf16/enabled");
}

/// The file of Hugging Face's documentation of ZeRO stage 3, without offloading; numbers for
/// "auto".
constexpr std::string_view zero_three = R"({
    "bf16": {"enabled": true},
    "optimizer": {"type": "AdamW", "params": {"lr": 3e-5, "weight_decay": 0.01}},
    "zero_optimization": {
        "stage": 3,
        "offload_optimizer": {"device": "none", "pin_memory": true},
        "overlap_comm": true, "contiguous_gradients": true, "sub_group_size": 1e9,
        "reduce_bucket_size": 1e6, "stage3_prefetch_bucket_size": 0.94e6,
        "stage3_param_persistence_threshold": 1e4, "stage3_max_live_parameters": 1e9,
        "stage3_max_reuse_distance": 1e9, "stage3_gather_16bit_weights_on_model_save": true
    },
    "gradient_accumulation_steps": 4, "gradient_clipping": 1.0, "steps_per_print": 2000,
    "train_batch_size": 64, "train_micro_batch_size_per_gpu": 2, "wall_clock_breakdown": false
})";

TEST(DeepSpeedRun, ZeroTwoAndThreeAreRunsWithoutAPipeline) {
    const TrainingRun run = deepspeed(zero_three);
    EXPECT_EQ(run.shard, "weights");
    EXPECT_EQ(run.prefetch, std::nullopt);
    EXPECT_EQ(run.stages, 1);
    EXPECT_EQ(run.data_parallel, 8);
    EXPECT_EQ(run.micro_batches, 4);
    EXPECT_EQ(run.gradients, "same");
    EXPECT_THAT(run.warnings, ElementsAre(HasSubstr("recompute = \"block\"")));
    const TrainingRun two = deepspeed(R"({"zero_optimization": {"stage": 2}})");
    EXPECT_EQ(two.shard, "gradients");
    EXPECT_THAT(two.warnings, Contains(HasSubstr("set pipeline.data_parallel")));
    EXPECT_THAT(two.warnings, Contains(HasSubstr("zero_optimization.overlap_comm is off")));
    EXPECT_EQ(deepspeed(R"({"zero_optimization": {"stage": 3, "stage3_prefetch_bucket_size": 0}})")
                  .prefetch,
              0);
    EXPECT_EQ(deepspeed(R"({"zero_optimization": true})").shard, "optimizer");
    EXPECT_EQ(error_of([] { deepspeed(R"({"zero_optimization": {"stage": 4}})"); }).text(),
              "zero_optimization.stage = 4, expected 0, 1, 2 or 3");
}

/// MiCS divides all state in groups of replicas; ZeRO++ has a second share of the weights alone.
TEST(DeepSpeedRun, GroupsThatDivideAllStateAreAGroup) {
    const auto with = [](const std::string& zero) {
        return deepspeed(R"({"train_batch_size": 8, "train_micro_batch_size_per_gpu": 1,
                             "gradient_accumulation_steps": 1, "zero_optimization": {)" +
                         zero + "}}");
    };
    const TrainingRun run = with(R"("stage": 3, "mics_shard_size": 4)");
    EXPECT_EQ(run.shard, "weights");
    EXPECT_EQ(run.shard_group, 4);
    EXPECT_THAT(run.warnings, Not(Contains(HasSubstr("mics"))));
    EXPECT_EQ(with(R"("stage": 3, "mics_shard_size": -1)").shard_group, std::nullopt);
    for (const std::string zero :
         {R"("stage": 3, "mics_shard_size": 3)",
          R"("stage": 3, "mics_shard_size": 1)",
          R"("stage": 2, "mics_shard_size": 4)",
          R"("stage": 3, "mics_shard_size": 4, "mics_hierarchical_params_gather": true)",
          R"("stage": 3, "zero_hpz_partition_size": 4)"}) {
        EXPECT_EQ(error_of([&] { with(zero); }).kind(), ErrorKind::BadInput) << zero;
    }
    EXPECT_THAT(deepspeed(R"({"gradient_accumulation_steps": 4,
                              "zero_optimization": {"stage": 3, "mics_shard_size": 4}})")
                    .warnings,
                Contains(HasSubstr("MiCS sums gradients between groups once a step")));
}

/// PipelineModule: "The granularity activation checkpointing in terms of number of layers".
TEST(DeepSpeedRun, RecomputesGroupsOfLayers) {
    const auto run = [](const std::string& interval) {
        return deepspeed(R"({"pipeline": {"stages": 2, "activation_checkpoint_interval": )" +
                         interval + "}}");
    };
    EXPECT_EQ(run("0").recompute, "none");
    for (const int interval : {1, 2}) {
        const TrainingRun found = run(std::to_string(interval));
        EXPECT_EQ(found.recompute, "block");
        EXPECT_EQ(found.recompute_blocks, interval);
        EXPECT_THAT(found.warnings, Not(Contains(HasSubstr("activation_checkpoint_interval"))));
    }
}

TEST(DeepSpeedRun, GradientsHaveTheTypeOfDataTypes) {
    const auto run = [](const std::string& more) {
        return deepspeed(R"({"bf16": {"enabled": true})" + more + "}");
    };
    EXPECT_EQ(run(R"(, "data_types": {"grad_accum_dtype": "fp32"})").gradients, "fp32");
    EXPECT_EQ(run(R"(, "data_types": {"grad_accum_dtype": "bf16"})").gradients, "same");
    EXPECT_EQ(run("").gradients, "fp32");
    EXPECT_THAT(run("").warnings, Contains(HasSubstr("no data_types.grad_accum_dtype")));
    EXPECT_EQ(deepspeed(R"({"fp16": {"enabled": true}})").gradients, "same");
    EXPECT_EQ(deepspeed("{}").gradients, "");
}

/// Hugging Face's Trainer fills "auto" in by its own arguments.
TEST(DeepSpeedRun, WhatIsAutoStaysOpen) {
    const TrainingRun run = deepspeed(
        R"({"train_batch_size": "auto", "train_micro_batch_size_per_gpu": "auto",
            "gradient_accumulation_steps": 8, "gradient_clipping": "auto",
            "bf16": {"enabled": "auto"}, "zero_optimization": {"stage": 2,
            "overlap_comm": "auto", "reduce_bucket_size": "auto"},
            "optimizer": {"type": "AdamW", "params": {"lr": "auto", "betas": "auto"}}})");
    EXPECT_EQ(run.precision, "");
    EXPECT_EQ(run.gradients, "");
    EXPECT_FALSE(run.clip_norm);
    EXPECT_FALSE(run.batch);
    EXPECT_EQ(run.micro_batches, 8);
    EXPECT_THAT(run.warnings,
                AllOf(Contains(HasSubstr("bf16.enabled = auto")),
                      Contains(HasSubstr("gradient_clipping = auto")),
                      Contains(HasSubstr("train_batch_size, train_micro_batch_size_per_gpu = "
                                         "auto")),
                      Contains(HasSubstr("zero_optimization.overlap_comm = auto"))));
    EXPECT_EQ(deepspeed(R"({"fp16": {"enabled": "auto"}})").precision, "");
    EXPECT_EQ(deepspeed(R"({"fp16": {"enabled": "auto"}, "bf16": {"enabled": true}})").precision,
              "bf16");
    EXPECT_EQ(deepspeed(R"({"gradient_clipping": 0.5})").clip_norm, 0.5);
    EXPECT_EQ(error_of([] { deepspeed(R"({"zero_optimization": {"stage": "auto"}})"); }).kind(),
              ErrorKind::BadInput);
}

TEST(DeepSpeedRun, NoTableIsHarmlessAsAWhole) {
    for (const std::string table :
         {R"("amp": {"enabled": true})",
          R"("elasticity": {"enabled": true})",
          R"("curriculum_learning": {"enabled": true})",
          R"("progressive_layer_drop": {"enabled": true})",
          R"("fp16": {"enabled": true, "fp16_master_weights_and_grads": true})",
          R"("tensor_parallel": {"autotp_size": 4}, "zero_optimization": {"stage": 3})",
          R"("tensor_parallel": {"autotp_size": 4}, "pipeline": {"stages": 2})",
          R"("data_efficiency": {"enabled": true, "data_routing": {"enabled": true}})",
          R"("compression_training": {"weight_quantization": {"shared_parameters": {
                 "enabled": true}}})",
          R"("autotuning": {"enabled": true})",
          R"("activation_checkpointing": {"cpu_checkpointing": true})",
          R"("checkpoint": {"pipeline_layers": 4})"}) {
        EXPECT_EQ(error_of([&] { deepspeed("{" + table + "}", LeaveOut::Unknown); }).kind(),
                  ErrorKind::BadInput)
            << table;
    }
}

/// A table that is off has no effect, whatever is in it.
TEST(DeepSpeedRun, TablesThatAreOffAreNone) {
    const std::string batch = R"({"train_batch_size": 8, "train_micro_batch_size_per_gpu": 2,
        "gradient_accumulation_steps": 1)";
    const TrainingRun plain = deepspeed(batch + "}");
    for (const std::string table :
         {R"("data_efficiency": {"enabled": false, "data_routing": {"enabled": true}})",
          R"("data_efficiency": {"enabled": true, "data_routing": {"enabled": false,
                 "random_ltd": {"enabled": false, "total_layer_num": 12}}})",
          R"("compression_training": {"weight_quantization": {"shared_parameters": {
                 "enabled": false, "quantize_groups": 64}}})",
          R"("autotuning": {"enabled": false, "arg_mappings": {"batch": "--batch"}})"}) {
        const TrainingRun run = deepspeed(batch + ", " + table + "}");
        EXPECT_EQ(run, plain) << table;
    }
}

/// AutoTP: a batch of 16 in passes of 2 x 2 samples is that of 4 replicas, each of 4 devices.
TEST(DeepSpeedRun, AutoTpDividesLayers) {
    const TrainingRun run = deepspeed(
        R"({"train_batch_size": 16, "train_micro_batch_size_per_gpu": 2,
            "gradient_accumulation_steps": 2, "zero_optimization": {"stage": 1},
            "tensor_parallel": {"autotp_size": 4}})");
    EXPECT_EQ(run.tensor_parallel, 4);
    EXPECT_EQ(run.data_parallel, 4);
    EXPECT_EQ(run.stages, 1);
    EXPECT_FALSE(run.sequence_parallel);
}

/// DeepSpeed: "bfloat16 and fp16 modes cannot be simultaneously enabled".
TEST(DeepSpeedRun, TwoPrecisionsAtOnceAreRefused) {
    const Error both = error_of([] {
        deepspeed(R"({"fp16": {"enabled": true}, "bf16": {"enabled": true}})", LeaveOut::All);
    });
    EXPECT_EQ(both.kind(), ErrorKind::Infeasible);
    EXPECT_EQ(both.place(), "x.json: /fp16/enabled");
    EXPECT_THAT(both.text(), AllOf(HasSubstr("fp16.enabled"), HasSubstr("bf16.enabled")));
    EXPECT_THAT(both.hint(), HasSubstr("set one of them to false"));
    EXPECT_THAT(error_of([] {
                    deepspeed(R"({"fp16": {"enabled": true}, "bfloat16": {"enabled": true}})");
                }).text(),
                HasSubstr("fp16.enabled and bfloat16.enabled are both true"));
    // "bfloat16" is the older name: DeepSpeed looks at it only where there is no "bf16".
    EXPECT_EQ(deepspeed(R"({"bf16": {"enabled": false}, "bfloat16": {"enabled": true}})").precision,
              "fp32");
    EXPECT_EQ(deepspeed(R"({"fp16": {"enabled": "auto"}, "bf16": {"enabled": true}})").precision,
              "bf16");
}

}  // namespace training_run_test
}  // namespace pipetwin
