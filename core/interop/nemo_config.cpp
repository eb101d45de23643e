// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "core/base/error.h"
#include "core/base/word_list.h"
#include "core/interop/launch/setting_values.h"
#include "core/interop/megatron_flag_rows.h"
#include "core/interop/program_flags.h"

namespace pipetwin {

namespace {

using std::string_view;

/// Keys of NeMo that change no size, split, message or kernel of a step, each with its table.
constexpr string_view harmless_nemo =
    "defaults name restore_from_path hydra.searchpath run.name run.results_dir run.time_limit "
    "run.dependency exp_manager.checkpoint_callback_params.always_save_nemo "
    "exp_manager.checkpoint_callback_params.async_save "
    "exp_manager.checkpoint_callback_params.dirpath "
    "exp_manager.checkpoint_callback_params.every_n_epochs "
    "exp_manager.checkpoint_callback_params.every_n_train_steps "
    "exp_manager.checkpoint_callback_params.filename exp_manager.checkpoint_callback_params.mode "
    "exp_manager.checkpoint_callback_params.model_parallel_size "
    "exp_manager.checkpoint_callback_params.monitor "
    "exp_manager.checkpoint_callback_params.save_last "
    "exp_manager.checkpoint_callback_params.save_nemo_on_train_end "
    "exp_manager.checkpoint_callback_params.save_top_k exp_manager.create_checkpoint_callback "
    "exp_manager.create_neptune_logger exp_manager.create_tensorboard_logger "
    "exp_manager.create_wandb_logger exp_manager.exp_dir exp_manager.explicit_log_dir "
    "exp_manager.log_global_rank_0_only exp_manager.log_step_timing exp_manager.name "
    "exp_manager.neptune_logger_kwargs.description "
    "exp_manager.neptune_logger_kwargs.log_model_checkpoints "
    "exp_manager.neptune_logger_kwargs.name exp_manager.neptune_logger_kwargs.prefix "
    "exp_manager.neptune_logger_kwargs.project exp_manager.neptune_logger_kwargs.tags "
    "exp_manager.resume_from_checkpoint exp_manager.resume_if_exists "
    "exp_manager.resume_ignore_no_checkpoint exp_manager.seconds_to_sleep "
    "exp_manager.step_timing_kwargs.buffer_size exp_manager.step_timing_kwargs.sync_cuda "
    "exp_manager.wandb_logger_kwargs.name exp_manager.wandb_logger_kwargs.project "
    "s3_checkpointing.chunk_size_MB s3_checkpointing.enable_async_checkpointing "
    "s3_checkpointing.max_read_concurrency s3_checkpointing.max_write_concurrency "
    "trainer.accelerator trainer.benchmark trainer.enable_checkpointing "
    "trainer.enable_model_summary trainer.enable_progress_bar trainer.limit_test_batches "
    "trainer.limit_train_batches trainer.limit_val_batches trainer.log_every_n_steps "
    "trainer.logger trainer.max_epochs trainer.max_steps trainer.max_time "
    "trainer.num_sanity_val_steps trainer.replace_sampler_ddp trainer.use_distributed_sampler "
    "trainer.val_check_interval "
    "model.apex_transformer_log_level "
    "model.attention_type model.data.add_fim model.data.delay_data_init "
    "model.data.delay_data_mmap model.data.exchange_indices_distributed "
    "model.data.fim.extra_tokens.eod model.data.fim.extra_tokens.middle "
    "model.data.fim.extra_tokens.pad model.data.fim.extra_tokens.prefix "
    "model.data.fim.extra_tokens.suffix model.data.fim.fragment_rate model.data.fim.no_prefix "
    "model.data.fim.rate model.data.fim.split_sample model.data.fim.spm_rate "
    "model.data.data_prefix model.data.index_mapping_dir model.data.legacy_dataset "
    "model.data.mock_dataset model.data.no_seqlen_plus_one_input_tokens "
    "model.data.pad_samples_to_global_batch_size model.data.seq_length "
    "model.data.shuffle_documents model.data.skip_warmup model.data.splits_string "
    "model.data.validation_drop_last model.do_layer_norm_weight_decay "
    "model.dist_ckpt_load_on_device model.dist_ckpt_parallel_save model.enable_megatron_timers "
    "model.fsdp_sharded_checkpoint model.gc_interval model.get_attention_mask_from_fusion "
    "model.grad_allreduce_chunk_size_mb model.grad_div_ar_fusion model.gradient_as_bucket_view "
    "model.mcore_gpt model.megatron_timer_kwargs.barrier "
    "model.megatron_timer_kwargs.log_every_n_steps model.megatron_timer_kwargs.log_mode "
    "model.name model.native_amp_growth_interval model.native_amp_init_scale "
    "model.normalize_attention_scores model.nsys_profile.enabled model.nsys_profile.end_step "
    "model.nsys_profile.gen_shape model.nsys_profile.ranks model.nsys_profile.start_step "
    "model.nsys_profile.trace model.optim.betas model.optim.bucket_cap_mb "
    "model.optim.contiguous_grad_buffer model.optim.contiguous_param_buffer "
    "model.optim.lock_timeout model.optim.lr model.optim.sched.constant_steps "
    "model.optim.sched.max_steps_for_lr_sched model.optim.sched.min_lr model.optim.sched.name "
    "model.optim.sched.warmup_steps model.optim.weight_decay model.precision "
    "model.pre_process model.post_process model.reduce_amax model.resume_from_checkpoint "
    "model.rotary_percentage model.scale_positional_embedding model.sync_batch_comm "
    "model.ub_tp_comm_overlap_cfg model.use_emha model.use_scaled_init_method "
    "model.validation_param_sync_overlap "
    // Only where other keys, which are refused, are on.
    "model.cpu_offloading_num_layers model.fsdp_grad_reduce_dtype model.fsdp_sharding_strategy "
    "model.wgrad_deferral_limit model.fp8_e4m3 model.fp8_hybrid ";

/// NeMo's key and Megatron's for the same.
constexpr auto nemo_names = std::to_array<std::pair<string_view, string_view>>({
    {"model.encoder_seq_length", "seq-length"},
    {"model.bias", "add-bias-linear"},
    {"model.qkv_bias", "add-qkv-bias"},
    {"model.use_flash_attention", "use-flash-attn"},
    {"model.ub_tp_comm_overlap", "tp-comm-overlap"},
    {"model.override_vocab_size", "vocab-size"},
    {"model.bias_dropout_add_fusion", "bias-dropout-fusion"},
    {"model.optim.overlap_param_sync", "overlap-param-gather"},
    {"model.optim.grad_sync_dtype", "main-grads-dtype"},
    {"model.fp8_params", "fp8-param-gather"},
    {"model.tokenizer.type", "tokenizer-type"},
    {"model.tokenizer.model", "tokenizer-model"},
    {"model.num_micro_batches_with_partial_activation_checkpoints",
     "num-microbatches-with-partial-activation-checkpoints"},
    {"model.deteministic_mode", "deterministic-mode"},
    {"trainer.gradient_clip_val", "clip-grad"},
    {"trainer.precision", "mixed-precision"},
});

/// What no flag of Megatron's says, but for these values.
constexpr auto refused_nemo = std::to_array<SettingGroup>({
    {"trainer.accumulate_grad_batches", "passes are repeated before an update", "1"},
    {"model.transformer_block_type", "norms stand otherwise in a block", "pre_ln"},
    {"model.headscale", "each head has a factor", off_values},
    {"model.activations_checkpoint_layers_per_pipeline",
     "later stages recompute fewer layers than the first",
     off_values},
    {"model.ffn_dropout", "the inner layers have a dropout", "0 0.0 0. false none null"},
    {"model.fsdp", "replicas share weights as PyTorch's FSDP does", off_values},
    {"model.optim.dtype", "the optimizer's state has another width", "fp32 null none"},
    {"model.mcore_customization_config.parallel_attention",
     "the halves of a block compute beside each other",
     off_values},
    {"model.mcore_customization_config.new_decoder_architecture",
     "blocks have two norms beside each other",
     off_values},
});

/// Further keys that say something of a step.
constexpr string_view other_nemo =
    "model.megatron_amp_O2 model.optim.name model.transformer_engine model.fp8 trainer.devices "
    "trainer.num_nodes ";

/// A dump of a run has all below "cfg".
void strip_cfg(Setting& setting) {
    if (!setting.sections.empty() && setting.sections.front() == "cfg") {
        setting.sections.erase(setting.sections.begin());
        setting.written.erase(0, std::min(setting.written.find('.') + 1, setting.written.size()));
    }
}

/// Whether a key without "cfg" says something of a model, its split or its step.
bool is_nemo_key(const Setting& setting) {
    const bool is_of_model = setting.sections.size() == 1 && setting.sections.front() == "model";
    return has_word(other_nemo, setting.written) ||
           group_with(refused_nemo, setting.written) != nullptr ||
           std::ranges::count(
               nemo_names, setting.written, &std::pair<string_view, string_view>::first) > 0 ||
           (is_of_model && megatron_flag_row(setting.name) != nullptr);
}

/// Turns NeMo's settings into Megatron's; one object for each file.
class NemoTranslation {
  public:
    explicit NemoTranslation(const LaunchFile& file) : file_(file) {
        result_.notes = file.notes;
        for (Setting& setting : file_.settings) {
            strip_cfg(setting);
        }
    }

