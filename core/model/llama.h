#pragma once

#include "core/model/model.h"
#include "core/model/rotary.h"

namespace pipetwin {

/// Sizes of a Llama: pre-norm blocks with RMSNorm, rotary positions, grouped queries and SwiGLU; no
/// biases (Touvron et al., arXiv 2302.13971 and 2307.09288).
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

    bool operator==(const LlamaSizes&) const = default;
};

/// Units: "embedding", "block0.attention", "block0.feed_forward", ..., "head" (2 * layers + 2).
/// Attention unit: x + attention(norm(x)); feed-forward unit: x + linear(swiglu(linear(norm(x)))),
/// gates before values; head: norm, linear, cross-entropy.
Model llama_model(const LlamaSizes& sizes);

}  // namespace pipetwin
