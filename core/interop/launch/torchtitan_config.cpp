// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>

#include <fmt/format.h>

#include "core/base/error.h"
#include "core/base/number_text.h"
#include "core/base/word_list.h"
#include "core/costs/layer_division.h"
#include "core/interop/launch/torchtitan_settings.h"
#include "core/interop/launch/torchtitan_stages.h"
#include "core/interop/launch/training_run.h"
#include "core/schedule/generators/generate.h"
#include "core/schedule/generators/schedule_traits.h"

namespace pipetwin {

namespace {

constexpr std::int64_t most_stages = 1 << 18;
constexpr std::int64_t most_samples = 1 << 30;

/// Reads a file of torchtitan; one object for each.
class TitanReader {
  public:
    TitanReader(const LaunchFile& file, LeaveOut leave_out)
        : reader_(file), leave_out_(leave_out), all_devices_(file.all_processes) {}

    TrainingRun read() {
        read_model();
        read_schedule();
        read_batch();
        read_rest();
        expect_plain_run();
        reader_.finish(harmless_titan, leave_out_, run_);
        return std::move(run_);
    }

  private:
    /// A key of the split, as the file has it: in [parallelism], or, in versions until spring 2025,
    /// in [experimental] or [training], where the degrees had older names, too.
    std::string split_key(std::string_view name) const {
        const std::string today = fmt::format("parallelism.{}", name);
        std::vector<std::string> places{
            today, fmt::format("experimental.{}", name), fmt::format("training.{}", name)};
        if (name == "data_parallel_shard_degree") {
            places.emplace_back("training.data_parallel_degree");
        } else if (name == "tensor_parallel_degree") {
            places.emplace_back("training.sequence_parallel_degree");
        }
        std::erase_if(places, [this](const std::string& key) { return !reader_.has(key); });
        if (places.size() > 1) {
            throw Error(
                ErrorKind::BadInput,
                reader_.place(places[1]),
                fmt::format(
                    "{} beside {}, which is its name in another version", places[1], places[0]),
                "keep the one of your version");
        }
        return places.empty() ? today : places.front();
    }

    /// Whether the file is one of a version until spring 2025.
    bool is_old() const {
        return split_key("pipeline_parallel_degree") != "parallelism.pipeline_parallel_degree";
    }

    /// A degree of parallelism; 1 where it is less, or not given.
    int degree(std::string_view name) {
        return std::max(1, reader_.whole(split_key(name), -1).value_or(1));
    }

    /// How devices divide samples and experts (torchtitan/distributed/parallel_dims.py).
    void read_division() {
        const std::string method =
            reader_.word(split_key("context_parallel_rotate_method"), "allgather alltoall")
                .value_or("allgather");
        const std::string backend = reader_
                                        .word(split_key("expert_parallel_comm_backend"),
                                              "standard deepep hybridep minimal_async_ep")
                                        .value_or("standard");
        const int expert = degree("expert_parallel_degree");
        const int tensor = degree("expert_tensor_parallel_degree");
        if (context_ > 1) {
            run_.context_parallel = context_;
            // With alltoall keys and values go from one device to the next, step by step.
            run_.context_method =
                to_string(method == "allgather" ? ContextMethod::AllGather : ContextMethod::Ring);
        }
        if (expert == 1) {
            return;  // experts are divided as all other layers are
        }
        run_.expert_parallel = expert;
        run_.expert_tensor_parallel = tensor;
        if (backend == "deepep" || backend == "hybridep") {
            run_.expert_dispatch = backend;
        }
        if (tensor != 1 && tensor != *run_.tensor_parallel) {
            reader_.infeasible(
                split_key("expert_tensor_parallel_degree"),
                fmt::format("{} devices share an expert, expected 1 or the {} of a layer",
                            tensor,
                            *run_.tensor_parallel),
                "torchtitan refuses this, too");
        }
        const std::int64_t stage = std::int64_t{shard_} * context_ * *run_.tensor_parallel;
        if (shard_ > 0 && stage % (std::int64_t{expert} * tensor) != 0) {
            reader_.infeasible(
                split_key("expert_parallel_degree"),
                fmt::format("{} that shard weights cannot be shared out to groups of {} x {} "
                            "devices: expert x expert tensor parallelism",
                            counted(stage, "device"),
                            expert,
                            tensor),
                "torchtitan refuses this, too");
        }
    }