    /// The settings that have no effect, as written.
    const std::vector<std::string>& harmless() const { return harmless_; }

    LaunchFile translated(SettingProblems& problems) {
        for (const Setting& setting : file_.settings) {
            if (!setting.is_unset) {
                take(setting, problems);
            }
        }
        check_weights(problems);
        take_eight_bits();
        take_devices();
        return std::move(result_);
    }

  private:
    const Setting* find(string_view written) const {
        const auto found = std::ranges::find(file_.settings, written, &Setting::written);
        return found == file_.settings.end() || found->is_unset ? nullptr : &*found;
    }

    static std::string text_of(const Setting* setting) {
        return setting == nullptr || setting->values.empty()
                   ? std::string()
                   : lower_case(setting->values.front().text);
    }

    /// "${.hidden_size}" and "${training.model.hidden_size}" stand for another key of the model.
    const Setting* meant_by(string_view reference) const {
        if (!reference.starts_with("${") || !reference.ends_with('}')) {
            return nullptr;
        }
        reference.remove_prefix(2);
        reference.remove_suffix(1);
        return find(fmt::format("model.{}", reference.substr(reference.find_last_of('.') + 1)));
    }

    /// Puts the values of other keys in the place of references, and "4, ${.hidden_size}", which is
    /// what is read of "${multiply:4, ${.hidden_size}}", is the product.
    void resolve(Setting& setting) const {
        for (SettingWord& word : setting.values) {
            if (const Setting* const other = meant_by(word.unknown);
                other != nullptr && other->values.size() == 1) {
                word.text = other->values.front().text;
                word.unknown = other->values.front().unknown;
                continue;
            }
            const std::size_t comma = word.text.find(", ");
            const Setting* const factor =
                comma == std::string::npos ? nullptr : meant_by(word.text.substr(comma + 2));
            const std::optional<int> first = whole_in(string_view(word.text).substr(0, comma));
            const std::optional<int> second =
                factor == nullptr ? std::nullopt : whole_in(factor->values.front().text);
            if (first && second && *first > 0 && *second <= largest_setting / *first) {
                word.text = fmt::to_string(*first * *second);
            }
        }
    }

