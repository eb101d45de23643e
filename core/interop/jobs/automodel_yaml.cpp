// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/costs/devices/number_type.h"
#include "core/interop/jobs/job_text.h"
#include "core/interop/jobs/lacks.h"
#include "core/interop/jobs/torch_schedule.h"
#include "core/scenario/division.h"
#include "core/scenario/shard_group.h"
#include "core/schedule/generators/generate.h"

namespace pipetwin {

namespace {

/// Writes a recipe of NeMo AutoModel (nemo_automodel/components/distributed/config.py and mesh.py,
/// components/distributed/pipelining/config.py, recipes/llm/train_ft.py); one object for each.
class AutoModelRecipe {
  public:
    explicit AutoModelRecipe(const PlacedPlan& plan)
        : plan_(plan), pipeline_(plan.scenario.pipeline), training_(plan.scenario.training) {}

    std::string write() {
        expect_no_lack(lacks_of_every_system(plan_, "AutoModel"));
        expect_training();
        expect_memory();
        expect_shares();
        expect_division();
        find_pipeline();
        write_heading();
        write_steps();
        write_model();
        write_data();
        write_optimizer();
        write_distributed();
        return std::move(text_);
    }

  private:
    bool in_pipeline() const { return pipeline_.stages > 1; }
    bool has_shares() const {
        return pipeline_.data_parallel > 1 || pipeline_.context_parallel > 1;
    }
    /// Replicas that keep everything, by DistributedDataParallel.
    bool is_plain() const { return pipeline_.data_parallel > 1 && pipeline_.shard == Shard::None; }

    static void refuse_key(std::string key,
                           std::string_view value,
                           std::string why,
                           std::string hint) {
        std::string subject = value.empty() ? key : fmt::format("{} = {}", key, value);
        refuse_lack({.key = std::move(key),
                     .subject = std::move(subject),
                     .why = std::move(why),
                     .hint = std::move(hint)});
    }

    static std::string quoted(std::string_view word) { return fmt::format("\"{}\"", word); }

    bool is_all_bf16() const {
        return training_.precision == Precision::Bf16 &&
               training_.gradients == GradientType::Same && training_.optimizer_state_bytes == 4;
    }

    void expect_training() const {
        const OptimizerKind kind = training_.optimizer;
        if (kind != OptimizerKind::AdamW && kind != OptimizerKind::Adam &&
            kind != OptimizerKind::Momentum) {
            refuse_key("training.optimizer",
                       quoted(to_string(kind)),
                       "PyTorch's optimizers here are Adam, AdamW, and SGD with momentum",
                       "set it to \"adamw\"");
        }
        if (training_.weight_decay_of == WeightDecayOf::Weights) {
            refuse_key("training.weight_decay_of",
                       "\"weights\"",
                       "the optimizer of a recipe makes every parameter smaller",
                       "set it to \"all\"");
        }
        if (training_.accumulation == Accumulation::Separate) {
            refuse_key("training.accumulation",
                       "\"separate\"",
                       "AutoModel has no setting for what adds up gradients",
                       "set it to \"fused\"");
        }
        if (training_.expert_capacity > 0) {
            refuse_key("training.expert_capacity",
                       fmt::to_string(training_.expert_capacity),
                       "AutoModel's experts take all rows",
                       "set it to 0");
        }
        if (training_.expert_padding > 1) {
            refuse_key("training.expert_padding",
                       fmt::to_string(training_.expert_padding),
                       "AutoModel's kernels choose how rows of experts are filled up",
                       "set it to 1");
        }
        expect_numbers();
    }

