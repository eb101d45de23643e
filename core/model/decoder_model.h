// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace pipetwin {

/// Indexer of sparse attention: for each query it chooses the keys that the heads look at
/// (DeepSeek-V3.2-Exp, section 2).
struct IndexerShape {
    int heads = 1;
    int width = 1;  ///< numbers of a head
    int keys = 1;   ///< keys that it chooses for a query
    /// The choice is that of a block before: no parameters and no scores.
    bool shared = false;

    bool operator==(const IndexerShape&) const = default;
};

/// Attention whose queries, keys and values come out of narrow rows (DeepSeek-V2, section 2.1).
struct LatentShape {
    int query_rank = 0;      ///< 0: queries are made from the whole row
    int key_value_rank = 1;  ///< of the row that all heads' keys and values are made from
    int rotary_width = 0;    ///< part of a key that carries the position, shared by all heads
    std::optional<IndexerShape> indexer{};

    bool operator==(const LatentShape&) const = default;
};

/// Attention over one row per token that is key and value of all heads, in a window, and over
/// further rows, each of which stands for several tokens before (DeepSeek-V4, section 2.3). Queries
/// come out of narrow rows, and groups of heads go into such.
struct CompressedShape {
    int query_rank = 1;
    int rotary_width = 0;   ///< part of a row that carries the position
    int output_groups = 1;  ///< of heads
    int output_rank = 1;    ///< of the row that each of them goes into
    int ratio = 0;          ///< tokens that a further row stands for; 0: there is none
    bool overlaps = false;  ///< a further row is made of twice as many tokens
    /// Chooses some of the further rows for each query; it makes its own keys as they are made.
    std::optional<IndexerShape> indexer{};

    bool operator==(const CompressedShape&) const = default;
};

/// Attention that carries a state from token to token in place of looking at pairs of them: the
/// gated delta rule (Yang et al., arXiv 2412.06464), as Qwen3-Next has it. Queries and keys have
/// the same heads.
struct LinearAttentionShape {
    int key_heads = 1;
    int key_width = 1;  ///< numbers per head in a query, and in a key
    int value_heads = 1;
    int value_width = 1;
    int convolution = 1;  ///< tokens that the convolution over queries, keys and values sees
    /// Kimi Delta Attention (arXiv 2510.26692): the state decays by a number for each of a key's in
    /// place of one per head, which comes out of a row of so many; 0: one per head.
    int decay_rank = 0;
    int gate_rank = 0;  ///< width of the row that the output's gate comes out of; 0: the model's

    bool operator==(const LinearAttentionShape&) const = default;
};

/// A state space in place of attention (Mamba-2: Dao and Gu, arXiv 2405.21060): a projection to a
/// gate, to what goes through the heads, to what writes to a head's state and what reads it, and to
/// a rate per head; a convolution over the middle three, the state space, a norm with the gate, and
/// a projection.
struct MambaShape {
    int heads = 1;
    int width = 1;                  ///< numbers of a head
    int state = 1;                  ///< numbers of the state for each of these
    int groups = 1;                 ///< of heads that share what writes to the state and reads it
    int convolution = 1;            ///< tokens that the convolution sees
    int chunk = 256;                ///< tokens of a chunk, inside of which all pairs meet
    bool bias = false;              ///< of both projections
    bool convolution_bias = false;  ///< of the convolution

    bool operator==(const MambaShape&) const = default;
};

/// The attention half of a block: heads, their widths, and which of its projections have a bias.
struct AttentionShape {
    int heads = 1;
    int key_value_heads = 1;  ///< heads in groups of heads / key_value_heads share keys and values
    int key_width = 1;        ///< numbers per head in a query, and in a key
    int value_width = 1;
    bool input_bias = false;   ///< of the projections to queries, keys and values
    bool output_bias = false;  ///< of the projection behind them
    bool head_norms = false;   ///< queries and keys are normalized head by head, gains shared
    std::optional<LatentShape> latent{};
    int window = 0;              ///< tokens that a query sees, itself included; 0: all before it
    int first_window_block = 0;  ///< the blocks before it see all
    /// Per block: whether it has the window. Empty: from `first_window_block` on.
    std::vector<bool> window_blocks{};
    bool own_norms = false;  ///< as `head_norms`, with a gain for every number of all heads
    bool rotary = true;      ///< queries and keys are rotated where no position is learned
    bool gated = false;      ///< the output is multiplied by a gate as wide as the queries
    bool sinks = false;      ///< a number per head that stands beside the scores
    std::optional<LinearAttentionShape> linear{};
    /// Per block: whether it has linear attention in place of the other. Empty: all have it, where
    /// `linear` is there.
    std::vector<bool> linear_blocks{};
    std::optional<MambaShape> mamba{};            ///< in place of attention
    std::optional<CompressedShape> compressed{};  ///< of heads that share keys and values
    /// An indexer beside heads that are not latent: queries come out of the whole row, and queries
    /// and keys have a norm without a bias (MiniMax-M3).
    std::optional<IndexerShape> indexer{};
    bool values_are_keys = false;  ///< no matrix makes the values
    bool value_norms = false;      ///< as `head_norms`, without gains
    bool head_gate = false;        ///< a number per head multiplies its output
    /// Rows of a table that adds a number per head to a score, by distance; 0: there is none.
    int distance_buckets = 0;
    bool distances_in_every_block = false;  ///< else the first block's table is that of all