    /// A tokenizer matters by its name alone, which may say how many words there are.
    static bool is_of_words(string_view written) {
        return written.starts_with("model.tokenizer.") &&
               !has_word("model.tokenizer.type model.tokenizer.model", written);
    }

    void take(const Setting& setting, SettingProblems& problems) {
        if (has_word(harmless_nemo, setting.written) || is_of_words(setting.written) ||
            setting.written.starts_with("model.ub_tp_comm_overlap_cfg.") ||
            setting.written.starts_with("model.data.data_prefix.")) {
            harmless_.push_back(setting.written);
            return;
        }
        if (const SettingGroup* const group = group_with(refused_nemo, setting.written)) {
            if (!has_word(group->harmless_values, text_of(&setting))) {
                problems.add(setting.place, setting.written, group->why);
            }
            return;
        }
        if (setting.written == "model.optim.name") {
            take_optimizer(setting, problems);
            return;
        }
        if (setting.written == "model.transformer_engine") {
            add(setting,
                "transformer-impl",
                text_of(&setting) == "true" ? "transformer_engine" : "local");
            return;
        }
        if (setting.written == "model.pipeline_model_parallel_split_rank" &&
            text_of(&setting) == "0") {
            return;
        }
        if (has_word("model.fp8 model.megatron_amp_O2 trainer.devices trainer.num_nodes",
                     setting.written)) {
            return;  // together with other keys
        }
        Setting kept = setting;
        resolve(kept);
        const auto* const found = std::ranges::find(
            nemo_names, setting.written, &std::pair<string_view, string_view>::first);
        if (found != nemo_names.end()) {
            kept.name = found->second;
        }
        if (setting.written == "model.tokenizer.type") {  // a name of Hugging Face's, too
            Setting model = kept;
            model.name = "tokenizer-model";
            if (find("model.tokenizer.model") == nullptr) {
                result_.settings.push_back(model);
            }
        }
        result_.settings.push_back(std::move(kept));
    }

