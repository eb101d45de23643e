// SPDX-License-Identifier: Apache-2.0
#include "cli/interop/import/program_keys.h"

#include <algorithm>
#include <array>
#include <span>
#include <utility>

namespace pipetwin::cli {

namespace {

/// A flag of Megatron's, or several with their values, and the key of the program.
struct KeyOfFlag {
    std::string_view flag;
    std::string_view key;
};

/// Longer flags stand before those that they begin with.
constexpr auto neox_keys = std::to_array<KeyOfFlag>({
    {"--attention-backend unfused", "attention_config global"},
    {"--attention-backend", "attention_config"},
    {"--bf16", "precision"},
    {"--clip-grad", "gradient_clipping"},
    {"--ffn-hidden-size", "intermediate_size"},
    {"--fp16", "fp16.enabled"},
    {"--global-batch-size", "train_batch_size"},
    {"--hidden-size", "hidden_size"},
    {"--make-vocab-size-divisible-by", "make_vocab_size_divisible_by"},
    {"--max-position-embeddings", "max_position_embeddings"},
    {"--micro-batch-size", "train_micro_batch_size_per_gpu"},
    {"--num-attention-heads", "num_attention_heads"},
    {"--num-layers", "num_layers"},
    {"--num-query-groups", "num_kv_heads"},
    {"--pipeline-model-parallel-size", "pipe_parallel_size"},
    {"--recompute-num-layers", "checkpoint_num_layers"},
    {"--seq-length", "seq_length"},
    {"--sequence-parallel", "sequence_parallel"},
    {"--swiglu", "activation"},
    {"--tensor-model-parallel-size", "model_parallel_size"},
    {"--use-distributed-optimizer", "zero_optimization.stage 1"},
});

constexpr auto nemo_keys = std::to_array<KeyOfFlag>({
    {"--bf16", "trainer.precision"},
    {"--clip-grad", "trainer.gradient_clip_val"},
    {"--ffn-hidden-size", "model.ffn_hidden_size"},
    {"--fp16", "trainer.precision 16"},
    {"--global-batch-size", "model.global_batch_size"},
    {"--hidden-size", "model.hidden_size"},
    {"--make-vocab-size-divisible-by", "model.make_vocab_size_divisible_by"},
    {"--max-position-embeddings", "model.max_position_embeddings"},
    {"--micro-batch-size", "model.micro_batch_size"},
    {"--num-attention-heads", "model.num_attention_heads"},
    {"--num-layers", "model.num_layers"},
    {"--num-layers-per-virtual-pipeline-stage", "model.virtual_pipeline_model_parallel_size"},
    {"--num-query-groups", "model.num_query_groups"},
    {"--pipeline-model-parallel-size", "model.pipeline_model_parallel_size"},
    {"--recompute-num-layers", "model.activations_checkpoint_num_layers"},
    {"--seq-length", "model.encoder_seq_length"},
    {"--sequence-parallel", "model.sequence_parallel"},
    {"--swiglu", "model.activation"},
    {"--tensor-model-parallel-size", "model.tensor_model_parallel_size"},
    {"--use-distributed-optimizer", "model.optim.name distributed_fused_adam"},
    {"--use-flash-attn", "model.use_flash_attention"},
});

constexpr auto nanotron_keys = std::to_array<KeyOfFlag>({
    {"--bf16", "model.dtype"},
    {"--ffn-hidden-size", "model.model_config.intermediate_size"},
    {"--fp16", "model.dtype"},
    {"--global-batch-size", "tokens.batch_accumulation_per_replica"},
    {"--hidden-size", "model.model_config.hidden_size"},
    {"--make-vocab-size-divisible-by", "model.make_vocab_size_divisible_by"},
    {"--max-position-embeddings", "model.model_config.max_position_embeddings"},
    {"--micro-batch-size", "tokens.micro_batch_size"},
    {"--num-attention-heads", "model.model_config.num_attention_heads"},
    {"--num-layers", "model.model_config.num_hidden_layers"},
    {"--num-query-groups", "model.model_config.num_key_value_heads"},
    {"--pipeline-model-parallel-size", "parallelism.pp"},
    {"--seq-length", "tokens.sequence_length"},
    {"--tensor-model-parallel-size", "parallelism.tp"},
});

/// What Megatron itself does is no reason for another program.
constexpr auto megatron_phrases = std::to_array<KeyOfFlag>({
    {"Megatron refuses this, too", "no such run is possible: correct one of them"},
    {": one stage, as in Megatron", ": one stage"},
    {", as Megatron does since March 2023; for an older version, which sends parts, set",
     "; for a program that sends parts, set"},
});

std::span<const KeyOfFlag> keys_of(std::string_view format) {
    if (format == "neox") {
        return neox_keys;
    }
    if (format == "nemo") {
        return nemo_keys;
    }
    return format == "nanotron" ? std::span<const KeyOfFlag>(nanotron_keys)
                                : std::span<const KeyOfFlag>();
}

bool ends_word(std::string_view rest) {
    return rest.empty() || !((rest[0] >= 'a' && rest[0] <= 'z') || rest[0] == '-' ||
                             (rest[0] >= '0' && rest[0] <= '9'));
}

}  // namespace

std::string in_keys_of(std::string_view format, std::string_view text) {
    const std::span<const KeyOfFlag> keys = keys_of(format);
    std::string result;
    while (!text.empty()) {
        const auto stands_here = [text](const KeyOfFlag& of) {
            return text.starts_with(of.flag) && ends_word(text.substr(of.flag.size()));
        };
        const auto key = std::ranges::find_if(keys, stands_here);
        const auto* const phrase = std::ranges::find_if(megatron_phrases, stands_here);
        if (key != keys.end()) {
            result += key->key;
            text.remove_prefix(key->flag.size());
        } else if (!keys.empty() && phrase != megatron_phrases.end()) {
            result += phrase->key;
            text.remove_prefix(phrase->flag.size());
        } else {
            result += text.front();
            text.remove_prefix(1);
        }
    }
    return result;
}

Error in_keys_of(std::string_view format, const Error& error) {
    Hint hint = error.advice();
    hint.form = in_keys_of(format, hint.form);
    return error.with_text(in_keys_of(format, error.text())).with_hint(std::move(hint));
}

}  // namespace pipetwin::cli
