#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace pipetwin {

/// Attention whose queries, keys and values come out of narrow rows (DeepSeek-V2, section 2.1).
struct LatentShape {
    int query_rank = 0;      ///< 0: queries are made from the whole row
    int key_value_rank = 1;  ///< of the row that all heads' keys and values are made from
    int rotary_width = 0;    ///< part of a key that carries the position, shared by all heads

    bool operator==(const LatentShape&) const = default;
};

/// The attention half of a block: heads, their widths, and which of its projections have a bias.
struct AttentionShape {
    int heads = 1;
    int key_value_heads = 1;  ///< heads in groups of heads / key_value_heads share keys and values
    int key_width = 1;        ///< numbers per head in a query, and in a key
    int value_width = 1;
    bool input_bias = false;   ///< of the projections to queries, keys and values
    bool output_bias = false;  ///< of the projection behind them
    bool head_norms = false;   ///< queries and keys are normalized head by head
    std::optional<LatentShape> latent{};
    int window = 0;              ///< tokens that a query sees, itself included; 0: all before it
    int first_window_block = 0;  ///< the blocks before it see all

    bool operator==(const AttentionShape&) const = default;
};

/// The feed-forward halves that send each token through a few of many.
struct ExpertShape {
    int count = 0;
    int per_token = 1;
    int width = 1;             ///< inner width of each
    int shared_width = 0;      ///< inner width of what every token goes through besides
    bool shared_gate = false;  ///< a number per token weighs that

    bool operator==(const ExpertShape&) const = default;
};

/// A published language model: an embedding, blocks of an attention and a feed-forward half with
/// their residual connections, and a head of a norm and a projection to the vocabulary.
struct DecoderModel {
    std::string family{};  ///< as in the file: "llama"
    int blocks = 1;
    int width = 1;
    int vocabulary = 1;
    int context = 0;            ///< tokens per sample that it was trained for; 0: not known
    int learned_positions = 0;  ///< rows of a table of positions; 0: they are rotated in
    AttentionShape attention{};
    int feed_forward = 1;            ///< inner width
    bool gated = true;               ///< two matrices in, one out; else one in, one out
    bool feed_forward_bias = false;  ///< of its matrices
    ExpertShape experts{};
    std::vector<bool> has_experts{};         ///< per block; empty: none has
    bool norm_bias = false;                  ///< layer norms with gain and bias; else gain alone
    bool dropout = false;                    ///< behind the embedding and each half
    bool tied = false;                       ///< the head's matrix is that of the embedding
    int further_blocks = 0;                  ///< in files of weights only, behind the blocks
    std::optional<std::string> precision{};  ///< "bf16", "fp16", "fp32"

    bool operator==(const DecoderModel&) const = default;
};

/// True if the feed-forward half of the block is a mixture of experts.
bool has_experts(const DecoderModel& model, int block);

/// Number of parameters of the embedding, positions included. A matrix that head and embedding
/// share counts here.
std::int64_t embedding_parameters(const DecoderModel& model);
/// Number of parameters of the attention half of any block, its norm included.
std::int64_t attention_parameters(const DecoderModel& model);
/// Number of parameters of the feed-forward half of a block, its norm and its experts included.
std::int64_t feed_forward_parameters(const DecoderModel& model, int block);
/// Number of parameters of the head, its norm included; without a matrix that the embedding shares.
std::int64_t head_parameters(const DecoderModel& model);

}  // namespace pipetwin
