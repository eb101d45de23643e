// SPDX-License-Identifier: Apache-2.0
#include "core/interop/launch/swift_arguments.h"

#include <algorithm>
#include <string>
#include <vector>

#include "core/base/word_list.h"
#include "core/interop/launch/setting_values.h"
#include "core/interop/launch/table_settings.h"

namespace pipetwin {

namespace {

/// Arguments (swift/megatron/arguments) that mean nothing where no `rlhf_type` says that samples
/// are generated or compared; a run with one is refused for it.
constexpr std::string_view of_preferences =
    "loss_type mcore_ref_model mcore_ref_adapter beta rpo_alpha reference_free "
    "label_smoothing f_divergence_type desirable_weight undesirable_weight "
    "center_rewards_coefficient teacher_model teacher_model_type teacher_model_revision "
    "teacher_model_server teacher_tag_key gkd_logits_topk lmbda seq_kd offload_teacher_model "
    "sft_alpha teacher_kl_coef temperature generation_batch_size steps_per_generation "
    "num_generations num_generations_eval max_completion_length importance_sampling_level tau_pos "
    "tau_neg real_tau fipo_decay_rate fipo_clip_range fipo_clip_high_only fipo_safety_threshold "
    "epsilon epsilon_high delta top_k top_p repetition_penalty use_vllm use_ray vllm_mode "
    "vllm_enable_prefix_caching vllm_gpu_memory_utilization vllm_tensor_parallel_size "
    "vllm_max_model_len vllm_enforce_eager vllm_limit_mm_per_prompt vllm_disable_cascade_attn "
    "vllm_max_num_seqs vllm_mm_processor_cache_gb vllm_engine_kwargs vllm_enable_lora sleep_level "
    "offload_optimizer offload_model offload_bridge vllm_server_base_url vllm_server_host "
    "vllm_server_port vllm_server_timeout vllm_server_group_port reward_funcs reward_weights "
    "cosine_min_len_value_wrong cosine_max_len_value_wrong cosine_min_len_value_correct "
    "cosine_max_len_value_correct cosine_max_len repetition_n_grams repetition_max_penalty "
    "soft_max_length soft_cache_length dynamic_sample max_resample_times overlong_filter "
    "scale_rewards advantage_estimator kl_in_reward wandb_log_unique_prompts log_completions "
    "rollout_importance_sampling_threshold log_rollout_offpolicy_metrics "
    "off_policy_sequence_mask_delta log_entropy top_entropy_quantile router_replay_mode "
    "reward_model reward_model_plugin sync_ref_model ref_model_sync_steps ref_model_mixup_alpha "
    "async_generate move_model_batches multi_turn_scheduler max_turns "
    "completion_length_limit_scope vllm_server_pass_dataset use_gym_env gym_env num_iterations "
    "ref_model ref_adapters";

/// Arguments that mean nothing where all weights are trained.
constexpr std::string_view of_adapters =
    "target_modules target_regex modules_to_save lora_rank lora_alpha lora_dropout lora_bias "
    "lora_dtype use_rslora";

/// Arguments that change no size, split, message or kernel of a step, or belong to parts that a
/// language model does not have.
constexpr std::string_view without_effect =
    "add_version aligner_lr async_save bridge_backend callbacks check_model "
    "create_checkpoint_symlink csa_dense_mode data_sharding dataset_shuffle ddp_backend "
    "ddp_timeout dsa_indexer_loss_coeff enable_channel_loss eval_steps exist_ok freeze_aligner "
    "freeze_vit greater_is_better hub_token load_args "
    "local_rank logging_steps loss_scale max_shard_size mcore_adapter mcore_model "
    "metric_for_best_model mhc_recompute_layer_num mlp_padding_free mrl_dims "
    "mtp_decoder_input_detach muon_coefficient_type muon_extra_scale_factor muon_fp32_matmul_prec "
    "muon_momentum muon_num_ns_steps muon_scalar_optimizer muon_scale_mode muon_split_qkv "
    "muon_tp_mode muon_use_nesterov nccl_comm_warmup optimizer_offload_fraction "
    "problem_type report_to save_missing_weights save_strategy save_total_limit "
    "sequence_packing_scheduler skip_megatron_init swanlab_exp_name swanlab_project "
    "test_convert_dtype test_convert_precision to_hf to_mcore truncation_strategy "
    "use_chat_template use_cpu_initialization use_hf vit_attn_impl vit_gradient_checkpointing "
    "vit_gradient_checkpointing_kwargs vit_lr";

/// The value of an argument; empty: it has none.
std::string value_of(const LaunchFile& file, std::string_view name) {
    const auto found = std::ranges::find(file.settings, name, &Setting::written);
    return found == file.settings.end() || found->values.empty() ? std::string()
                                                                 : found->values.front().text;
}

}  // namespace

bool is_swift_arguments(std::string_view text) {
    const std::size_t begin = text.find_first_not_of(" \t\r\n\xef\xbb\xbf");
    const auto has = [text](std::string_view key) {
        return text.find(key) != std::string_view::npos;
    };
    return begin != std::string_view::npos && text[begin] == '{' &&
           has("\"tensor_model_parallel_size\"") && has("\"micro_batch_size\"") &&
           (has("\"tuner_type\"") || has("\"mcore_model\"") || has("\"train_type\""));
}

LaunchFile parse_swift_arguments(std::string_view text, std::string_view place) {
    LaunchFile file = parse_json_settings(text, place);
    const std::string tuner = value_of(file, "tuner_type");
    const bool has_adapters = !tuner.empty() && tuner != "full";
    std::erase_if(file.settings, [&](const Setting& setting) {
        return has_word(without_effect, setting.written) ||
               has_word(of_preferences, setting.written) ||
               (!has_adapters && has_word(of_adapters, setting.written)) ||
               setting.values.empty() || setting.values.front().text.empty();
    });
    const auto world = std::ranges::find(file.settings, "global_world_size", &Setting::written);
    if (world != file.settings.end()) {
        file.all_processes = whole_value(*world, 1);
    }
    // seq_length, Megatron's name, is the length of packed samples; max_length that of one before
    // packing.
    const bool has_both = !value_of(file, "seq_length").empty();
    std::erase_if(file.settings, [has_both](const Setting& setting) {
        return has_word("rank local_rank global_world_size local_world_size data_parallel_size",
                        setting.written) ||
               (has_both && setting.written == "max_length");
    });
    for (Setting& setting : file.settings) {
        std::ranges::replace(setting.name, '_', '-');
        // ms-swift has another name for the tokens of a sample.
        setting.name = setting.name == "max-length" ? "seq-length" : setting.name;
    }
    file.is_printed = true;
    return file;
}

}  // namespace pipetwin