    void expect_numbers() const {
        if (plan_.precision == "fp16" || has_narrow_products(plan_.precision)) {
            refuse_key("training.precision",
                       "",
                       fmt::format("costs in {}: a recipe's distributed settings have products in "
                                   "bf16 and fp32",
                                   plan_.precision),
                       "estimate the costs with --precision bf16");
        }
        if (training_.precision != Precision::Bf16 || is_all_bf16()) {
            return;
        }
        constexpr int adam_in_fp32 = 12;
        if (training_.optimizer_state_bytes.value_or(adam_in_fp32) != adam_in_fp32) {
            refuse_key("training.optimizer_state_bytes",
                       fmt::to_string(*training_.optimizer_state_bytes),
                       "AutoModel keeps all state in fp32, or all weights, gradients and state in "
                       "bf16 (4 bytes)",
                       "set it to 12");
        }
        if (training_.gradients == GradientType::Same) {
            refuse_key("training.gradients",
                       "\"same\"",
                       "AutoModel's weights in fp32 have gradients in fp32",
                       "set it to \"fp32\"");
        }
    }

    void expect_memory() const {
        if (pipeline_.recompute != RecomputeRules(Recompute::None)) {
            refuse_key("pipeline.recompute",
                       quoted(to_string(pipeline_.recompute)),
                       "AutoModel keeps the input of every block, like \"block\"",
                       "set it to \"block\"");
        }
        if (!pipeline_.recompute_modules.empty()) {
            refuse_key("pipeline.recompute_modules",
                       "",
                       "AutoModel computes whole blocks or single operators again, but no modules",
                       "set pipeline.recompute to \"block\" instead");
        }
        if (pipeline_.offload_blocks.value_or(0) > 0) {
            refuse_key("pipeline.offload_blocks",
                       fmt::to_string(pipeline_.offload_blocks.value_or(0)),
                       "AutoModel keeps the activations of blocks on the device",
                       "set it to 0");
        }
        if (!pipeline_.offload_modules.empty()) {
            refuse_key("pipeline.offload_modules",
                       "",
                       "AutoModel keeps the inputs of modules on the device",
                       "set it to []");
        }
        if (pipeline_.layer_recompute != LayerRecompute::Block) {
            return;
        }
        if (pipeline_.recompute_blocks > 1) {
            refuse_key("pipeline.recompute_blocks",
                       fmt::to_string(pipeline_.recompute_blocks),
                       "AutoModel keeps the input of every block",
                       "set it to 1");
        }
        if (pipeline_.recompute_only > 0) {
            refuse_key("pipeline.recompute_only",
                       fmt::to_string(pipeline_.recompute_only),
                       "AutoModel computes all blocks again",
                       "set it to 0");
        }
        if (pipeline_.recompute_early_stop) {
            refuse_key("pipeline.recompute_early_stop",
                       "true",
                       "AutoModel has no setting for it",
                       "set it to false");
        }
    }

    void expect_shares() const {
        if (pipeline_.overlap_reduction || pipeline_.overlap_gather.value_or(false)) {
            refuse_key(pipeline_.overlap_reduction ? "pipeline.overlap_reduction"
                                                   : "pipeline.overlap_gather",
                       "true",
                       "FSDP decides what goes on beside its messages",
                       pipeline_.overlap_reduction ? "set it to false" : "set it to \"auto\"");
        }
        if (!has_shares()) {
            return;
        }
        const bool has_others =
            in_pipeline() || pipeline_.rank_devices() > 1 || pipeline_.expert_parallel > 1;
        const Shard shard = pipeline_.shard;
        const bool is_right = in_pipeline()          ? shard == Shard::Optimizer
                              : shard == Shard::None ? !has_others
                                                     : shard != Shard::Optimizer;
        if (!is_right) {
            refuse_key("pipeline.shard",
                       quoted(to_string(shard)),
                       in_pipeline() ? "in a pipeline AutoModel keeps weights gathered and sums "
                                       "gradients once a step, like \"optimizer\""
                                     : "without a pipeline AutoModel divides weights, or "
                                       "gradients and the optimizer; replicas that keep all (DDP) "
                                       "have no other parallelism",
                       fmt::format("set it to \"{}\"", in_pipeline() ? "optimizer" : "weights"));
        }
        if (shard == Shard::Weights && pipeline_.prefetch != 1) {
            refuse_key("pipeline.prefetch",
                       fmt::to_string(pipeline_.prefetch),
                       "AutoModel gathers one block ahead",
                       "set it to 1");
        }
    }

