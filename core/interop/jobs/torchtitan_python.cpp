// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/interop/jobs/job_text.h"
#include "core/interop/jobs/lacks.h"
#include "core/interop/jobs/torchtitan_job.h"
#include "core/interop/torchtitan.h"
#include "core/scenario/scenario_writer.h"

namespace pipetwin {

namespace {

/// Writes a module of Python with torchtitan's configuration; one object for each.
class TitanModule {
  public:
    TitanModule(const PlacedPlan& plan, const TitanJob& job)
        : plan_(plan), job_(job), pipeline_(plan.scenario.pipeline) {}

    std::string write() {
        write_heading();
        write_imports();
        write_stages();
        line("\n\ndef planned() -> Trainer.Config:");
        write_model();
        line("    return Trainer.Config(");
        write_fixed_parts();
        write_optimizer();
        write_training();
        write_parallelism();
        write_memory();
        line("    )");
        return std::move(text_);
    }

  private:
    template <class... Values>
    void line(fmt::format_string<Values...> form, Values&&... values) {
        text_ += fmt::format(form, std::forward<Values>(values)...) + '\n';
    }

    void write_heading() {
        const JobNodes nodes = job_nodes(plan_);
        line("# torchtitan with configurations in Python, as of August 2026");
        line("# {}", plan_in_words(plan_));
        line("# As my_runs.py where Python finds it, start it with:");
        line("#     torchrun --nnodes {} --nproc_per_node {} ... \\", nodes.nodes, nodes.per_node);
        line("#         -m torchtitan.train --module my_runs --config planned");
        text_ += comment_lines(job_.remarks);
        if (!job_.model) {
            line("# FILL IN: torchtitan ships no model of {}.",
                 model_in_words(plan_, sizes_of_model(plan_)));
            line("# Import the model_registry of yours, and name its flavor in planned().");
        }
    }

    void write_imports() {
        line("");
        line(
            "from torchtitan.components.data import ConcatThenSplitPackingConfig, "
            "GrainDataLoader");
        line("from torchtitan.components.loss import ChunkedLossWrapper, CrossEntropyLoss");
        line("from torchtitan.components.optimizer import (");
        line("    LRSchedulersContainer,\n    OptimizersContainer,\n    ParamGroupConfig,\n)");
        if (!job_.narrow.empty()) {
            line("from torchtitan.components.quantization import {}",
                 fmt::join(converters(), ", "));
        }
        line("from torchtitan.config import (");
        line(
            "    CompileConfig,\n    DebugConfig,\n    ParallelismConfig,\n    TrainingConfig,\n)");
        if (job_.recompute != "none") {
            line("from torchtitan.distributed.activation_checkpoint import {}", recompute_class());
        }
        line("from torchtitan.hf_datasets.text_datasets import DATASETS");
        line("from torchtitan.models.common.config_utils import decoder_vocab_size");
        line("from torchtitan.models.{} import model_registry{}",
             job_.model ? job_.model->model : "my_model",
             job_.model ? "" : "  # FILL IN");
        line("from torchtitan.trainer import Trainer");
    }

    std::string_view recompute_class() const {
        return job_.recompute == "full" ? "FullAC" : "SelectiveAC";
    }

    /// Classes that make products narrower: those of linear layers, and of experts.
    std::vector<std::string_view> converters() const {
        if (job_.narrow == "nvfp4") {
            return {"NVFP4LinearConverter"};
        }
        const bool is_mx = job_.narrow == "mxfp8";
        std::vector<std::string_view> classes{is_mx ? "MXFP8LinearConverter"
                                                    : "Float8LinearConverter"};
        if (job_.has_experts) {
            classes.insert(
                classes.begin(),
                is_mx ? "MXFP8GroupedExpertsConverter" : "Float8GroupedExpertsConverter");
        }
        return classes;
    }

    /// Which layers a converter takes: those of blocks, without router and head.
    std::string layers_of(std::string_view converter) const {
        if (converter == "Float8LinearConverter") {
            return job_.has_experts ? "filter_fqns=[\"lm_head\", \"router.gate\"], "
                                    : "filter_fqns=[\"lm_head\"], ";
        }
        if (converter == "MXFP8GroupedExpertsConverter") {
            return "pad_multiple=128, ";  // as its kernels on Blackwell need it
        }
        return converter.ends_with("LinearConverter")
                   ? "fqns=[\"attention\", \"shared_experts\", \"feed_forward\"], "
                   : "";
    }

    void write_stages() {
        if (!job_.modules.empty()) {
            line(
                "\n# The modules of every stage; stage s is on rank s mod {} unless the schedule "
                "says otherwise.",
                pipeline_.stages);
            std::string modules = print_torchtitan_modules(job_.modules);
            for (std::size_t at = 0; (at = modules.find("\n  [", at)) != std::string::npos; ++at) {
                modules.insert(at + 1, "  ");
            }
            modules.insert(modules.size() - 3, ",");  // Python's formatters want it
            text_ += "MODULES = " + modules;
        }
    }

    void write_model() {
        std::vector<std::string> arguments{
            fmt::format("\"{}\"", job_.model ? job_.model->flavor : "my_flavor")};
        if (pipeline_.expert_parallel > 1) {
            const bool is_plain = pipeline_.expert_dispatch == ExpertDispatch::Nccl;
            arguments.push_back(fmt::format(
                "moe_comm_backend=\"{}\"",
                is_plain ? std::string_view("standard") : to_string(pipeline_.expert_dispatch)));
        }
        if (job_.narrow.empty()) {
            line("    model_spec = model_registry({}){}",
                 fmt::join(arguments, ", "),
                 job_.model ? "" : "  # FILL IN");
            return;
        }
        line("    model_spec = model_registry(\n        {},", fmt::join(arguments, ",\n        "));
        line("        converters=[");
        for (const std::string_view converter : converters()) {
            line("            {}.Config({}model_compile_enabled=True),",
                 converter,
                 layers_of(converter));
        }
        line("        ],\n    )");
    }

