// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include <cuda_runtime_api.h>

#include "exec/cuda/kernels/kernels.h"

/// For functions that host and device call.
#ifdef __CUDACC__
#define PIPETWIN_BOTH_SIDES __host__ __device__
#else
#define PIPETWIN_BOTH_SIDES
#endif

/// Attention that never holds the probabilities: tiles of scores live in registers, and the
/// backward computes them again from one number per row. Causal self-attention, and attention in
/// which every query sees all keys of its sample that are no padding, which may be those of another
/// sequence. Source: FlashAttention-2 (Dao, arXiv 2307.08691), algorithms 1 and 2, without its
/// atomic additions.
///
/// Two paths. The tensor cores' takes BF16 where size of a head is 16, 32, 64, 96 or 128 and all
/// rows begin at a multiple of 16 bytes; P and dS are rounded to bf16 for the products they enter,
/// all sums are fp32. The plain path takes what else there is, both types and any size of a head up
/// to 256, and computes in fp32 throughout. Both give the same bits for the same call on every run,
/// however much padding lies behind a sample's keys: no atomics, every sum has one order.
namespace pipetwin::cuda {

/// Sizes of one attention: `samples` sequences of `positions` queries; heads in groups of heads /
/// key_value_heads share keys and values, neighbours together.
struct AttentionShape {
    int samples;
    int positions;
    int heads;
    int key_value_heads;
    int head_size;
    /// Keys of a sample, padding included, where every query sees all that are no padding; 0: the
    /// keys are those of the queries' positions, and each query sees those up to its own.
    int padded_keys = 0;

    PIPETWIN_BOTH_SIDES constexpr bool is_causal() const { return padded_keys == 0; }
    /// Keys of a sample.
    PIPETWIN_BOTH_SIDES constexpr int key_positions() const {
        return is_causal() ? positions : padded_keys;
    }

    /// Columns of all queries, and of the context.
    PIPETWIN_BOTH_SIDES constexpr std::int64_t query_width() const {
        return std::int64_t{heads} * head_size;
    }
    /// Columns of all keys, and of all values.
    PIPETWIN_BOTH_SIDES constexpr std::int64_t key_width() const {
        return std::int64_t{key_value_heads} * head_size;
    }
    /// Columns of Q | K | V in one matrix.
    PIPETWIN_BOTH_SIDES constexpr std::int64_t qkv_width() const {
        return query_width() + 2 * key_width();
    }
    /// Heads that share keys and values.
    PIPETWIN_BOTH_SIDES constexpr int group() const { return heads / key_value_heads; }
};

/// The largest size of a head that the kernels take.
constexpr int largest_head = 256;

/// Operands that forward and backward read, of one type but the lengths.
struct AttentionInputs {
    const void* q = nullptr;    ///< the first query; heads lie side by side
    const void* k = nullptr;    ///< the first key; its value lies key_width() numbers behind it
    std::int64_t q_stride = 0;  ///< numbers from one query to the next
    std::int64_t k_stride = 0;  ///< numbers from one key to the next
    /// (samples) keys that are no padding, 1 to padded_keys; null for a causal attention.
    const std::int32_t* lengths = nullptr;
};

/// The inputs of a self-attention without padding: qkv (n, qkv_width) = Q | K | V.
AttentionInputs inputs_in_one(Real real, const AttentionShape& shape, const void* qkv);

/// Per head: P = softmax(Q K^T / sqrt(head_size)) over the keys that a query sees, context = P V,
/// with K and V of the head's group.
///
/// n = samples * positions. context (n, query_width); log_sums (samples * heads, positions) = log
/// of the sum of exp of a row's scaled scores. All in device memory, of type `real` but lengths and
/// log_sums. Returns cudaErrorInvalidValue, and launches nothing, where key_value_heads do not
/// divide heads, a head is larger than `largest_head`, or lengths are missing or needless.
cudaError_t attention_forward(Real real,
                              const AttentionShape& shape,
                              const AttentionInputs& inputs,
                              void* context,
                              float* log_sums,
                              cudaStream_t stream);

/// Floats that attention_backward works in: one per row of each head.
constexpr std::int64_t attention_backward_scratch(const AttentionShape& shape) {
    return std::int64_t{shape.samples} * shape.heads * shape.positions;
}

/// Where the gradients go, as AttentionInputs lie: dQ, and dK with dV key_width() numbers behind.
struct AttentionGradients {
    void* dq = nullptr;
    void* dk = nullptr;
    std::int64_t q_stride = 0;
    std::int64_t k_stride = 0;
};

/// The gradients of a self-attention without padding: dqkv (n, qkv_width) = dQ | dK | dV.
AttentionGradients gradients_in_one(Real real, const AttentionShape& shape, void* dqkv);

/// dQ, dK and dV, all of them written, 0 at padding; they may not overlap what is read. dK and dV
/// are sums over the heads of a group, in the order of the heads. `context` and `log_sums` are the
/// forward's; `scratch` has attention_backward_scratch(shape) floats. Refuses what the forward
/// refuses.
cudaError_t attention_backward(Real real,
                               const AttentionShape& shape,
                               const AttentionInputs& inputs,
                               const void* context,
                               const float* log_sums,
                               const void* dcontext,
                               const AttentionGradients& gradients,
                               float* scratch,
                               cudaStream_t stream);

/// Sets dK and dV to 0 at padding, for gradients that attention_backward did not make.
cudaError_t clear_padding(Real real,
                          const AttentionShape& shape,
                          const std::int32_t* lengths,
                          const AttentionGradients& gradients,
                          cudaStream_t stream);

/// Pairs of the largest head whose queries and keys can be turned.
constexpr int most_rotary_pairs = largest_head / 2;

/// Queries and keys that are turned by their positions: numbers i and i + pairs of a head are a
/// pair. Row r is at position r mod `positions` of its sample.
struct Rotation {
    std::int64_t rows = 0;
    std::int64_t stride = 0;  ///< numbers from one row to the next
    std::int32_t positions = 1;
    std::int32_t heads = 0;  ///< of queries and of keys, side by side at the beginning of a row
    std::int64_t pairs = 0;  ///< of a head: half its size
    /// [pair] Radians from one position to the next; negative ones turn back.
    double frequencies[most_rotary_pairs] = {};  // NOLINT(modernize-avoid-c-arrays): the device's
};

/// (a, b) --> (a cos - b sin, b cos + a sin) for every pair, by its position times its frequency,
/// in place. Returns cudaErrorInvalidValue for more pairs than most_rotary_pairs.
cudaError_t rotate(Real real, const Rotation& rotation, void* qkv, cudaStream_t stream);

}  // namespace pipetwin::cuda