    void expect_division() const {
        if (pipeline_.context_parallel > 1 &&
            pipeline_.context_method != ContextMethod::AllGather) {
            refuse_key("pipeline.context_method",
                       quoted(to_string(pipeline_.context_method)),
                       "AutoModel gathers keys and values",
                       "set it to \"all-gather\"");
        }
        if (pipeline_.expert_parallel > 1 && pipeline_.expert_tensor_devices() > 1) {
            refuse_key("pipeline.expert_tensor_parallel",
                       fmt::to_string(pipeline_.expert_tensor_devices()),
                       "AutoModel has each expert on one device",
                       "set it to 1");
        }
        if (pipeline_.expert_parallel > 1 && pipeline_.expert_dispatch == ExpertDispatch::Nccl) {
            refuse_key("pipeline.expert_dispatch",
                       "\"nccl\"",
                       "AutoModel sends rows by DeepEP or HybridEP, or gathers all of them",
                       "set it to \"deepep\"");
        }
        if (pipeline_.scatter_boundaries && !pipeline_.sequence_parallel &&
            pipeline_.tensor_parallel > 1 && in_pipeline()) {
            refuse_key("pipeline.scatter_boundaries",
                       "true",
                       "AutoModel has no such setting",
                       "set it to false");
        }
        if (axis_order(plan_.scenario) != pipeline_last && pipeline_.data_parallel > 1 &&
            in_pipeline()) {
            refuse_key("pipeline.order",
                       quoted(to_string(axis_order(plan_.scenario))),
                       "AutoModel numbers all replicas of a stage before the next stage",
                       fmt::format("set it to \"{}\"", to_string(pipeline_last)));
        }
    }

    void find_pipeline() {
        samples_ = samples_of_micro_batch(plan_, "AutoModel");
        schedule_ = torch_schedule(plan_, "AutoModel");
        if (pipeline_.schedule == to_string(ScheduleKind::DualPipeV)) {
            refuse_key("pipeline.schedule",
                       quoted(pipeline_.schedule),
                       "AutoModel puts the stages of DualPipeV on the ranks in a loop",
                       "set it to \"zb-v\"");
        }
        if (in_pipeline() && pipeline_.micro_batches < pipeline_.stages) {
            refuse_key("pipeline.micro_batches",
                       fmt::to_string(pipeline_.micro_batches),
                       "AutoModel refuses fewer micro-batches than ranks",
                       fmt::format("set it to {}", pipeline_.stages));
        }
        blocks_ = stage_blocks(plan_, "AutoModel");
    }

    template <class... Values>
    void line(fmt::format_string<Values...> form, Values&&... values) {
        text_ += fmt::format(form, std::forward<Values>(values)...) + '\n';
    }

    void write_heading() {
        const JobNodes nodes = job_nodes(plan_);
        line("# NeMo AutoModel, a recipe as of August 2026");
        line("# {}", plan_in_words(plan_));
        line("# start it with: torchrun --nnodes {} --nproc-per-node {} ... \\",
             nodes.nodes,
             nodes.per_node);
        line("#     -m nemo_automodel.cli.app THIS_FILE");
        std::vector<std::string> remarks = schedule_.remarks;
        if (pipeline_.layer_recompute == LayerRecompute::Selective) {
            remarks.emplace_back(
                "pipeline.recompute = \"selective\": AutoModel repeats single operators; only "
                "costs "
                "that 'import hf' estimates with FlashAttention describe that");
        }
        for (const std::string& key : keys_for_people(plan_)) {
            remarks.push_back("not said here: " + key);
        }
        text_ += comment_lines(remarks);
        line("\nrecipe: TrainFinetuneRecipeForNextTokenPrediction");
    }