    void write_fixed_parts() {
        line("        model_spec=model_spec,");
        line("        hf_assets_path=\"./assets/hf/{}\",{}",
             job_.model ? job_.model->assets : "my_model",
             job_.model ? "  # scripts/download_hf_assets.py fills it" : "  # FILL IN");
        line("        loss=ChunkedLossWrapper.Config(");
        line("            loss_fn=CrossEntropyLoss.Config(");
        line("                global_vocab_size=decoder_vocab_size(model_spec),");
        line("            ),\n        ),");
        line("        dataloader=GrainDataLoader.Config(  # FILL IN: c4, or your data");
        line("            dataset=ConcatThenSplitPackingConfig(dataset=DATASETS[\"c4\"]),");
        line("        ),");
    }

    void write_optimizer() {
        const AdamNumbers adam = adam_numbers(plan_);
        line("        optimizer=OptimizersContainer.Config(\n            param_groups=[");
        line("                ParamGroupConfig(\n                    pattern=r\".*\",");
        line("                    optimizer_name=\"{}\",", job_.optimizer);
        line("                    optimizer_kwargs={{");
        line("                        \"lr\": {},",
             real_text(plan_.scenario.training.learning_rate));
        line("                        \"betas\": ({}, {}),",
             real_text(adam.beta1),
             real_text(adam.beta2));
        line("                        \"eps\": {},", real_text(adam.epsilon));
        line("                        \"weight_decay\": {},", real_text(adam.weight_decay));
        line("                    }},\n                ),\n            ],\n        ),");
        const TitanRates rates = titan_rates(plan_);
        line("        lr_scheduler=LRSchedulersContainer.Config(");
        line("            warmup_steps={},", rates.warmup_steps);
        if (rates.decay_ratio) {
            line("            decay_ratio={},  # constant after the warm-up",
                 real_text(*rates.decay_ratio));
        } else {
            line("            decay_type=\"{}\",", rates.decay_type);
            line("            min_lr_factor={},", real_text(rates.min_lr_factor));
        }
        line("        ),");
    }

    void write_training() {
        const auto& training = plan_.scenario.training;
        line("        training=TrainingConfig(");
        line("            num_tokens_per_microbatch_per_dp_rank={} * {},",
             job_.samples,
             plan_.sequence);
        line("            num_tokens_per_train_step={} * {},", training.batch, plan_.sequence);
        line("            max_context_length={},", plan_.sequence);
        line("            steps={},", training.steps);
        if (training.clip_norm > 0) {
            line("            max_norm={},", real_text(training.clip_norm));
        } else {
            line("            max_norm=float(\"inf\"),  # gradients stay as they are");
        }
        line("            dtype=\"{}\",", job_.is_all_bf16 ? "bfloat16" : "float32");
        line("            mixed_precision_param=\"{}\",",
             job_.is_all_bf16 || job_.is_mixed ? "bfloat16" : "float32");
        if (!job_.schedule.empty() || pipeline_.expert_parallel > 1) {
            line("            disable_cuda_graphs=True,  # torchtitan refuses them here");
        }
        line("        ),");
    }

    void write_parallelism() {
        line("        parallelism=ParallelismConfig(");
        line("            data_parallel_replicate_degree={},", job_.replicate);
        line("            data_parallel_shard_degree={},", job_.shard);
        line("            fsdp_reshard_after_forward=\"{}\",", job_.reshard);
        line("            tensor_parallel_degree={},", pipeline_.tensor_parallel);
        if (pipeline_.tensor_parallel > 1) {
            line("            enable_sequence_parallel={},",
                 pipeline_.sequence_parallel ? "True" : "False");
        }
        line("            context_parallel_degree={},", pipeline_.context_parallel);
        line("            expert_parallel_degree={},", pipeline_.expert_parallel);
        line("            pipeline_parallel_degree={},", pipeline_.stages);
        if (!job_.schedule.empty()) {
            line("            pipeline_parallel_schedule=\"{}\",", job_.schedule);
            if (!job_.csv.empty()) {
                line("            pipeline_parallel_schedule_csv={},", toml_string(job_.csv));
            }
            line("            num_pp_microbatches={},", pipeline_.micro_batches);
            line("            module_fqns_per_model_part=MODULES,");
        }
        line("        ),");
    }

    void write_memory() {
        if (job_.recompute == "none") {
            line("        activation_checkpoint=None,");
        } else {
            line("        activation_checkpoint={}.Config(),", recompute_class());
        }
        line("        # The costs of torchtitan's stacks are of compiled kernels.");
        line("        compile=CompileConfig(enable=True{}),",
             job_.hides_tensor ? ", enable_async_tensor_parallel=True" : "");
        line("        debug=DebugConfig(seed={}),", plan_.scenario.training.seed);
    }

    const PlacedPlan& plan_;
    const TitanJob& job_;
    const SettledScenario::PipelinePart& pipeline_;
    std::string text_;
};

}  // namespace

std::string print_torchtitan_python(const PlacedPlan& plan) {
    const TitanJob job = torchtitan_job(plan, TitanVersion::Python);
    if (job.narrow == "nvfp4" && job.has_experts) {
        refuse_lack({.key = "training.precision",
                     .subject = "costs in nvfp4",
                     .why = "torchtitan has no products of experts in nvfp4",
                     .hint = "estimate the costs with --precision mxfp8"});
    }
    return TitanModule(plan, job).write();
}

}  // namespace pipetwin
