// SPDX-License-Identifier: Apache-2.0
#include "core/interop/jobs/torchtitan_job.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/costs/devices/number_type.h"
#include "core/interop/jobs/lacks.h"
#include "core/interop/jobs/torch_schedule.h"
#include "core/interop/torchtitan.h"
#include "core/scenario/shard_group.h"

namespace pipetwin {

namespace {

struct SizedFlavor {
    TitanFlavor name;
    int layers;
    int hidden;
    int heads;
    int feed_forward;  ///< of a dense block
    int experts;       ///< 0: it has none
    int vocabulary;
};

constexpr auto sized_flavors = std::to_array<SizedFlavor>({
    {{"llama3", "8B", "Llama-3.1-8B"}, 32, 4096, 32, 14336, 0, 128256},
    {{"llama3", "70B", "Llama-3.1-70B"}, 80, 8192, 64, 28672, 0, 128256},
    {{"llama3", "405B", "Llama-3.1-405B"}, 126, 16384, 128, 53248, 0, 128256},
    {{"qwen3", "0.6B", "Qwen3-0.6B"}, 28, 1024, 16, 3072, 0, 151936},
    {{"qwen3", "1.7B", "Qwen3-1.7B"}, 28, 2048, 16, 6144, 0, 151936},
    {{"qwen3", "4B", "Qwen3-4B"}, 36, 2560, 32, 9728, 0, 151936},
    {{"qwen3", "8B", "Qwen3-8B"}, 36, 4096, 32, 12288, 0, 151936},
    {{"qwen3", "14B", "Qwen3-14B"}, 40, 5120, 40, 17408, 0, 151936},
    {{"qwen3", "32B", "Qwen3-32B"}, 64, 5120, 64, 25600, 0, 151936},
    {{"qwen3", "30B-A3B", "Qwen3-30B-A3B"}, 48, 2048, 32, 6144, 128, 151936},
    {{"qwen3", "235B-A22B", "Qwen3-235B-A22B"}, 94, 4096, 64, 12288, 128, 151936},
    {{"deepseek_v3", "16B", "deepseek-moe-16b-base"}, 27, 2048, 16, 10944, 64, 102400},
    {{"deepseek_v3", "236B", "DeepSeek-V2"}, 60, 5120, 128, 12288, 160, 102400},
    {{"deepseek_v3", "671B", "DeepSeek-V3.1-Base"}, 61, 7168, 128, 18432, 256, 129280},
});

/// Finds the words of torchtitan for a plan; one object for each.
class TitanWords {
  public:
    TitanWords(const PlacedPlan& plan, TitanVersion version)
        : plan_(plan), pipeline_(plan.scenario.pipeline), version_(version) {}

    TitanJob find() {
        static_cast<void>(stage_blocks(plan_, "torchtitan"));
        expect_words();
        find_model();
        find_replicas();
        find_pipeline();
        find_division();
        find_numbers();
        find_rest();
        return std::move(job_);
    }

  private:
    bool in_pipeline() const { return pipeline_.stages > 1; }
    bool is_toml() const { return version_ == TitanVersion::Toml; }

    /// Whether all weights, gradients and means are in bf16: training.dtype = "bfloat16".
    bool is_all_bf16() const {
        const auto& training = plan_.scenario.training;
        return training.precision == Precision::Bf16 && training.gradients == GradientType::Same &&
               training.optimizer_state_bytes == 4;
    }

    void expect_words() {
        expect_no_lack(lacks_of_every_system(plan_, "torchtitan"));
        for (const Lack& lack : torchtitan_lacks(plan_)) {
            const bool is_of_bf16 =
                lack.key == "training.gradients" || lack.key == "training.optimizer_state_bytes";
            const bool is_newer = !is_toml() && lack.key == "pipeline.sequence_parallel";
            if ((is_of_bf16 && is_all_bf16()) || is_newer) {
                continue;
            }
            if (!lack.is_remark) {
                refuse_lack(lack);
            }
            job_.remarks.push_back(fmt::format("{}: {}", lack.subject, lack.why));
        }
        expect_words_of_training();
        expect_words_of_overlap();
    }

