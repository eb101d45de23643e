// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/model/gelu_form.h"
#include "core/model/rotary.h"
#include "core/model/routing.h"

namespace pipetwin {

class Model;

/// Sizes of a GPT: pre-norm blocks, learned positions, GELU, head without bias.
struct GptSizes {
    int layers = 0;
    int d_model = 0;
    int heads = 0;
    int context = 0;
    int vocabulary = 0;
    int feed_forward = 0;  ///< 0: 4 * d_model
    bool tied = false;     ///< the head's matrix is the token table
    double dropout = 0;    ///< behind the embedding, and at the end of both halves of a block
    GeluForm gelu = GeluForm::Exact;

    bool operator==(const GptSizes&) const = default;
};

/// Units: "embedding", "block0.attention", "block0.feed_forward", ..., "head" (2 * layers + 2).
/// Attention unit: x + attention(norm(x)); feed-forward unit: x + linear(gelu(linear(norm(x))));
/// head: norm, linear without bias, cross-entropy.
Model gpt_model(const GptSizes& sizes);

/// Sizes of a Llama: pre-norm blocks with RMSNorm, rotary positions, grouped queries and SwiGLU; no
/// biases (Touvron et al., arXiv 2302.13971 and 2307.09288). With a router the blocks from
/// `dense_layers` on have experts in place of one feed-forward half (Mixtral, arXiv 2401.04088),
/// and beside these a half that all rows go through, where it has a width (DeepSeekMoE, arXiv
/// 2401.06066).
struct LlamaSizes {
    int layers = 0;
    int d_model = 0;
    int heads = 0;
    int key_value_heads = 0;  ///< 0: as many as heads
    int head_size = 0;        ///< 0: d_model / heads
    int context = 0;
    int vocabulary = 0;
    int feed_forward = 0;   ///< inner width
    bool tied = false;      ///< the head's matrix is the token table
    double epsilon = 1e-5;  ///< of the norms
    Rotary rotary{.base = 10'000};
    Routing routing{};            ///< of the experts; 0 of them: there are none
    int expert_feed_forward = 0;  ///< inner width of each expert
    int shared_feed_forward = 0;  ///< inner width of what all rows go through; 0: nothing
    int dense_layers = 0;         ///< blocks in front that have no experts

    /// Blocks whose feed-forward half is one of its own.
    int dense_blocks() const { return routing.experts == 0 ? layers : dense_layers; }
    bool operator==(const LlamaSizes&) const = default;
};

/// Units: "embedding", "block0.attention", "block0.feed_forward", ..., "head" (2 * layers + 2).
/// Attention unit: x + attention(norm(x)); feed-forward unit: x + linear(swiglu(linear(norm(x)))),
/// gates before values, or experts and what goes beside them; head: norm, linear, cross-entropy.
Model llama_model(const LlamaSizes& sizes);

/// Token tables that source, target and head of a translation model have.
enum class TranslationTables {
    Shared,      ///< one for all three
    TiedTarget,  ///< one for target and head, one for the source
    Separate     ///< one each
};

/// What a feed-forward half computes between its two matrices.
enum class FeedForwardActivation { Relu, Gelu };

/// Share of the loss that label smoothing takes from the target.
enum class Smoothing {
    All,    ///< all classes divide it among them, the target too (PyTorch)
    Others  ///< all classes but the target divide it among them (lingvo, tensor2tensor)
};

/// Sizes of a translation model: an encoder that reads a source and a decoder that writes a target,
/// pre-norm (Vaswani et al., arXiv 1706.03762; GPipe, arXiv 1811.06965, section 5, T(L, H, A)).
struct TranslationSizes {
    int layers = 0;  ///< of the encoder, and as many of the decoder
    int d_model = 0;
    int heads = 0;
    int head_size = 0;     ///< 0: d_model / heads
    int feed_forward = 0;  ///< 0: 4 * d_model
    int vocabulary = 320;  ///< of source and target
    int source_context = 0;
    int target_context = 0;
    TranslationTables tables = TranslationTables::Shared;
    FeedForwardActivation activation = FeedForwardActivation::Relu;
    GeluForm gelu = GeluForm::Exact;  ///< of an activation that is GELU
    bool learned_positions = false;   ///< else sinusoids
    double label_smoothing = 0;
    Smoothing smoothing = Smoothing::All;
    double dropout = 0;  ///< behind the embedding, and at the end of all parts of a block

    bool operator==(const TranslationSizes&) const = default;
};

/// Units: "embedding", "target", "source", "encoder0.attention", "encoder0.feed_forward", ...,
/// "memory", "decoder0.attention", "decoder0.cross_attention", "decoder0.feed_forward", ..., "head"
/// (5 * layers + 5). A sample is its source's token ids and then its target's; "memory", the norm
/// behind the encoder, is read by every cross attention.
Model translation_model(const TranslationSizes& sizes);

}  // namespace pipetwin
