#pragma once

#include <cstdint>

#include <cuda_runtime_api.h>

#include "exec/cuda/kernels/kernels.h"

/// Causal self-attention that never holds the probabilities: tiles of scores live in registers, and
/// the backward computes them again from one number per row. Source: FlashAttention-2 (Dao, arXiv
/// 2307.08691), algorithms 1 and 2, without its atomic additions.
///
/// Two paths. The tensor cores' takes BF16 where size of a head is 16, 32, 64, 96 or 128 and all
/// matrices begin at a multiple of 16 bytes; P and dS are rounded to bf16 for the products they
/// enter, all sums are fp32. The plain path takes what else there is, both types and any size of a
/// head up to 256, and computes in fp32 throughout. Both give the same bits for the same call on
/// every run: no atomics, every sum has one order.
namespace pipetwin::cuda {

/// Sizes of one self-attention: `samples` sequences of `positions`, `heads` heads that share the
/// width.
struct AttentionShape {
    int samples;
    int positions;
    int heads;
    int width;  ///< heads * size of a head
};

/// Per head: P = softmax(Q K^T / sqrt(size of a head) under the causal mask), context = P V.
///
/// n = samples * positions. qkv (n, 3 width) = Q | K | V, each with its heads side by side; context
/// (n, width); log_sums (samples * heads, positions) = log of the sum of exp of a row's scaled
/// scores. All in device memory, of type `real` but the log_sums. Returns cudaErrorInvalidValue,
/// and launches nothing, where heads do not divide the width or a head is larger than 256.
cudaError_t attention_forward(Real real,
                              const AttentionShape& shape,
                              const void* qkv,
                              void* context,
                              float* log_sums,
                              cudaStream_t stream);

/// Floats that attention_backward works in: one per row of each head.
constexpr std::int64_t attention_backward_scratch(const AttentionShape& shape) {
    return std::int64_t{shape.samples} * shape.heads * shape.positions;
}

/// dqkv (n, 3 width) = dQ | dK | dV, all of it written; it may not overlap what is read. `context`
/// and `log_sums` are the forward's; `scratch` has attention_backward_scratch(shape) floats.
/// Refuses what the forward refuses.
cudaError_t attention_backward(Real real,
                               const AttentionShape& shape,
                               const void* qkv,
                               const void* context,
                               const float* log_sums,
                               const void* dcontext,
                               void* dqkv,
                               float* scratch,
                               cudaStream_t stream);

}  // namespace pipetwin::cuda
