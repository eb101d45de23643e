// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <cstdint>
#include <iterator>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "core/base/error.h"
#include "core/base/number_text.h"
#include "core/base/word_list.h"
#include "core/interop/launch/training_run.h"
#include "core/schedule/generators/generate.h"

namespace pipetwin {

namespace {

constexpr std::int64_t most_samples_of_trainer = 1 << 30;

/// Settings of Hugging Face's Trainer (transformers.TrainingArguments), of accelerate, TRL and
/// LLaMA-Factory that change no size, split, message or kernel of a step.
constexpr std::string_view harmless_trainer =
    "output_dir overwrite_output_dir do_train do_eval do_predict eval_strategy "
    "evaluation_strategy prediction_loss_only per_device_eval_batch_size "
    "per_gpu_eval_batch_size eval_accumulation_steps eval_delay eval_steps eval_on_start "
    "eval_do_concat_batches eval_use_gather_object eval_dataset torch_empty_cache_steps "
    "learning_rate weight_decay adam_beta1 adam_beta2 adam_epsilon num_train_epochs max_steps "
    "lr_scheduler_type lr_scheduler_kwargs warmup_ratio warmup_steps log_level "
    "log_level_replica log_on_each_node logging_dir logging_strategy logging_first_step "
    "logging_steps logging_nan_inf_filter save_strategy save_steps save_total_limit "
    "save_safetensors save_on_each_node save_only_model "
    "restore_callback_states_from_checkpoint use_mps_device seed data_seed "
    "jit_mode_eval bf16_full_eval fp16_full_eval tf32 local_rank ddp_backend ddp_timeout "
    "tpu_num_cores tpu_metrics_debug debug dataloader_drop_last dataloader_num_workers "
    "dataloader_prefetch_factor dataloader_pin_memory dataloader_persistent_workers past_index "
    "run_name disable_tqdm remove_unused_columns label_names load_best_model_at_end "
    "metric_for_best_model greater_is_better ignore_data_skip label_smoothing_factor report_to "
    "ddp_find_unused_parameters ddp_bucket_cap_mb ddp_broadcast_buffers skip_memory_metrics "
    "use_legacy_prediction_loop push_to_hub resume_from_checkpoint hub_model_id hub_strategy "
    "hub_token hub_private_repo hub_always_push hub_revision include_inputs_for_metrics "
    "include_for_metrics gradient_checkpointing_kwargs.use_reentrant "
    "include_tokens_per_second include_num_input_tokens_seen fp16_backend fp16_opt_level "
    "half_precision_backend push_to_hub_model_id push_to_hub_organization push_to_hub_token "
    "full_determinism ray_scope torch_compile_backend torch_compile_mode torchdynamo "
    "dispatch_batches batch_eval_metrics average_tokens_across_devices "
    "accelerator_config.dispatch_batches "
    "accelerator_config.even_batches accelerator_config.use_seedable_sampler "
    "accelerator_config.non_blocking accelerator_config.use_configured_state optim_args project "
    "trackio_space_id "
    "dataset dataset_name dataset_dir dataset_config dataset_text_field dataset_num_proc "
    "dataset_kwargs dataset_train_split dataset_test_split template max_samples "
    "overwrite_cache preprocessing_num_workers plot_loss trust_remote_code val_size "
    "model_revision tokenizer_name_or_path chat_template_path use_fast_tokenizer "
    "data_shared_file_system tokenized_path eval_packing assistant_only_loss "
    "completion_only_loss eos_token pad_token use_fast "
    "compute_environment machine_rank main_process_ip main_process_port main_training_function "
    "rdzv_backend same_network tpu_env tpu_use_cluster tpu_use_sudo downcast_bf16 "
    "dynamo_config.dynamo_backend dynamo_config.dynamo_mode dynamo_backend "
    "fsdp_config.fsdp_auto_wrap_policy fsdp_config.fsdp_transformer_layer_cls_to_wrap "
    "fsdp_config.transformer_layer_cls_to_wrap fsdp_config.fsdp_min_num_params "
    "fsdp_config.min_num_params fsdp_config.fsdp_state_dict_type "
    "fsdp_config.state_dict_type fsdp_config.fsdp_cpu_ram_efficient_loading "
    "fsdp_config.cpu_ram_efficient_loading fsdp_config.fsdp_sync_module_states "
    "fsdp_config.sync_module_states fsdp_config.fsdp_use_orig_params "
    "fsdp_config.use_orig_params fsdp_config.fsdp_version fsdp_config.version "
    "fsdp_config.fsdp_forward_prefetch fsdp_config.forward_prefetch "
    "fsdp_config.fsdp_backward_prefetch fsdp_config.backward_prefetch "
    "fsdp_config.fsdp_backward_prefetch_policy fsdp_config.limit_all_gathers "
    "fsdp_config.xla fsdp_config.xla_fsdp_grad_ckpt length_column_name "
    "disable_gradient_checkpointing fsdp_transformer_layer_cls_to_wrap fsdp_min_num_params";

/// What sets a run apart from a training of all weights on the device.
constexpr auto refused_trainer = std::to_array<SettingGroup>({
    {"use_peft peft_config lora_r lora_rank lora_alpha lora_target adapter",
     "adapters are trained, and the weights are not",
     off_values},
    {"load_in_4bit load_in_8bit quantization_bit quantization_method",
     "weights have fewer bits",
     off_values},
    {"accelerator_config.split_batches split_batches",
     "a batch is shared out to the devices, which is not read",
     off_values},
    {"_n_gpu n_gpu", "one process computes on several devices (DataParallel)", "0 1"},
    {"use_cpu no_cuda", "the run computes on a CPU", off_values},
    {"tp_size", "devices share layers", "0 1 null none"},
    {"auto_find_batch_size", "the batch follows the memory", off_values},
    {"neftune_noise_alpha", "a step adds noise", off_values},
    {"use_galore use_apollo use_badam optim_target_modules adafactor",
     "the optimizer keeps another state",
     off_values},
    {"fsdp_config.fsdp_offload_params fsdp_config.offload_params fsdp_offload_params",
     "weights are in host memory",
     off_values},
    {"fsdp_config.xla_fsdp_v2", "XLA divides the work", off_values},
    {"megatron_lm_config", "accelerate starts Megatron-LM, whose flags 'import megatron' reads"},
    {"freeze_trainable_layers freeze_vision_tower freeze_multi_modal_projector",
     "parts of the model are not trained"},
    {"parallelism_config", "devices share layers or samples"},
});

/// The first of several names of a setting that a file has.
std::string_view name_in(const SettingReader& reader, std::string_view names) {
    for (const std::string_view name : words_in(names)) {
        if (reader.has(name)) {
            return name;
        }
    }
    return words_in(names).front();
}

/// Reads a configuration of the Trainer; one object for each.
class TrainerReader {
  public:
    TrainerReader(const LaunchFile& file, LeaveOut leave_out, const LaunchFile* deepspeed)
        : reader_(file),
          leave_out_(leave_out),
          deepspeed_(deepspeed),
          all_devices_(file.all_processes) {}