    void add(const Setting& like, string_view name, std::string text) {
        Setting setting = like;
        setting.name = name;
        setting.values = {{.text = std::move(text), .place = like.place}};
        result_.settings.push_back(std::move(setting));
    }

    void take_optimizer(const Setting& setting, SettingProblems& problems) {
        const std::string name = text_of(&setting);
        if (has_word("distributed_fused_adam mcore_distributed_optim", name)) {
            add(setting, "use-distributed-optimizer", "true");
        } else if (!has_word("fused_adam adam adamw megatron_fused_adam", name)) {
            problems.add(setting.place, setting.written, "keeps another state than Adam");
        }
    }

    /// In half precision weights have two bytes with O2 alone, and a missing key is false in NeMo.
    void check_weights(SettingProblems& problems) const {
        const Setting* const two_bytes = find("model.megatron_amp_O2");
        const Setting* const precision = find("trainer.precision");
        if (text_of(precision).find("16") == std::string::npos || text_of(two_bytes) == "true") {
            return;
        }
        problems.add(two_bytes != nullptr ? two_bytes->place : precision->place,
                     "model.megatron_amp_O2",
                     two_bytes != nullptr
                         ? "weights have four bytes"
                         : "weights have four bytes, as NeMo takes false for the missing key");
    }

    void take_eight_bits() {
        const Setting* const fp8 = find("model.fp8");
        if (text_of(fp8) == "true") {
            add(*fp8, "fp8-format", text_of(find("model.fp8_e4m3")) == "true" ? "e4m3" : "hybrid");
        }
    }

    /// How many devices of a node Lightning takes: a number, or as many as a list or a text such as
    /// "0,1" names; none for "auto" and -1, which are all that there are.
    static std::optional<int> devices_in(const Setting& setting) {
        if (setting.is_list) {
            return static_cast<int>(setting.values.size());
        }
        const std::string text = text_of(&setting);
        if (text.find(',') != std::string::npos) {
            return static_cast<int>(whole_list(setting, 0).size());
        }
        return text == "-1" || !whole_in(text) ? std::nullopt
                                               : std::optional(whole_value(setting, 1));
    }

    void take_devices() {
        const Setting* const devices = find("trainer.devices");
        const Setting* const nodes = find("trainer.num_nodes");
        const std::optional<int> count = devices != nullptr ? devices_in(*devices) : std::nullopt;
        if (count) {
            result_.processes = count;
            result_.nodes = nodes != nullptr ? whole_value(*nodes, 1) : 1;
        }
    }

    LaunchFile file_;
    LaunchFile result_;
    std::vector<std::string> harmless_;
};

}  // namespace

bool is_nemo(string_view text) {
    const auto has = [text](string_view part) { return text.find(part) != string_view::npos; };
    return has("trainer:") && has("model:") && has("encoder_seq_length:") && has("num_nodes:");
}

bool is_nemo2(string_view text) {
    return text.find("_target_: nemo.collections.llm") != string_view::npos;
}

bool has_nemo_keys(const LaunchFile& file) {
    return std::ranges::any_of(file.settings, [](Setting setting) {
        strip_cfg(setting);
        return is_nemo_key(setting);
    });
}

MegatronFlags nemo_flags(const LaunchFile& file, LeaveOut leave_out) {
    SettingProblems problems;
    NemoTranslation translation(file);
    const LaunchFile translated = translation.translated(problems);
    std::vector<std::string> warnings;
    std::vector<std::string> left_out;
    problems.settle(leave_out, warnings, left_out);
    MegatronFlags flags = megatron_flags(translated, leave_out);
    flags.warnings.insert(flags.warnings.begin(), warnings.begin(), warnings.end());
    flags.left_out.insert(flags.left_out.end(), left_out.begin(), left_out.end());
    flags.unused.insert(
        flags.unused.end(), translation.harmless().begin(), translation.harmless().end());
    flags.clip_norm = flags.clip_norm.value_or(0);  // Lightning's default, not Megatron's
    flags.program = "nemo";
    flags.is_key_file = false;
    return flags;
}

}  // namespace pipetwin