    /// Python files that may change everything, and kernels that take longer.
    void warn_of_code() {
        for (const std::string_view key : {"experimental.custom_import",
                                           "experimental.custom_args_module",
                                           "experimental.custom_model_path",
                                           "job.custom_config_module"}) {
            const std::string module = reader_.text(key).value_or("");
            const bool is_known =
                module == "torchtitan.config_manager" ||
                module == "primus.backends.torchtitan.primus_turbo_extensions.config_extension";
            if (!module.empty() && !is_known) {
                run_.warnings.push_back(
                    fmt::format("{} = {}: Python code that is not read, which may change the model",
                                key,
                                module));
            }
        }
        if (reader_.answer("debug.deterministic").value_or(false) ||
            reader_.answer("training.deterministic").value_or(false)) {
            run_.warnings.emplace_back(
                "debug.deterministic: deterministic kernels may take longer than predicted");
        }
        const std::string balancer =
            reader_.text(split_key("context_parallel_load_balancer")).value_or("headtail");
        if (context_ > 1 && balancer != "headtail" && balancer != "ptrr") {
            run_.warnings.emplace_back(
                "parallelism.context_parallel_load_balancer is off: the prediction has equally "
                "much attention on all devices of a sample; the run has most on the last");
        }
        const bool overlaps =
            reader_.answer(split_key("pipeline_parallel_expert_parallel_overlap")).value_or(true);
        if (overlaps && *run_.stages > 1 && run_.expert_parallel.value_or(1) > 1 &&
            run_.schedule == to_string(ScheduleKind::DualPipeV)) {
            run_.warnings.emplace_back(
                "parallelism.pipeline_parallel_expert_parallel_overlap: the prediction has "
                "messages of experts before their work; beside another micro-batch a step is at "
                "most as long");
        }
    }

    /// What sets the run apart from a plain training.
    void expect_plain_run() {
        reader_.refuse(refused_titan);
        if (has_turbo_experts() && run_.narrow.empty()) {
            run_.narrow = "fp8";
            run_.not_narrow = "linear layers";
        } else if (has_turbo_experts() && run_.narrow != "fp8") {
            reader_.problem("primus_turbo.use_moe_fp8",
                            "products of experts have other 8 bits than those of linear layers");
        }
        warn_of_code();
        run_.sequence = reader_.whole("training.seq_len", 1).value_or(2048);
        run_.balances_experts =
            reader_.answer("debug.moe_force_load_balance").value_or(false) ||
            reader_.answer("training.debug_moe_force_load_balance").value_or(false);
        const std::string norm = reader_.text("model.norm_type").value_or("rmsnorm");
        if (norm.find("rmsnorm") == std::string::npos) {
            run_.warnings.push_back(
                fmt::format("model.norm_type = {}: the model that you write has to have it", norm));
        }
        if (reader_.answer("optimizer.early_step_in_backward").value_or(false)) {
            run_.warnings.emplace_back(
                "optimizer.early_step_in_backward: the prediction updates behind the backward and "
                "keeps all gradients until then; the run needs less memory");
        }
        const bool has_whole_logits =
            reader_.answer(split_key("disable_loss_parallel")).value_or(false) ||
            !reader_.answer("training.enable_loss_parallel").value_or(true);
        if (has_whole_logits && *run_.tensor_parallel > 1) {
            run_.warnings.emplace_back(
                "the loss is not parallel: each device of tensor parallelism has all logits, and "
                "the prediction has its share of them; the last stage needs more time and memory");
        }
    }