    TrainingRun read() {
        run_.stages = 1;
        run_.schedule = to_string(ScheduleKind::OneFOneB);
        run_.tensor_parallel = 1;
        read_model();
        read_batch();
        read_numbers();
        read_shards();
        read_recompute();
        reader_.refuse(refused_trainer);
        reader_.finish(harmless_trainer, leave_out_, run_);
        return std::move(run_);
    }

  private:
    /// LLaMA-Factory has the Trainer's arguments with other defaults: adapters, samples of
    /// different lengths, and blocks that are computed again.
    bool is_factory() const {
        return std::ranges::any_of(
            words_in("template dataset_dir finetuning_type stage cutoff_len"),
            [this](std::string_view key) { return reader_.has(key); });
    }

    /// axolotl has the Trainer's arguments beside its own.
    bool is_axolotl() const {
        return reader_.has("base_model") &&
               (reader_.has("sequence_len") || reader_.has("micro_batch_size"));
    }

    void read_model() {
        run_.model =
            reader_.text(name_in(reader_, "model_name_or_path model base_model")).value_or("");
        for (const std::string_view key : {"bf16",
                                           "fp16",
                                           "per_device_train_batch_size",
                                           "gradient_accumulation_steps",
                                           "gradient_checkpointing"}) {
            if (reader_.is_auto(key) && !(is_axolotl() && key == "bf16")) {
                reader_.problem(key, "auto is no value that the Trainer has");
            }
        }
        const std::string tuned =
            reader_.text("finetuning_type").value_or(is_factory() ? "lora" : "full");
        if (tuned != "full") {
            reader_.problem(
                reader_.has("finetuning_type") ? "finetuning_type" : "model_name_or_path",
                "adapters are trained, and the weights are not: finetuning_type is "
                "lora, LLaMA-Factory's default where it is not written");
        }
        const std::string stage = reader_.text("stage").value_or("sft");
        if (stage != "pt" && stage != "sft") {
            reader_.problem("stage", "further models compute in each step");
        }
        const bool packs = reader_.answer("packing").value_or(false) ||
                           reader_.answer("neat_packing").value_or(false) ||
                           reader_.answer("sample_packing").value_or(false);
        const bool groups = reader_.answer("group_by_length").value_or(false);
        if ((stage == "sft" && !packs) || groups) {
            run_.warnings.emplace_back(
                "samples that are not packed have different lengths, and are filled up to the "
                "longest of a micro-batch: the prediction has the full length of each, and a step "
                "is at most as long");
        }
        run_.sequence =
            reader_.whole(name_in(reader_,
                                  "cutoff_len max_seq_length max_length sequence_len block_size "
                                  "model_max_length max_seq_len"),
                          1);
        const std::string attention =
            reader_.text(name_in(reader_, "attn_implementation flash_attn")).value_or("");
        if (attention == "eager" || attention == "disabled") {
            run_.warnings.emplace_back(
                "attention stores all scores: estimate the costs with --attention standard");
        }
        if (!reader_.answer("flash_attention").value_or(true)) {
            run_.warnings.emplace_back(
                "flash_attention is off: estimate the costs with --attention standard where no "
                "other kernel of one pass takes its place");
        }
        run_.compiles = reader_.answer("torch_compile").value_or(false);
        if (reader_.answer(name_in(reader_, "use_liger_kernel use_liger enable_liger_kernel"))
                .value_or(false)) {
            run_.warnings.emplace_back(
                "Liger's kernels are fused: estimate the costs with --kernels fused");
        }
    }