    /// In a pipeline the local batch is that of a step; else that of a pass, and passes are
    /// repeated.
    int local_batch() const {
        return in_pipeline() ? samples_ * pipeline_.micro_batches : samples_;
    }

    void write_steps() {
        line("\nstep_scheduler:\n  global_batch_size: {}\n  local_batch_size: {}",
             training_.batch,
             local_batch());
        line("  max_steps: {}\n  num_epochs: 1\n  ckpt_every_steps: 1000  # FILL IN",
             training_.steps);
        line(
            "\nrng:\n  _target_: nemo_automodel.components.training.rng.StatefulRNG\n  seed: {}\n"
            "  ranked: true",
            training_.seed);
        line("\ndist_env:\n  backend: nccl\n  timeout_minutes: 10");
    }

    void write_model() {
        const bool is_narrow = is_all_bf16();
        line("\nmodel:\n  _target_: nemo_automodel.NeMoAutoModelForCausalLM.from_pretrained");
        line("  # FILL IN a folder or a name on the Hub, of {}",
             model_in_words(plan_, sizes_of_model(plan_)));
        line("  pretrained_model_name_or_path: my/model");
        line("  torch_dtype: {}", is_narrow ? "bfloat16" : "float32");
        if (pipeline_.context_parallel > 1) {
            line("  attn_implementation: sdpa  # with cp_size above 1");
        }
        if (pipeline_.expert_parallel > 1) {
            line(
                "  backend:\n    _target_: nemo_automodel.components.models.common.BackendConfig\n"
                "    dispatcher: {}",
                to_string(pipeline_.expert_dispatch));
        }
        line("\ncheckpoint:\n  enabled: false  # FILL IN checkpoint_dir");
    }

    void write_data() {
        line("\n# FILL IN your data; these are random tokens.");
        line(
            "dataset:\n  _target_: "
            "nemo_automodel.components.datasets.llm.mock_iterable_dataset.MockIterableDataset");
        const std::optional<MegatronFlags> sizes = sizes_of_model(plan_);
        line("  vocab_size: {}\n  seq_len: {}\n  batch_size: {}",
             sizes ? sizes->vocabulary.value_or(1024) : 1024,
             plan_.sequence,
             local_batch());
        line("\ndataloader:\n  _target_: torch.utils.data.DataLoader\n  batch_size: null");
        line("\nloss_fn:\n  _target_: nemo_automodel.components.loss.masked_ce.MaskedCrossEntropy");
    }

    void write_optimizer() {
        const AdamNumbers adam = adam_numbers(plan_);
        const bool is_sgd = training_.optimizer == OptimizerKind::Momentum;
        line("\noptimizer:\n  _target_: torch.optim.{}\n  lr: {}",
             is_sgd                                       ? "SGD"
             : training_.optimizer == OptimizerKind::Adam ? "Adam"
                                                          : "AdamW",
             real_text(training_.learning_rate));
        if (is_sgd) {
            constexpr double usual_momentum = 0.9;
            line("  momentum: {}", real_text(training_.momentum.value_or(usual_momentum)));
        } else {
            line("  betas: [{}, {}]\n  eps: {}",
                 real_text(adam.beta1),
                 real_text(adam.beta2),
                 real_text(adam.epsilon));
        }
        line("  weight_decay: {}", real_text(adam.weight_decay));
        line(
            "\nlr_scheduler:\n  lr_decay_style: {}\n  lr_warmup_steps: {}\n  init_lr: 0.0\n"
            "  min_lr: {}",
            to_string(training_.learning_rate_schedule),
            training_.warmup_steps,
            real_text(training_.learning_rate_schedule == RateSchedule::Constant
                          ? training_.learning_rate
                          : training_.final_learning_rate));
        line("\nclip_grad_norm:\n  max_norm: {}",
             training_.clip_norm > 0 ? real_text(training_.clip_norm)
                                     : ".inf  # gradients stay as they are");
    }