    void expect_words_of_training() const {
        const auto& training = plan_.scenario.training;
        if (training.optimizer != OptimizerKind::AdamW &&
            training.optimizer != OptimizerKind::Adam) {
            refuse_lack({.key = "training.optimizer",
                         .subject = fmt::format("training.optimizer = \"{}\"",
                                                to_string(training.optimizer)),
                         .why = "torchtitan has Adam and AdamW",
                         .hint = "set it to \"adamw\""});
        }
        if (training.weight_decay_of == WeightDecayOf::Weights) {
            refuse_lack({.key = "training.weight_decay_of",
                         .subject = "training.weight_decay_of = \"weights\"",
                         .why = "torchtitan makes every parameter smaller",
                         .hint = "set it to \"all\""});
        }
        if (training.accumulation == Accumulation::Separate) {
            refuse_lack({.key = "training.accumulation",
                         .subject = "training.accumulation = \"separate\"",
                         .why = "torchtitan has no setting for what adds up gradients",
                         .hint = "set it to \"fused\""});
        }
        if (training.expert_padding > 1) {
            refuse_lack(
                {.key = "training.expert_padding",
                 .subject = fmt::format("training.expert_padding = {}", training.expert_padding),
                 .why = "torchtitan's kernels choose how rows of experts are filled up",
                 .hint = "set it to 1"});
        }
    }

    void expect_words_of_overlap() const {
        if (pipeline_.overlap_reduction) {
            refuse_lack({.key = "pipeline.overlap_reduction",
                         .subject = "pipeline.overlap_reduction = true",
                         .why = "FSDP decides what goes on beside its sums, and no setting of "
                                "torchtitan does",
                         .hint = "set it to false"});
        }
        if (pipeline_.overlap_gather.value_or(false)) {
            refuse_lack({.key = "pipeline.overlap_gather",
                         .subject = "pipeline.overlap_gather = true",
                         .why = "FSDP decides what goes on beside its gathers, and no setting of "
                                "torchtitan does",
                         .hint = "set it to \"auto\""});
        }
    }

    void find_model() {
        const std::optional<MegatronFlags> sizes = sizes_of_model(plan_);
        if (sizes) {
            job_.model = titan_flavor(*sizes);
            job_.has_experts = sizes->experts.value_or(0) > 0;
        }
        if (is_toml() && in_pipeline() && job_.model && job_.model->model == "qwen3") {
            refuse_lack(
                {.key = "pipeline.stages",
                 .subject = fmt::format("pipeline.stages = {}", pipeline_.stages),
                 .why = "torchtitan's qwen3 had no pipelines while configurations were TOML",
                 .hint = "export torchtitan-python, whose qwen3 has them"});
        }
    }

    void find_replicas() {
        const int replicas = pipeline_.data_parallel;
        const bool shares =
            pipeline_.shard != Shard::None && (replicas > 1 || pipeline_.context_parallel > 1);
        job_.shard = shares ? group_size(plan_.scenario) : 1;
        job_.replicate = replicas / job_.shard;
        if (shares && !in_pipeline() && pipeline_.shard == Shard::Gradients) {
            job_.reshard = "never";
        }
        if (job_.shard == 1 && job_.replicate > 1 && pipeline_.context_parallel > 1) {
            refuse_lack({.key = "pipeline.shard_group",
                         .subject = "replicas that keep all weights beside context_parallel",
                         .why =
                             "torchtitan divides the weights of every replica among the devices of "
                             "its samples then, which a plan cannot say",
                         .hint = "leave shard_group out"});
        }
    }

    void find_pipeline() {
        job_.samples = samples_of_micro_batch(plan_, "torchtitan");
        TorchSchedule schedule = torch_schedule(plan_, "torchtitan");
        job_.schedule = std::move(schedule.name);
        job_.csv = std::move(schedule.csv);
        std::ranges::move(schedule.remarks, std::back_inserter(job_.remarks));
        if (!in_pipeline()) {
            return;
        }
        job_.modules = torchtitan_modules(plan_.partition);
        if (!is_toml()) {
            job_.modules.back().back() = "lm_head";
        }
    }

