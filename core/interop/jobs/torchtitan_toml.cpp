// SPDX-License-Identifier: Apache-2.0
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/base/number_text.h"
#include "core/interop/jobs/job_text.h"
#include "core/interop/jobs/torchtitan_job.h"
#include "core/interop/torchtitan.h"
#include "core/scenario/scenario_writer.h"

namespace pipetwin {

namespace {

/// Writes the tables of torchtitan's configuration; one object for each file.
class TitanTables {
  public:
    TitanTables(const PlacedPlan& plan, const TitanJob& job)
        : plan_(plan), job_(job), pipeline_(plan.scenario.pipeline) {}

    std::string write() {
        write_heading();
        write_model();
        write_optimizer();
        write_training();
        write_parallelism();
        write_memory();
        return std::move(text_);
    }

  private:
    template <class... Values>
    void line(fmt::format_string<Values...> form, Values&&... values) {
        text_ += fmt::format(form, std::forward<Values>(values)...) + '\n';
    }

    void write_heading() {
        const JobNodes nodes = job_nodes(plan_);
        line("# torchtitan with TOML files, summer 2025 to February 2026");
        line("# {}", plan_in_words(plan_));
        line("# start it with: torchrun --nnodes {} --nproc_per_node {} ... \\",
             nodes.nodes,
             nodes.per_node);
        line("#     -m torchtitan.train --job.config_file THIS_FILE");
        text_ += comment_lines(job_.remarks);
        line("\n[job]\ndump_folder = \"./outputs\"");
        line("description = {}", toml_string(plan_in_words(plan_)));
    }

    void write_model() {
        line("\n[model]");
        if (job_.model) {
            line("name = \"{}\"\nflavor = \"{}\"", job_.model->model, job_.model->flavor);
            line("hf_assets_path = \"./assets/hf/{}\"  # scripts/download_hf_assets.py fills it",
                 job_.model->assets);
        } else {
            line("# FILL IN: torchtitan ships no model of {}.", words_of_model());
            line("# Add a flavor to one of torchtitan/models/*/__init__.py, and name both here.");
            line("name = \"my_model\"\nflavor = \"my_flavor\"");
            line("hf_assets_path = \"./assets/hf/my_model\"  # FILL IN: the tokenizer");
        }
        if (!job_.narrow.empty()) {
            const std::string_view kind = job_.narrow == "mxfp8" ? "mx" : "float8";
            line("converters = [\"quantize.linear.{0}\"{1}]",
                 kind,
                 job_.has_experts ? fmt::format(", \"quantize.grouped_mm.{}\"", kind) : "");
        }
    }

    std::string words_of_model() const { return model_in_words(plan_, sizes_of_model(plan_)); }

    void write_optimizer() {
        const AdamNumbers adam = adam_numbers(plan_);
        line("\n[optimizer]\nname = \"{}\"\nlr = {}",
             job_.optimizer,
             real_text(plan_.scenario.training.learning_rate));
        line("beta1 = {}\nbeta2 = {}", real_text(adam.beta1), real_text(adam.beta2));
        line("eps = {}\nweight_decay = {}", real_text(adam.epsilon), real_text(adam.weight_decay));
        const TitanRates rates = titan_rates(plan_);
        line("\n[lr_scheduler]\nwarmup_steps = {}", rates.warmup_steps);
        if (rates.decay_ratio) {
            line("decay_ratio = {}  # constant after the warm-up", real_text(*rates.decay_ratio));
        } else {
            line("decay_type = \"{}\"\nmin_lr_factor = {}",
                 rates.decay_type,
                 real_text(rates.min_lr_factor));
        }
    }

    void write_training() {
        const auto& training = plan_.scenario.training;
        line("\n[training]");
        if (job_.schedule.empty()) {
            line("local_batch_size = {}\nglobal_batch_size = {}", job_.samples, training.batch);
        } else {
            line("local_batch_size = {}  # {} of {}",
                 job_.samples * pipeline_.micro_batches,
                 counted(pipeline_.micro_batches, "micro-batch"),
                 counted(job_.samples, "sample"));
        }
        line("seq_len = {}\nsteps = {}", plan_.sequence, training.steps);
        if (training.clip_norm > 0) {
            line("max_norm = {}", real_text(training.clip_norm));
        } else {
            line(
                "max_norm = inf  # torchtitan computes the norm, and leaves gradients as they are");
        }
        line("dataset = \"c4\"  # FILL IN: one of torchtitan's, or yours with dataset_path");
        line("dtype = \"{}\"", job_.is_all_bf16 ? "bfloat16" : "float32");
        line("mixed_precision_param = \"{}\"",
             job_.is_all_bf16 || job_.is_mixed ? "bfloat16" : "float32");
        line("mixed_precision_reduce = \"float32\"");
    }

    void write_parallelism() {
        line("\n[parallelism]");
        line("data_parallel_replicate_degree = {}", job_.replicate);
        line("data_parallel_shard_degree = {}", job_.shard);
        line("fsdp_reshard_after_forward = \"{}\"", job_.reshard);
        line("tensor_parallel_degree = {}", pipeline_.tensor_parallel);
        if (job_.hides_tensor) {
            line("enable_async_tensor_parallel = true");
        }
        line("context_parallel_degree = {}", pipeline_.context_parallel);
        if (!job_.rotate.empty()) {
            line("context_parallel_rotate_method = \"{}\"", job_.rotate);
        }
        if (pipeline_.expert_parallel > 1) {
            line("expert_parallel_degree = {}", pipeline_.expert_parallel);
            line("expert_tensor_parallel_degree = {}", pipeline_.expert_tensor_devices());
            line("expert_parallel_comm_backend = \"{}\"",
                 pipeline_.expert_dispatch == ExpertDispatch::DeepEp ? "deepep" : "standard");
        }
        line("pipeline_parallel_degree = {}", pipeline_.stages);
        if (job_.schedule.empty()) {
            return;
        }
        line("pipeline_parallel_schedule = \"{}\"", job_.schedule);
        if (!job_.csv.empty()) {
            line("pipeline_parallel_schedule_csv = {}", toml_string(job_.csv));
        }
        line("pipeline_parallel_microbatch_size = {}", job_.samples);
        text_ += "module_fqns_per_model_part = " + print_torchtitan_modules(job_.modules);
    }

    void write_memory() {
        line("\n[activation_checkpoint]\nmode = \"{}\"", job_.recompute);
        if (job_.recompute == "selective") {
            line("selective_ac_option = \"op\"");
        }
        line(
            "\n[compile]\nenable = true  # the costs of torchtitan's stacks are of compiled "
            "kernels");
        line("\n[debug]\nseed = {}", plan_.scenario.training.seed);
        line("\n[checkpoint]\nenable = false  # FILL IN: folder and interval");
    }

    const PlacedPlan& plan_;
    const TitanJob& job_;
    const SettledScenario::PipelinePart& pipeline_;
    std::string text_;
};

}  // namespace

std::string print_torchtitan_toml(const PlacedPlan& plan) {
    const TitanJob job = torchtitan_job(plan, TitanVersion::Toml);
    return TitanTables(plan, job).write();
}

}  // namespace pipetwin