    /// Samples of a device x steps of accumulation x devices.
    void read_batch() {
        const int of_device =
            reader_
                .whole(name_in(reader_,
                               "per_device_train_batch_size per_gpu_train_batch_size "
                               "micro_batch_size"),
                       1)
                .value_or(8);
        run_.micro_batches = reader_.whole("gradient_accumulation_steps", 1).value_or(1);
        run_.data_parallel = reader_.whole(name_in(reader_, "num_processes world_size"), 1);
        reader_.whole("num_machines", 1);
        if (!run_.data_parallel) {
            run_.data_parallel = all_devices_;
        }
        if (!run_.data_parallel) {
            run_.has_open_devices = true;
            run_.warnings.emplace_back(
                "the file does not say how many devices there are: the fragment has one; --devices "
                "N says it");
        }
        const std::int64_t batch =
            std::int64_t{of_device} * *run_.micro_batches * run_.data_parallel.value_or(1);
        if (batch > most_samples_of_trainer) {
            reader_.infeasible(
                name_in(reader_, "per_device_train_batch_size micro_batch_size"),
                fmt::format(
                    "a batch of {} samples, expected at most {}", batch, most_samples_of_trainer),
                "is there a digit too many?");
        }
        run_.batch = static_cast<int>(batch);
    }

    void read_numbers() {
        const std::string mixed = reader_.text("mixed_precision").value_or("no");
        const bool takes_bf16 = is_axolotl() && reader_.is_auto("bf16");
        if (takes_bf16) {
            reader_.texts("bf16");
            run_.warnings.emplace_back(
                "bf16 = auto: bf16, as axolotl takes it on devices that have it");
        }
        const bool bf16 = takes_bf16 || reader_.answer("bf16").value_or(mixed == "bf16");
        const bool fp16 = reader_.answer("fp16").value_or(mixed == "fp16");
        has_fp16_ = fp16;
        const bool is_pure = reader_.answer("pure_bf16").value_or(false);
        const std::string written = lower_case(
            reader_.text(name_in(reader_, "torch_dtype dtype model_dtype")).value_or(""));
        const std::string type = written.starts_with("torch.") ? written.substr(6) : written;
        if (reader_.is_auto(name_in(reader_, "torch_dtype dtype model_dtype")) ||
            (!type.empty() && !has_word("bfloat16 bf16 float16 fp16 half float32 fp32 float none "
                                        "null",
                                        type))) {
            run_.warnings.push_back(fmt::format(
                "{}: the type of the weights is that of the checkpoint; the fragment has fp32",
                name_in(reader_, "torch_dtype dtype model_dtype")));
        }
        run_.precision = bf16 || fp16 || is_pure ? "bf16" : "fp32";
        if (bf16 && fp16) {
            reader_.infeasible("fp16",
                               "fp16 and bf16 are both true, expected one of them at most",
                               "transformers refuses both at once, too");
        }
        if (fp16) {
            run_.warnings.emplace_back("fp16: the fragment says bf16, whose sizes are the same");
        }
        if (mixed == "fp8") {
            reader_.problem("mixed_precision", "products in 8 bits take other time and memory");
        }
        const bool has_half_weights = is_pure || has_word("bfloat16 bf16 float16 fp16 half", type);
        is_mixed_ = (bf16 || fp16) && !is_pure;
        if (has_half_weights && run_.precision == "bf16") {
            run_.gradients = "same";
            run_.optimizer_state_bytes = 4;  // two moments, and no weights in fp32
        } else if (has_half_weights) {
            reader_.problem(name_in(reader_, "torch_dtype dtype model_dtype"),
                            "weights in two bytes compute without bf16 or fp16");
        } else if (run_.precision == "bf16") {
            run_.gradients = "fp32";
        }
        const std::string optimizer =
            reader_.text(name_in(reader_, "optim optimizer")).value_or("adamw_torch");
        run_.optimizer = "adamw";
        if (!has_word("adamw_torch adamw_torch_fused adamw_hf adamw_apex_fused adamw "
                      "adamw_torch_npu_fused",
                      optimizer)) {
            reader_.problem(name_in(reader_, "optim optimizer"), "keeps another state than AdamW");
        }
        run_.clip_norm =
            reader_.real(name_in(reader_, "max_grad_norm gradient_clipping")).value_or(1);
    }