    bool operator==(const AttentionShape&) const = default;
};

/// The feed-forward halves that send each token through a few of many.
struct ExpertShape {
    int count = 0;
    int per_token = 1;
    int width = 1;  ///< inner width of each
    /// Width of the rows that the experts read and write, where matrices lead from the model's to
    /// it and back; 0: they have that of the model.
    int latent_width = 0;
    bool latent_norm = false;  ///< in front of the matrix back
    int shared_width = 0;      ///< inner width of what every token goes through besides
    bool shared_gate = false;  ///< a number per token weighs that
    bool bias = false;         ///< of the experts' matrices
    bool router_bias = false;  ///< a number per expert, added to its scores or to the choice
    int fixed_blocks = 0;  ///< the first blocks, whose tokens say their experts: no `router_bias`
    bool router_gain = false;  ///< of the row that the router reads, and of each expert

    bool operator==(const ExpertShape&) const = default;
};

/// Adapters that are trained in place of the weights (LoRA: Hu et al., arXiv 2106.09685): beside a
/// product of a matrix (n, m) one of (n, rank) and one of (rank, m), whose result is added.
struct AdapterShape {
    int rank = 1;
    bool inputs = true;    ///< beside the product that makes queries, keys and values
    bool outputs = true;   ///< beside the one behind attention
    bool inner = true;     ///< beside the first products of feed-forward halves and of each expert
    bool outer = true;     ///< beside their last
    bool dropout = false;  ///< rows go through dropout in front of them
    bool ends = false;     ///< embedding and head are trained, too

    bool operator==(const AdapterShape&) const = default;
};

/// A published language model: an embedding, blocks of an attention and a feed-forward half with
/// their residual connections, and a head of a norm and a projection to the vocabulary. With
/// `encoder_blocks` there is a second stack before it, whose output every block of the first reads
/// through a second attention.
struct DecoderModel {
    std::string family{};  ///< as in the file: "llama"
    int blocks = 1;
    int width = 1;
    int vocabulary = 1;
    int context = 0;            ///< tokens per sample that it was trained for; 0: not known
    int learned_positions = 0;  ///< rows of a table of positions; 0: they are rotated in
    AttentionShape attention{};
    std::vector<AttentionShape> other_attentions{};
    /// Per block: `no_half`: it has none, 1: it has `attention`, 2, 3, ...: one of the others, in
    /// their order. Empty: all have the first.
    std::vector<int> attention_kinds{};
    int feed_forward = 1;  ///< inner width
    /// Per block: the inner width, where blocks differ; `no_half`: the block has no feed-forward
    /// half. That of a block with experts says nothing. Empty: all have `feed_forward`.
    std::vector<int> feed_forward_widths{};
    bool gated = true;               ///< two matrices in, one out; else one in, one out
    bool feed_forward_bias = false;  ///< of its matrices
    ExpertShape experts{};
    std::vector<bool> has_experts{};         ///< per block; empty: none has
    bool norm_bias = false;                  ///< layer norms with gain and bias; else gain alone
    bool dropout = false;                    ///< behind the embedding and each half
    bool tied = false;                       ///< the head's matrix is that of the embedding
    int further_blocks = 0;                  ///< in files of weights only, behind the blocks
    std::optional<std::string> precision{};  ///< "bf16", "fp16", "fp32"
    bool norm_gain = true;                   ///< false: norms have no parameters
    int attention_norms = 1;                 ///< norms as wide as the model in an attention half
    int feed_forward_norms = 1;              ///< norms as wide as the model in a feed-forward half
    bool norm_behind_attention = false;  ///< in files: "post_attention_layernorm" is such a norm
    bool is_part = false;                ///< a text model inside a larger one
    bool embedding_norm = false;         ///< behind the embedding
    bool final_norm = true;              ///< in front of the head's matrix
    bool head_bias = false;              ///< a number per word
    /// Width of the embedding's and the head's rows where matrices lead from it to the width of the
    /// model and back; 0: they have that width.
    int embedding_width = 0;
    int position_padding = 0;  ///< rows of the table of positions that no token has
    int encoder_blocks = 0;    ///< of as many heads and widths as the decoder's; 0: no encoder
    /// Blocks behind the last that predict further tokens (DeepSeek-V3, section 2.2): each of two
    /// norms, a matrix that makes one row of two, a block, and a norm. They share embedding and
    /// head.
    int prediction_blocks = 0;
    /// Blocks whose halves those of the former have; -1: the last one.
    int prediction_attention = -1;
    int prediction_feed_forward = -1;
    int activation_parameters = 0;  ///< numbers that the activation of a block learns
    /// Rows of the residual for each token, which a half reads one mixture of and writes back to
    /// (manifold-constrained hyper-connections: DeepSeek-V4, section 2.2); 1: a plain residual.
    int streams = 1;
    /// Blocks between those that keep what the residual has become, and begin a new one; each half
    /// reads a mixture of all that is kept (attention residuals, Kimi K3); 0: a plain residual.
    int residual_blocks = 0;
    int block_numbers = 0;  ///< that scale a block; they count in its feed-forward half
    /// None: all weights are trained.
    std::optional<AdapterShape> adapters{};
    std::string blocks_key{};            ///< the file's key of `blocks`
    std::string positions_key{};         ///< the file's key of `learned_positions`
    std::string precision_key{};         ///< the file's key of the precision; empty: none
    std::string precision_word{};        ///< the file's word for the precision; empty: no word
    std::string precision_value{};       ///< the value that stands there, as errors show it
    std::string quantization{};          ///< the file's quantization method; empty: none
    std::vector<std::string> remarks{};  ///< what a user of the counts has to know