    void read_model() {
        const std::string name = reader_.text("model.name").value_or("");
        const std::string flavor = reader_.text("model.flavor").value_or("");
        model_ = titan_model(name, flavor);
        // Primus makes a model of so many layers of it (primus/backends/torchtitan/patches).
        if (const std::optional<int> blocks = reader_.whole("model.n_layers", 1, 49'999);
            blocks && blocks != model_.blocks) {
            model_.name += fmt::format(" of {}", counted(*blocks, "layer"));
            model_.blocks = blocks;
            model_.shipped.clear();
        }
        run_.model = model_.name;
        run_.shipped_model = model_.shipped;
        read_converters();
    }

    /// Modules whose products are in fewer bits: those of linear layers, and of experts.
    void read_converters() {
        const std::vector<std::string> none;
        bool has_linear = false;
        bool has_experts = false;
        for (const std::string& word : reader_.texts("model.converters").value_or(none)) {
            if (word.empty() || word == "primus_turbo") {  // kernels of AMD's
                continue;
            }
            const bool is_mx = word == "mx" || word.ends_with(".mx");
            const bool is_fp8 = word == "float8" || word.ends_with(".float8");
            const std::string type = is_mx ? "mxfp8" : "fp8";
            if ((!is_mx && !is_fp8) || (!run_.narrow.empty() && run_.narrow != type)) {
                reader_.problem("model.converters", "it changes layers in a way that is not known");
                return;
            }
            run_.narrow = type;
            has_experts = has_experts || word.find("grouped_mm") != std::string::npos;
            has_linear = has_linear || word.find("grouped_mm") == std::string::npos;
        }
        has_experts = has_experts || (run_.narrow == "fp8" && has_turbo_experts());
        if (!run_.narrow.empty() && (!has_linear || (!is_dense() && !has_experts))) {
            run_.not_narrow = has_linear ? "experts" : "linear layers";
        }
        for (const std::string_view gathers :
             {"float8.enable_fsdp_float8_all_gather",
              "quantize.linear.float8.enable_fsdp_float8_all_gather"}) {
            if (!run_.narrow.empty() && reader_.answer(gathers).value_or(false)) {
                run_.warnings.push_back(fmt::format(
                    "{}: the prediction gathers weights in two bytes; the run sends half as much",
                    gathers));
            }
        }
    }

    /// Whether AMD's kernels compute experts in 8 bits
    /// (primus/backends/torchtitan/patches/turbo/moe_grouped_mm_patches.py).
    bool has_turbo_experts() {
        const bool has_kernels =
            reader_.answer("primus_turbo.enable_primus_turbo").value_or(false) &&
            reader_.answer("primus_turbo.use_turbo_grouped_mm").value_or(false);
        return reader_.answer("primus_turbo.use_moe_fp8").value_or(false) && has_kernels &&
               !is_dense();
    }

    /// Whether the model is known to have no experts.
    bool is_dense() const {
        return model_.name.starts_with("llama3") ||
               (model_.name.starts_with("qwen3") && model_.blocks);
    }

    void read_schedule() {
        run_.stages = reader_.whole(split_key("pipeline_parallel_degree"), 1).value_or(1);
        std::optional<std::string> name = reader_.text(split_key("pipeline_parallel_schedule"));
        if (name == "interleaved_1f1b") {  // of 2024
            name = to_string(ScheduleKind::Interleaved1F1B);
        }
        const std::string csv =
            reader_.text(split_key("pipeline_parallel_schedule_csv")).value_or("");
        if (!csv.empty()) {
            run_.schedule = csv;
            run_.warnings.push_back(fmt::format(
                "the schedule is the file '{}': its path is relative to the scenario", csv));
        } else {
            try {
                run_.schedule = to_string(name ? schedule_kind(*name) : ScheduleKind::OneFOneB);
            } catch (const Error& error) {
                throw error.at(reader_.place(split_key("pipeline_parallel_schedule")));
            }
        }
        if (*run_.stages == 1 && csv.empty()) {  // without a pipeline torchtitan has no schedule
            run_.schedule = to_string(ScheduleKind::OneFOneB);
        }
        const bool is_multi =
            csv.empty() && schedule_traits(run_.schedule).chunks != ChunkCounts::One;
        read_split(is_multi);
    }

    /// Stages of a schedule with one per rank, or with two where nothing says more.
    void read_split(bool is_multi) {
        const auto place_of = [this](std::string_view name) {
            return reader_.place(split_key(name));
        };
        const std::vector<std::string> none;
        const std::vector<std::string> modules =
            reader_.texts(split_key("module_fqns_per_model_part")).value_or(none);
        const std::vector<int> points = titan_split_points(
            reader_.texts(split_key("pipeline_parallel_split_points")).value_or(none),
            model_,
            place_of("pipeline_parallel_split_points"));
        const std::optional<int> per_stage =
            reader_.whole(split_key("pipeline_parallel_layers_per_stage"), 1);
        const int less_first =
            reader_.whole(split_key("pipeline_parallel_first_stage_less_layers"), 0).value_or(1);
        const int less_last =
            reader_.whole(split_key("pipeline_parallel_last_stage_less_layers"), 0).value_or(1);
        const int ranks = *run_.stages;
        std::int64_t stages = std::int64_t{ranks} * (is_multi ? 2 : 1);
        if (!modules.empty()) {
            run_.blocks =
                titan_blocks_of_modules(modules, model_, place_of("module_fqns_per_model_part"));
            stages = static_cast<std::int64_t>(run_.blocks.size());
        } else if (!points.empty()) {
            stages = static_cast<std::int64_t>(points.size()) + 1;
            run_.blocks = titan_blocks_between(points, model_);
        } else if (per_stage && model_.blocks) {
            const std::int64_t all = std::int64_t{*model_.blocks} + less_first + less_last;
            stages = (all + *per_stage - 1) / *per_stage;
        }
        if (stages > most_stages) {
            reader_.infeasible(split_key("pipeline_parallel_degree"),
                               fmt::format("{} stages, expected at most {}", stages, most_stages),
                               "is there a digit too many?");
        }
        if (stages % ranks != 0) {
            reader_.infeasible(split_key("pipeline_parallel_degree"),
                               fmt::format("{} cannot be shared out to {}",
                                           counted(stages, "stage"),
                                           counted(ranks, "rank")),
                               "torchtitan refuses this, too");
        }
        run_.chunks = static_cast<int>(stages / ranks);
        const std::string place = place_of("pipeline_parallel_degree");
        if (run_.blocks.empty() && model_.blocks) {
            run_.blocks =
                is_old()
                    ? titan_blocks_before_2025(*model_.blocks, static_cast<int>(stages), place)
                    : titan_blocks(
                          *model_.blocks, static_cast<int>(stages), less_first, less_last, place);
        }
        if (!model_.blocks && run_.blocks.empty()) {
            run_.warnings.push_back(
                fmt::format("the number of layers of '{}' is not known here: the fragment has no "
                            "partition",
                            run_.model));
        }
    }

    void read_batch() {
        const std::optional<int> local = reader_.whole("training.local_batch_size", 1);
        const std::optional<int> older = reader_.whole("training.batch_size", 1);
        const int samples = local ? *local : older.value_or(8);
        const int replicas = read_replicas();
        run_.data_parallel = replicas;
        const std::int64_t pass = std::int64_t{samples} * replicas;
        if (pass > most_samples) {
            reader_.infeasible(
                split_key("data_parallel_replicate_degree"),
                fmt::format("{} samples of {} replicas are a batch of {}, expected at most {}",
                            samples,
                            replicas,
                            pass,
                            most_samples),
                "is there a digit too many?");
        }
        run_.batch = static_cast<int>(pass);
        const int global = reader_.whole("training.global_batch_size", -1).value_or(-1);
        const std::optional<int> size =
            reader_.whole(split_key("pipeline_parallel_microbatch_size"), 1);
        const std::string count_key = split_key("pipeline_parallel_microbatches");
        const std::optional<int> count = reader_.whole(count_key, 1);
        if (*run_.stages == 1) {
            read_passes(global);
            return;
        }
        warn_of_open_degree("multiply training.batch");
        if (global > 0 && global != *run_.batch) {
            reader_.problem(
                "training.global_batch_size",
                fmt::format("is not the {} of one pass through the pipeline: passes are "
                            "repeated before an update",
                            counted(*run_.batch, "sample")));
        }
        if (count && size) {
            reader_.infeasible(
                count_key,
                fmt::format("{} beside pipeline_parallel_microbatch_size", count_key),
                "no version of torchtitan has both: keep the one of yours");
        }
        run_.micro_batches = count || (is_old() && !size) ? old_micro_batches(samples, count)
                                                          : samples / size.value_or(1);
        const int parts = *run_.micro_batches;
        if (parts == 0 || samples % parts != 0 || samples % size.value_or(1) != 0) {
            reader_.infeasible(split_key(size ? "pipeline_parallel_microbatch_size"
                                              : "pipeline_parallel_microbatches"),
                               size ? fmt::format("{} cannot be cut into micro-batches of {}",
                                                  counted(samples, "sample"),
                                                  *size)
                                    : fmt::format("{} cannot be cut into {}",
                                                  counted(samples, "sample"),
                                                  counted(parts, "micro-batch")),
                               "torchtitan refuses this, too");
        }
    }

    /// Micro-batches of a version until spring 2025, which had a key for their number.
    int old_micro_batches(int samples, std::optional<int> count) {
        if (count) {
            return *count;
        }
        const int stages = *run_.stages * run_.chunks;
        run_.warnings.push_back(fmt::format(
            "no pipeline_parallel_microbatches: {} of {}, as many as stages, which was the default "
            "until spring 2025",
            counted(stages, "micro-batch"),
            counted(samples / std::max(1, stages), "sample")));
        return stages;
    }

    /// Without a pipeline a pass has the whole local batch, and passes are repeated until the
    /// global batch has been read.
    void read_passes(int global) {
        run_.micro_batches = 1;
        if (global <= 0) {
            warn_of_open_degree("multiply training.batch");
            return;
        }
        if (global % *run_.batch != 0) {
            reader_.infeasible("training.global_batch_size",
                               fmt::format("{} {} no multiple of the {} of a pass",
                                           counted(global, "sample"),
                                           verb_for(global, "is", "are"),
                                           *run_.batch),
                               "torchtitan refuses this, too");
        }
        run_.micro_batches = global / *run_.batch;
        run_.batch = global;
        warn_of_open_degree("divide pipeline.micro_batches");
    }

    /// Devices that share weights; -1: those that are left, and nothing says how many.
    int shard_degree(int replicate) {
        const std::string key = split_key("data_parallel_shard_degree");
        const int written = reader_.whole(key, -1).value_or(-1);
        if (written == 0) {
            reader_.infeasible(key,
                               "0 devices share weights, expected -1 or at least 1",
                               "torchtitan refuses this, too");
        }
        if (written != -1 || !all_devices_) {
            return written;
        }
        const std::int64_t of_other_degrees = std::int64_t{replicate} * *run_.stages *
                                              degree("tensor_parallel_degree") *
                                              degree("context_parallel_degree");
        if (*all_devices_ % of_other_degrees != 0) {
            reader_.infeasible(key,
                               fmt::format("{} cannot be shared out to the {} of the other degrees",
                                           counted(*all_devices_, "device"),
                                           of_other_degrees),
                               "torchtitan refuses this, too");
        }
        return static_cast<int>(*all_devices_ / of_other_degrees);
    }

    /// Replicas of the pipeline, and what they share (torchtitan/distributed/fsdp.py).
    int read_replicas() {
        const int replicate =
            reader_.whole(split_key("data_parallel_replicate_degree"), 1).value_or(1);
        const int shard = shard_degree(replicate);
        shard_ = shard;
        context_ = degree("context_parallel_degree");
        is_sharded_ = shard != 1 || context_ > 1;
        const std::string policy =
            reader_.word(split_key("fsdp_reshard_after_forward"), "default always never")
                .value_or("default");
        if (shard == 1) {
            read_shares_of_parts(replicate, policy);
            return replicate;
        }
        if (replicate > 1 && shard > 1) {
            read_shares(policy);
            run_.shard_group = shard;
            const std::int64_t replicas = std::int64_t{replicate} * shard;
            if (replicas > most_samples) {
                reader_.infeasible(
                    split_key("data_parallel_replicate_degree"),
                    fmt::format("{} groups of {} replicas, expected at most {} replicas",
                                replicate,
                                shard,
                                most_samples),
                    "is there a digit too many?");
            }
            return static_cast<int>(replicas);
        }
        if (replicate > 1) {
            run_.warnings.push_back(fmt::format(
                "data_parallel_shard_degree = -1: devices that are left share the weights of each "
                "of the {} replicas (HSDP); the fragment has replicas that keep all of them",
                replicate));
            return replicate;
        }
        read_shares(policy);
        takes_all_devices_ = shard < 0;
        return std::max(shard, 1);
    }

    /// Devices that have parts of one sample divide its weights, also where replicas do not.
    void read_shares_of_parts(int replicate, const std::string& policy) {
        if (context_ > 1 && replicate == 1) {
            read_shares(policy);
        } else if (context_ > 1) {
            run_.warnings.push_back(fmt::format(
                "data_parallel_shard_degree = 1: the {} devices of a sample divide the weights of "
                "each replica; the fragment has devices that keep all of them",
                context_));
        }
    }

    /// The file does not say how many devices there are.
    void warn_of_open_degree(std::string_view change) {
        if (takes_all_devices_) {
            run_.has_open_devices = true;
            run_.warnings.push_back(fmt::format(
                "data_parallel_shard_degree = -1: the devices that are left are the replicas, and "
                "the file does not say how many: set pipeline.data_parallel to their number, and "
                "{} by it",
                change));
        }
    }

    /// In a pipeline PyTorch sums the gradients behind the last micro-batch alone, and by default
    /// weights stay gathered until then (torch/distributed/pipelining/stage.py): what remains
    /// shared is the optimizer.
    void read_shares(const std::string& policy) {
        const bool in_pipeline = *run_.stages > 1;
        if (policy == "always") {
            run_.shard = "weights";
        } else if (in_pipeline) {
            run_.shard = "optimizer";
        } else {
            run_.shard = policy == "never" ? "gradients" : "weights";
        }
        if (in_pipeline && policy == "always") {
            run_.warnings.emplace_back(
                "parallelism.fsdp_reshard_after_forward = always: a pipeline of PyTorch's sums "
                "gradients once a step, behind the last micro-batch, and keeps them whole until "
                "then; the fragment's shard = \"weights\" sums them with every micro-batch, and so "
                "needs less memory than the run");
        }
    }

    void read_rest() {
        run_.tensor_parallel = reader_.whole(split_key("tensor_parallel_degree"), 1).value_or(1);
        // Plans of tensor parallelism divide the sequence, also between stages.
        run_.sequence_parallel =
            reader_.answer("parallelism.enable_sequence_parallel").value_or(true) &&
            *run_.tensor_parallel > 1;
        read_division();
        const bool overlaps =
            reader_.answer(split_key("enable_async_tensor_parallel")).value_or(false);
        if (run_.sequence_parallel) {
            run_.tensor_overlap = overlaps;
        }
        read_compile();
        read_recompute();
        const std::string mixed =
            reader_.text("training.mixed_precision_param").value_or("bfloat16");
        const std::string dtype = reader_.text("training.dtype").value_or("float32");
        run_.precision = mixed == "bfloat16" || dtype == "bfloat16" ? "bf16" : "fp32";
        // torchtitan/distributed/utils.py: "only supported when FSDP/HSDP/CP is enabled".
        const bool is_divided = *run_.stages > 1 || *run_.tensor_parallel > 1;
        if (mixed == "bfloat16" && dtype != "bfloat16" && !is_sharded_ && is_divided) {
            run_.precision = "fp32";
            run_.warnings.emplace_back(
                "precision: torchtitan mixes precisions only where FSDP is on, so without it a "
                "pipeline or tensor parallelism trains in fp32, whatever "
                "training.mixed_precision_param says");
        }
        const std::string optimizer = reader_.text("optimizer.name").value_or("AdamW");
        run_.optimizer = optimizer == "Adam" ? "adam" : "adamw";
        if (optimizer != "Adam" && optimizer != "AdamW") {
            reader_.problem("optimizer.name", "keeps another state than Adam");
        }
        // torchtitan clips in every step: with "inf" gradients stay as they are.
        const bool clips = reader_.text("training.max_norm").value_or("") != "inf";
        run_.clip_norm = clips ? reader_.real("training.max_norm").value_or(1) : 0;
        if (run_.precision == "bf16") {
            run_.gradients = "fp32";  // training.mixed_precision_reduce has no other word
        }
        if (dtype == "bfloat16") {
            run_.gradients = "same";
            run_.optimizer_state_bytes = 4;  // two means of two bytes, and no copies of weights
        }
    }

    /// Until summer 2025 the switch stood in [training].
    void read_compile() {
        const bool was_on = reader_.answer("training.compile").value_or(false);
        const bool is_on = reader_.answer("compile.enable").value_or(was_on);
        const auto parts = reader_.texts("compile.components");
        run_.compiles = is_on && (!parts || std::ranges::count(*parts, "model") > 0);
    }

    void read_recompute() {
        const std::string mode =
            reader_.word("activation_checkpoint.mode", "selective full none memory_budget")
                .value_or("selective");
        const bool is_part =
            reader_.text("activation_checkpoint.selective_ac_option").value_or("2") == "op";
        run_.recompute = mode == "full" ? "block" : "none";
        run_.recompute_early_stop =
            reader_.answer("activation_checkpoint.early_stop").value_or(false) && mode == "full";
        if (mode == "memory_budget") {
            reader_.problem("activation_checkpoint.mode",
                            "the compiler chooses what is computed again");
        }
        if (mode != "selective") {
            return;
        }
        if (is_part) {
            run_.recompute = "selective";
            return;
        }
        const int every = reader_.whole("activation_checkpoint.selective_ac_option", 1).value_or(2);
        if (every == 1) {
            run_.recompute = "block";
            return;
        }
        run_.warnings.push_back(
            fmt::format("activation_checkpoint.mode = selective computes one block of every {} "
                        "again, which has no "
                        "word here: the fragment says recompute = \"none\", which keeps more and "
                        "computes nothing "
                        "again; \"block\" keeps less and computes every block again, so the run "
                        "lies between the "
                        "two",
                        every));
    }

    SettingReader reader_;
    LeaveOut leave_out_;
    std::optional<int> all_devices_;  ///< of the run; none: not known
    TitanModel model_;
    int shard_ = -1;                  ///< data_parallel_shard_degree
    int context_ = 1;                 ///< context_parallel_degree
    bool is_sharded_ = true;          ///< weights are shared by FSDP
    bool takes_all_devices_ = false;  ///< as replicas: their number is not known
    TrainingRun run_;
};

}  // namespace

TrainingRun torchtitan_run(const LaunchFile& file, LeaveOut leave_out) {
    return TitanReader(file, leave_out).read();
}

}  // namespace pipetwin
