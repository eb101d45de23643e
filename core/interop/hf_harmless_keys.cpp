// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <string_view>

#include "core/base/word_list.h"
#include "core/interop/hf_keys.h"

namespace pipetwin {

namespace {

/// Whole keys.
constexpr std::string_view harmless_keys =
    // What the file is, and of which programs.
    "architectures auto_map model_type _name_or_path transformers_version tokenizer_class "
    "torch_dtype dtype torchscript use_bfloat16 tf_legacy_loss finetuning_task problem_type "
    "task_specific_params id2label label2id is_decoder expert_dtype quantization_config "
    "use_mamba_kernels mamba_ssm_cache_dtype mamba_ssm_dtype vision_config audio_config "
    "attn_implementation unsloth_version unsloth_fixed custom_generate "
    // Generating text.
    "use_cache do_sample early_stopping num_beams num_beam_groups temperature top_k top_p "
    "typical_p "
    "repetition_penalty length_penalty diversity_penalty exponential_decay_length_penalty "
    "no_repeat_ngram_size encoder_no_repeat_ngram_size bad_words_ids suppress_tokens "
    "begin_suppress_tokens num_return_sequences remove_invalid_values max_length min_length "
    "model_max_length chunk_size_feed_forward prefix pruned_heads num_logits_to_keep "
    "output_attentions output_hidden_states output_scores output_gate_type mask_token pad_token "
    "bos_token eos_token cache_implementation max_new_tokens "
    // Functions, scales and limits, of the size of what they change.
    "hidden_act hidden_activation activation_function activation activation_type mlp_hidden_act "
    "mamba_hidden_act act_fn dense_act_fn is_gated_act feed_forward_proj gelu_fast "
    "swiglu_limit swiglu_limits swiglu_limits_shared swiglu_alpha activation_situ_beta "
    "activation_situ_linear_beta attn_logit_softcapping final_logit_softcapping "
    "query_pre_attn_scalar attention_value_scale attention_multiplier embedding_multiplier "
    "residual_multiplier logits_scaling logit_scale scale_emb scale_depth dim_model_base clip_qkv "
    "scale_attn_weights scale_attn_by_inverse_layer_idx reorder_and_upcast_attn "
    "attention_softmax_in_fp32 scale_attention_softmax_in_fp32 residual_in_fp32 "
    "apply_residual_connection_post_layernorm fp32_residual_connection use_gemma_norm rmsnorm "
    "layer_norm_elementwise_affine zero_centered hc_sinkhorn_iters time_step_limit time_step_rank "
    "time_step_min time_step_max time_step_floor expand embedding_scale normalize_embedding "
    "softmax_scale attention_scale attn_temperature_tuning floor_scale attn_scale norm_type "
    // Which expert a token goes to.
    "scoring_func topk_method topk_group n_group num_expert_group use_grouped_topk norm_topk_prob "
    "moe_renormalize norm_expert_weight routed_scaling_factor moe_router_scaling_factor "
    "moe_router_activation_func moe_router_activation moe_router_dtype need_fp32_gate "
    "aux_loss_alpha router_aux_loss output_router_logits seq_aux ep_size moe_shared_expert_overlap "
    "router_dtype "
    // Positions: their cost is that of a rotation.
    "partial_rotary_factor partial_rotary_factors original_max_position_embeddings "
    "initial_context_length max_sequence_length indexer_rope_interleave compress_rope_theta "
    "swa_rope_theta no_rope_layers mrope_section use_mrope position_embedding_type n_ctx "
    "use_dynamic_ntk use_logn_attn yarn_only_types "
    // Initial weights, losses and what no forward does.
    "initializer_range initializer_factor rescale_prenorm_residual pretraining_tp z_loss "
    "gate_lower_bound slow_but_exact use_flash_attn use_fp8 gradient_checkpointing init_method "
    "head_dim_list index_share_for_mtp_iteration mtp_use_dedicated_embeddings "
    "use_bidirectional_attention vocab_size_per_layer_input use_double_wide_mlp";

constexpr std::string_view harmless_begins = "rope_ rotary_ return_dict forced_ tie_encoder";

constexpr std::string_view harmless_ends =
    "_token_id _token_index _token_ids _dropout _drop _pdrop _eps _epsilon _theta _coef _init "
    "_std _init_value _placeholder _jitter_noise _loss_weight _hidden_states _attentions _scores";

}  // namespace

bool hf_is_harmless(std::string_view key) {
    const auto has = [](std::string_view words, auto fits) {
        return std::ranges::any_of(words_in(words), fits);
    };
    return key.starts_with('_') ||
           has(harmless_keys, [key](std::string_view word) { return key == word; }) ||
           has(harmless_begins, [key](std::string_view word) { return key.starts_with(word); }) ||
           has(harmless_ends, [key](std::string_view word) { return key.ends_with(word); });
}

}  // namespace pipetwin