    bool operator==(const DecoderModel&) const = default;
};

/// Stands for a half that a block does not have.
constexpr int no_half = 0;

/// False where a block is a feed-forward half alone.
bool has_attention(const DecoderModel& model, int block);

/// False where a block is an attention half alone.
bool has_feed_forward(const DecoderModel& model, int block);

/// The attention of a block that has one.
const AttentionShape& attention_in(const DecoderModel& model, int block);

/// Inner width of the feed-forward half of a block that has one without experts.
int feed_forward_width(const DecoderModel& model, int block);

/// True if the feed-forward half of the block is a mixture of experts.
bool has_experts(const DecoderModel& model, int block);

/// True if the block has linear attention.
bool has_linear_attention(const DecoderModel& model, int block);

/// Rows of the residual that a half of the block leaves for each token.
int residual_rows(const DecoderModel& model, int block);

/// Width of the rows that experts read and write.
int expert_row(const DecoderModel& model);

/// The blocks whose attention and feed-forward half are those of blocks that predict further
/// tokens.
int prediction_attention(const DecoderModel& model);
int prediction_feed_forward(const DecoderModel& model);

/// Tokens that a query of the block sees at most, itself included; 0: all before it.
int window_of(const DecoderModel& model, int block);

/// Number of parameters of the embedding, positions included. A matrix that head and embedding
/// share counts here.
std::int64_t embedding_parameters(const DecoderModel& model);
/// Number of parameters of the attention half of a block, its norms included; 0: it has none. In a
/// model with an encoder that is a block of the decoder, with both of its attentions.
std::int64_t attention_parameters(const DecoderModel& model, int block = 0);
/// Number of parameters of the feed-forward half of a block, its norms and its experts included; 0:
/// it has none.
std::int64_t feed_forward_parameters(const DecoderModel& model, int block);
/// Part of these: of the experts that a router chooses from, without shared ones and router.
std::int64_t routed_parameters(const DecoderModel& model, int block);
/// Number of parameters of the attention half of a block of the encoder.
std::int64_t encoder_attention_parameters(const DecoderModel& model, int block);
/// Number of parameters of the norm behind the encoder.
std::int64_t encoder_norm_parameters(const DecoderModel& model);
/// Number of parameters of one block that predicts a further token.
std::int64_t prediction_parameters(const DecoderModel& model);
/// Number of parameters of the head, its norm included; without a matrix that the embedding shares.
std::int64_t head_parameters(const DecoderModel& model);
/// Numbers of the adapters of a half of a block, of a block with attention that is neither latent
/// nor linear nor compressed; and of those of routed experts alone.
std::int64_t attention_adapters(const DecoderModel& model, int block);
std::int64_t feed_forward_adapters(const DecoderModel& model, int block);
std::int64_t routed_adapters(const DecoderModel& model, int block);
/// Number of parameters that are trained: all, or those of the adapters, and of embedding and head
/// where they are.
std::int64_t trained_parameters(const DecoderModel& model);
/// Number of parameters of the whole model, each once; without blocks that predict further tokens.
std::int64_t parameter_count(const DecoderModel& model);
/// Number of parameters of the matrix that head and embedding share, or that blocks which predict
/// further tokens share with the embedding; 0: nothing is shared.
std::int64_t shared_embedding_parameters(const DecoderModel& model);

}  // namespace pipetwin