    /// FSDP by the Trainer's words, or by accelerate's.
    void read_shards() {
        const std::string distributed = lower_case(reader_.text("distributed_type").value_or(""));
        if (has_word("megatron_lm tp xla", distributed)) {
            reader_.problem("distributed_type", "another program divides the work");
        }
        if (deepspeed_ != nullptr || distributed == "deepspeed") {
            read_deepspeed();
            return;
        }
        std::vector<std::string> words = reader_.texts("fsdp").value_or(std::vector<std::string>{});
        std::string strategy;
        bool is_on = distributed == "fsdp";
        for (const std::string& all : words) {
            for (const std::string_view word : words_in(all)) {
                if (word == "offload") {
                    reader_.problem("fsdp", "weights are in host memory");
                } else if (word != "auto_wrap" && word != "true" && word != "false") {
                    strategy = lower_case(word);
                }
                is_on = is_on || word != "false";
            }
        }
        const std::string_view key =
            name_in(reader_,
                    "fsdp_config.fsdp_sharding_strategy fsdp_config.fsdp_reshard_after_forward "
                    "fsdp_config.reshard_after_forward fsdp_reshard_after_forward");
        const std::string accelerates = lower_case(reader_.text(key).value_or(""));
        if (!accelerates.empty()) {
            strategy = accelerates;
        }
        if (!is_on) {
            return;
        }
        const std::string_view place = accelerates.empty() ? std::string_view("fsdp") : key;
        if (has_word("full_shard true 1", strategy) || strategy.empty()) {
            run_.shard = "weights";
        } else if (has_word("shard_grad_op false 2", strategy)) {
            run_.shard = "gradients";
        } else if (has_word("no_shard 3", strategy)) {
            run_.shard.clear();
        } else if (has_word("hybrid_shard hybrid_shard_zero2 4 5", strategy)) {
            reader_.problem(place,
                            "devices of a node divide the state, and the file does not say how "
                            "many there are");
        } else {
            reader_.problem(place, "no way of sharing that is known here");
        }
        if (is_mixed_) {  // FSDP makes weights that were loaded in two bytes fp32
            run_.optimizer_state_bytes.reset();
            run_.gradients = "fp32";
        }
        if (!run_.shard.empty() && *run_.micro_batches > 1) {
            run_.warnings.emplace_back(
                "the Trainer keeps whole gradients over the steps of accumulation, and sums them "
                "with the last: the prediction shares them out with each, and needs less memory "
                "than the run");
        }
    }