    void write_distributed() {
        line("\ndistributed:\n  strategy: {}", is_plain() ? "ddp" : "fsdp2");
        line("  dp_size: {}", pipeline_.data_parallel);
        if (!is_plain()) {
            write_degrees();
        } else if (training_.precision == Precision::Bf16 && !is_all_bf16()) {
            line("  autocast_dtype: bfloat16");
        }
        const LayerRecompute recompute = pipeline_.layer_recompute;
        line("  activation_checkpointing: {}",
             recompute == LayerRecompute::Block       ? "full"
             : recompute == LayerRecompute::Selective ? "selective"
                                                      : "false");
        if (in_pipeline()) {
            write_stages();
        }
    }

    void write_degrees() {
        const bool shares = has_shares() && pipeline_.shard != Shard::None;
        if (const int group = shares ? group_size(plan_.scenario) : pipeline_.data_parallel;
            group < pipeline_.data_parallel) {
            line("  dp_replicate_size: {}", pipeline_.data_parallel / group);
        }
        line("  tp_size: {}\n  cp_size: {}\n  pp_size: {}\n  ep_size: {}",
             pipeline_.tensor_parallel,
             pipeline_.context_parallel,
             pipeline_.stages,
             pipeline_.expert_parallel);
        line("  sequence_parallel: {}",
             pipeline_.tensor_parallel > 1 && pipeline_.sequence_parallel);
        if (pipeline_.tensor_parallel > 1 && pipeline_.sequence_parallel && plan_.hides_tensor) {
            line("  enable_async_tensor_parallel: true\n  enable_compile: true  # which it needs");
        }
        if (!in_pipeline() && shares) {
            line("  reshard_after_forward: {}", pipeline_.shard == Shard::Weights);
            line("  defer_fsdp_grad_sync: false  # gradients are summed with every micro-batch");
        }
        const std::string_view type =
            training_.precision == Precision::Bf16 ? "bfloat16" : "float32";
        line(
            "  mp_policy:\n    _target_: torch.distributed.fsdp.MixedPrecisionPolicy\n"
            "    param_dtype: {0}\n    reduce_dtype: float32\n    output_dtype: {0}\n"
            "    cast_forward_inputs: true",
            type);
    }

    void write_stages() {
        line("  pipeline:\n    pp_schedule: {}", schedule_.name);
        if (!schedule_.csv.empty()) {
            line("    pp_schedule_csv: \"{}\"", schedule_.csv);
        }
        line("    pp_microbatch_size: {}\n    pp_seq_len: {}", samples_, plan_.sequence);
        line("    scale_grads_in_schedule: false\n    module_fqns_per_model_part:");
        int next = 0;
        for (std::size_t stage = 0; stage < blocks_.size(); ++stage) {
            std::vector<std::string> modules;
            if (stage == 0) {
                modules.emplace_back("model.embed_tokens");
            }
            for (const int end = next + blocks_[stage]; next < end; ++next) {
                modules.push_back(fmt::format("model.layers.{}", next));
            }
            if (stage + 1 == blocks_.size()) {
                modules.emplace_back("model.norm");
                modules.emplace_back("lm_head");
            }
            modules.emplace_back("model.rotary_emb");
            line("      - [{}]", fmt::join(modules, ", "));
        }
    }

    const PlacedPlan& plan_;
    const SettledScenario::PipelinePart& pipeline_;
    const Scenario::TrainingPart& training_;
    int samples_ = 1;  ///< of a micro-batch
    TorchSchedule schedule_;
    std::vector<int> blocks_;  ///< of each stage
    std::string text_;
};

}  // namespace

std::string print_automodel_recipe(const PlacedPlan& plan) {
    return AutoModelRecipe(plan).write();
}

}  // namespace pipetwin