    void find_division() {
        if (pipeline_.context_parallel > 1) {
            const bool gathers = pipeline_.context_method == ContextMethod::AllGather;
            if (!gathers && !is_toml()) {
                refuse_lack({.key = "pipeline.context_method",
                             .subject = "pipeline.context_method = \"ring\"",
                             .why = "torchtitan gathers keys and values since 2026",
                             .hint = "set it to \"all-gather\""});
            }
            job_.rotate = gathers ? "allgather" : "alltoall";
        }
        if (pipeline_.expert_parallel == 1) {
            return;
        }
        if (!is_toml() && pipeline_.expert_tensor_devices() > 1) {
            refuse_lack({.key = "pipeline.expert_tensor_parallel",
                         .subject = fmt::format("pipeline.expert_tensor_parallel = {}",
                                                pipeline_.expert_tensor_devices()),
                         .why = "torchtitan has each expert on one device since May 2026",
                         .hint = "set it to 1"});
        }
        if (is_toml() && pipeline_.expert_dispatch == ExpertDispatch::HybridEp) {
            refuse_lack(
                {.key = "pipeline.expert_dispatch",
                 .subject = "pipeline.expert_dispatch = \"hybridep\"",
                 .why = "torchtitan has it since March 2026, when configurations were Python",
                 .hint = "export torchtitan-python, or set it to \"deepep\""});
        }
    }

    void find_numbers() {
        const auto& training = plan_.scenario.training;
        job_.is_all_bf16 = is_all_bf16();
        job_.is_mixed = training.precision == Precision::Bf16 && !job_.is_all_bf16;
        const bool is_sharded = job_.shard > 1 || pipeline_.context_parallel > 1;
        const bool is_plain = !in_pipeline() && pipeline_.tensor_parallel == 1;
        if (job_.is_mixed && !is_sharded && !is_plain) {
            refuse_lack(
                {.key = "training.precision",
                 .subject = "training.precision = \"bf16\" beside weights in fp32",
                 .why = "torchtitan mixes them by FSDP, among replicas that share weights or "
                        "devices that share samples, and there are none",
                 .hint = "set training.gradients = \"same\" and training.optimizer_state_bytes "
                         "= 4, so that all is in bf16"});
        }
        if (!has_narrow_products(plan_.precision)) {
            return;
        }
        if (plan_.precision == "fp8-block" || (plan_.precision == "nvfp4" && is_toml())) {
            refuse_lack({.key = "training.precision",
                         .subject = fmt::format("costs in {}", plan_.precision),
                         .why = is_toml() ? "torchtitan has fp8 and mxfp8"
                                          : "torchtitan has fp8, mxfp8 and nvfp4",
                         .hint = "estimate the costs with --precision fp8"});
        }
        job_.narrow = plan_.precision;
    }

    void find_rest() {
        job_.optimizer =
            plan_.scenario.training.optimizer == OptimizerKind::Adam ? "Adam" : "AdamW";
        job_.recompute = pipeline_.layer_recompute == LayerRecompute::Selective ? "selective"
                         : pipeline_.layer_recompute == LayerRecompute::Block   ? "full"
                                                                                : "none";
        job_.hides_tensor =
            pipeline_.tensor_parallel > 1 && pipeline_.sequence_parallel && plan_.hides_tensor;
        for (const std::string& key : keys_for_people(plan_)) {
            job_.remarks.push_back("not said here: " + key);
        }
    }

    const PlacedPlan& plan_;
    const SettledScenario::PipelinePart& pipeline_;
    TitanVersion version_;
    TitanJob job_;
};

}  // namespace

std::optional<TitanFlavor> titan_flavor(const MegatronFlags& sizes) {
    for (const SizedFlavor& known : sized_flavors) {
        if (sizes.layers == known.layers && sizes.hidden_size == known.hidden &&
            sizes.heads == known.heads && sizes.experts.value_or(0) == known.experts &&
            sizes.feed_forward == known.feed_forward && sizes.gated &&
            sizes.vocabulary == known.vocabulary) {
            return known.name;
        }
    }
    return std::nullopt;
}

TitanRates titan_rates(const PlacedPlan& plan) {
    const auto& training = plan.scenario.training;
    TitanRates rates{.warmup_steps = training.warmup_steps};
    if (training.learning_rate_schedule == RateSchedule::Constant) {
        rates.decay_ratio = 0;
        return rates;
    }
    rates.decay_type = to_string(training.learning_rate_schedule);
    rates.min_lr_factor = training.final_learning_rate / training.learning_rate;
    return rates;
}

TitanJob torchtitan_job(const PlacedPlan& plan, TitanVersion version) {
    return TitanWords(plan, version).find();
}

}  // namespace pipetwin