    /// The Trainer fills in what DeepSpeed's file leaves to it; accelerate has a few settings of
    /// its own.
    void read_deepspeed() {
        run_.framework = "deepspeed";
        for (const std::string_view device : {"deepspeed_config.offload_optimizer_device",
                                              "deepspeed_config.offload_param_device"}) {
            if (reader_.text(device).value_or("none") != "none") {
                reader_.problem(device, "state is in host memory");
            }
        }
        for (const std::string_view known : {"deepspeed",
                                             "deepspeed_config.deepspeed_config_file",
                                             "deepspeed_config.zero3_init_flag",
                                             "deepspeed_config.zero3_save_16bit_model",
                                             "deepspeed_config.deepspeed_multinode_launcher"}) {
            reader_.texts(known);
        }
        if (deepspeed_ == nullptr) {
            read_stage_of_accelerate();
            return;
        }
        if (reader_.has("deepspeed_config.deepspeed_config_file")) {
            take_numbers();
        }
        expect_same_numbers();
        const TrainingRun theirs = deepspeed_run(filled_in(*deepspeed_), leave_out_);
        if (theirs.tensor_parallel) {
            reader_.problem("deepspeed",
                            "devices share layers (tensor_parallel.autotp_size of its file)");
        }
        run_.shard = theirs.shard;
        run_.shard_group = theirs.shard_group;
        run_.prefetch = theirs.prefetch;
        run_.context_parallel = theirs.context_parallel;
        run_.context_method = theirs.context_method;
        run_.expert_parallel = theirs.expert_parallel;
        run_.expert_tensor_parallel = theirs.expert_tensor_parallel;
        set_types_of_deepspeed(theirs.gradients);
        run_.left_out.insert(run_.left_out.end(), theirs.left_out.begin(), theirs.left_out.end());
        std::ranges::copy_if(theirs.warnings,
                             std::back_inserter(run_.warnings),
                             [](const std::string& warning) {  // the Trainer's arguments say it
                                 return warning.find("computed again") == std::string::npos;
                             });
    }

    /// accelerate's own settings of DeepSpeed, with its defaults (accelerate/utils/dataclasses.py).
    void read_stage_of_accelerate() {
        constexpr std::array<std::string_view, 4> shards{"", "optimizer", "gradients", "weights"};
        const int stage = reader_.whole("deepspeed_config.zero_stage", 0).value_or(2);
        if (stage >= static_cast<int>(shards.size())) {
            reader_.infeasible("deepspeed_config.zero_stage",
                               fmt::format("a stage of {}, expected 0, 1, 2 or 3", stage),
                               "compare with accelerate's documentation");
        }
        const int accumulated =
            reader_.whole("deepspeed_config.gradient_accumulation_steps", 1).value_or(1);
        if (!reader_.has("gradient_accumulation_steps") && accumulated > 1) {
            run_.batch = *run_.batch * accumulated;
            run_.micro_batches = accumulated;
        }
        if (const auto norm = reader_.real("deepspeed_config.gradient_clipping")) {
            run_.clip_norm = *norm;
        }
        run_.shard = shards.at(static_cast<std::size_t>(stage));
        set_types_of_deepspeed(run_.precision == "bf16" && stage == 0 ? "fp32" : "same");
    }

    /// With a file of DeepSpeed accelerate takes all of these from it.
    void take_numbers() {
        SettingReader theirs(*deepspeed_);
        const int of_device = theirs.whole("train_micro_batch_size_per_gpu", 1).value_or(1);
        run_.micro_batches = theirs.whole("gradient_accumulation_steps", 1).value_or(1);
        const std::int64_t batch =
            std::int64_t{of_device} * *run_.micro_batches * run_.data_parallel.value_or(1);
        run_.batch = static_cast<int>(std::min(batch, most_samples_of_trainer));
        run_.clip_norm = theirs.real("gradient_clipping").value_or(0);
        has_fp16_ = theirs.answer("fp16.enabled").value_or(false);
        run_.precision =
            has_fp16_ || theirs.answer("bf16.enabled").value_or(false) ? "bf16" : "fp32";
    }

    /// The Trainer refuses a file that says other numbers than its arguments.
    void expect_same_numbers() {
        SettingReader theirs(*deepspeed_);
        const int replicas = run_.data_parallel.value_or(1);
        const int of_device = std::max(1, *run_.batch / *run_.micro_batches / replicas);
        const std::array<std::pair<std::string_view, int>, 2> numbers{
            {{"train_micro_batch_size_per_gpu", of_device},
             {"gradient_accumulation_steps", *run_.micro_batches}}};
        for (const auto& [key, ours] : numbers) {
            const std::optional<int> found = theirs.whole(key, 1);
            if (found && *found != ours) {
                reader_.infeasible("deepspeed",
                                   fmt::format("{} = {} in DeepSpeed's file, but {} by the "
                                               "Trainer's arguments",
                                               key,
                                               *found,
                                               ours),
                                   "write \"auto\" in DeepSpeed's file: the Trainer refuses "
                                   "others, too");
            }
        }
    }

