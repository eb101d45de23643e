#pragma once

#include <cstdint>

#include <cuda_runtime_api.h>

#include "exec/cuda/kernels/kernels.h"

/// Attention in which every query sees all keys of its sample that are no padding, and keys may be
/// those of another sequence. In fp32 and bf16, for heads of any size, with all sums in fp32; the
/// same bits for the same call on every run, however much padding lies behind a sample's keys.
namespace pipetwin::cuda {

/// Sizes of one attention to padded keys.
struct PaddedAttentionShape {
    std::int64_t samples;
    std::int64_t positions;      ///< queries of a sample
    std::int64_t key_positions;  ///< keys of a sample, padding included
    std::int64_t heads;
    std::int64_t head_size;

    /// Columns of all queries, of all keys, of all values, and of the context.
    constexpr std::int64_t width() const { return heads * head_size; }
    /// Numbers of the probabilities.
    constexpr std::int64_t scores() const { return samples * heads * positions * key_positions; }
};

/// Operands that forward and backward share. All in device memory, of one type but the lengths.
struct PaddedAttention {
    PaddedAttentionShape shape{};
    const void* q = nullptr;    ///< the first query; heads lie side by side
    const void* k = nullptr;    ///< the first key; its value lies width() columns behind it
    std::int64_t q_stride = 0;  ///< numbers from one query to the next
    std::int64_t k_stride = 0;  ///< numbers from one key to the next
    const std::int32_t* lengths =
        nullptr;  ///< (samples) keys that are no padding, 1 to key_positions
};

/// Per sample and head: P = softmax(Q K^T / sqrt(head_size)) over the keys before the sample's
/// length, context = P V. probabilities (samples * heads * positions, key_positions) = P, not
/// written at padding; context (samples * positions, width). Returns cudaErrorInvalidValue, and
/// launches nothing, for a shape without heads or with more rows than a grid can have.
cudaError_t padded_attention_forward(Real real,
                                     const PaddedAttention& attention,
                                     void* probabilities,
                                     void* context,
                                     cudaStream_t stream);

/// Numbers of the type `real` that padded_attention_backward works in: dS and dQ.
constexpr std::int64_t padded_attention_scratch(const PaddedAttentionShape& shape) {
    return shape.scores() + shape.samples * shape.positions * shape.width();
}

/// dq = dQ and dk = dK | dV, 0 at padding, with the strides of q and k, in whose places they may
/// be. `probabilities` is the forward's. Refuses what the forward refuses.
cudaError_t padded_attention_backward(Real real,
                                      const PaddedAttention& attention,
                                      const void* probabilities,
                                      const void* dcontext,
                                      void* dq,
                                      void* dk,
                                      void* scratch,
                                      cudaStream_t stream);

}  // namespace pipetwin::cuda