    /// DeepSpeed keeps weights in fp32 beside those in two bytes, however they were loaded.
    void set_types_of_deepspeed(const std::string& gradients) {
        run_.optimizer_state_bytes.reset();
        run_.gradients = run_.precision == "bf16" ? gradients : "";
    }

    /// DeepSpeed's settings with the Trainer's in place of "auto"
    /// (transformers/integrations/deepspeed.py, trainer_config_process).
    LaunchFile filled_in(LaunchFile file) const {
        const int replicas = run_.data_parallel.value_or(1);
        const int of_device = std::max(1, *run_.batch / *run_.micro_batches / replicas);
        const std::array<std::pair<std::string_view, std::string>, 6> values{
            {{"train_batch_size", fmt::to_string(*run_.batch)},
             {"train_micro_batch_size_per_gpu", fmt::to_string(of_device)},
             {"gradient_accumulation_steps", fmt::to_string(*run_.micro_batches)},
             {"gradient_clipping", fmt::to_string(run_.clip_norm.value_or(1))},
             {"bf16.enabled", run_.precision == "bf16" && !has_fp16_ ? "true" : "false"},
             {"fp16.enabled", has_fp16_ ? "true" : "false"}}};
        for (Setting& setting : file.settings) {
            const auto found = std::ranges::find(
                values, setting.written, &std::pair<std::string_view, std::string>::first);
            const bool is_auto =
                setting.values.size() == 1 && setting.values.front().text == "auto";
            if (found != values.end() && is_auto) {
                setting.values.front().text = found->second;
            }
        }
        for (const auto& [written, value] : std::span(values).first(3)) {  // of the batch
            if (std::ranges::find(file.settings, written, &Setting::written) ==
                file.settings.end()) {
                const std::string name(written);
                file.settings.push_back({.name = name,
                                         .written = name,
                                         .place = "the Trainer's arguments",
                                         .values = {{.text = value}},
                                         .is_key = true});
            }
        }
        return file;
    }

    void read_recompute() {
        const bool recomputes = reader_.answer("gradient_checkpointing").value_or(false) ||
                                reader_
                                    .answer(name_in(reader_,
                                                    "fsdp_config.fsdp_activation_checkpointing "
                                                    "fsdp_config.activation_checkpointing"))
                                    .value_or(false);
        const bool is_default = is_factory() && !reader_.has("gradient_checkpointing") &&
                                !reader_.answer("disable_gradient_checkpointing").value_or(false);
        run_.recompute = recomputes || is_default ? "block" : "none";
    }

    SettingReader reader_;
    LeaveOut leave_out_;
    const LaunchFile* deepspeed_;
    std::optional<int> all_devices_;  ///< none: not known
    TrainingRun run_{};
    bool has_fp16_ = false;
    bool is_mixed_ = false;  ///< products in two bytes, and not by weights that are loaded so
};

}  // namespace

std::string trainer_deepspeed_file(const LaunchFile& file) {
    for (const Setting& setting : file.settings) {
        const bool names = setting.written == "deepspeed" ||
                           setting.written == "deepspeed_config.deepspeed_config_file" ||
                           setting.written == "deepspeed_config_file";
        if (names && setting.values.size() == 1) {
            return setting.values.front().text;
        }
    }
    return {};
}

namespace {

/// Moves settings below "deepspeed", which the Trainer's arguments may have in place of a file,
/// into a file of their own.
LaunchFile taken_deepspeed(LaunchFile& file) {
    constexpr std::string_view section = "deepspeed";
    LaunchFile theirs;
    const auto is_theirs = [section](const Setting& setting) {
        return !setting.sections.empty() && setting.sections.front() == section;
    };
    for (const Setting& setting : file.settings) {
        if (is_theirs(setting)) {
            Setting moved = setting;
            moved.sections.erase(moved.sections.begin());
            moved.written.erase(0, section.size() + 1);
            theirs.settings.push_back(std::move(moved));
        }
    }
    std::erase_if(file.settings, is_theirs);
    return theirs;
}

}  // namespace

TrainingRun trainer_run(const LaunchFile& file, LeaveOut leave_out, const LaunchFile* deepspeed) {
    LaunchFile own = file;
    const LaunchFile inside = taken_deepspeed(own);
    const LaunchFile* const theirs = inside.settings.empty() ? deepspeed : &inside;
    return TrainerReader(own, leave_out, theirs).read();
}

}  // namespace pipetwin
