// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "exec/cuda/kernels/attention/attention.h"
#include "exec/cuda/kernels/attention/attention_paths.h"
#include "exec/cuda/kernels/dispatch.h"

namespace pipetwin::cuda {
namespace {

constexpr int dots_per_block = rows_per_block<warp_lanes>;

bool accepted(const AttentionShape& shape, const AttentionInputs& inputs) {
    if (shape.is_causal() != (inputs.lengths == nullptr)) {
        return false;
    }
    if (shape.samples < 0 || shape.positions < 0 || shape.key_value_heads < 1 || shape.heads < 1 ||
        shape.heads % shape.key_value_heads != 0 || shape.head_size < 1 ||
        shape.head_size > largest_head || shape.padded_keys < 0) {
        return false;
    }
    // A grid has at most 2^31 - 1 blocks, those of the dots are the most; a row is counted in an
    // int.
    const std::int64_t heads = std::int64_t{shape.samples} * shape.heads;
    constexpr std::int64_t most = std::numeric_limits<int>::max();
    const int longer = std::max(shape.positions, shape.padded_keys);
    return longer <= most - 2 * largest_head && heads <= most &&
           (heads == 0 || ceil_divide(longer, dots_per_block) <= most / heads);
}

bool empty(const AttentionShape& shape) {
    return shape.samples == 0 || shape.positions == 0;
}

/// row_dots = rowsum(dcontext * context), one warp for each row of a head; both are read once, 2
/// FLOP for each pair.
template <class T>
__global__ void __launch_bounds__(row_block)
    row_dots_kernel(AttentionLayout shape, const T* context, const T* dcontext, float* row_dots) {
    const std::int64_t index =
        std::int64_t{blockIdx.x} * dots_per_block + static_cast<int>(threadIdx.x) / warp_lanes;
    const std::int64_t rows = std::int64_t{shape.samples} * shape.heads * shape.positions;
    if (index >= rows) {  // a whole warp
        return;
    }
    const int head = static_cast<int>(index / shape.positions);
    const std::int64_t row = index % shape.positions;
    const Rows<const T> c = context_rows(shape, context, head);
    const Rows<const T> dc = context_rows(shape, dcontext, head);
    float sum = 0;
    for (int j = static_cast<int>(threadIdx.x) % warp_lanes; j < shape.head_size; j += warp_lanes) {
        sum =
            fmaf(to_float(dc.data[row * dc.stride + j]), to_float(c.data[row * c.stride + j]), sum);
    }
    sum = warp_sum(sum);
    if (threadIdx.x % warp_lanes == 0) {
        row_dots[index] = sum;
    }
}

template <class T>
cudaError_t find_row_dots(const AttentionShape& shape,
                          const T* context,
                          const T* dcontext,
                          float* row_dots,
                          cudaStream_t stream) {
    const auto blocks =
        static_cast<unsigned>(ceil_div(attention_backward_scratch(shape), dots_per_block));
    return launch<row_dots_kernel<T>>(
        blocks, row_block, 0, stream, layout_of(shape, nullptr), context, dcontext, row_dots);
}

template <class T>
Matrix<const T> queries_of(const AttentionInputs& inputs) {
    return {static_cast<const T*>(inputs.q), inputs.q_stride};
}

template <class T>
Matrix<const T> keys_of(const AttentionInputs& inputs) {
    return {static_cast<const T*>(inputs.k), inputs.k_stride};
}

template <class T>
AttentionForward<T> forward_call(const AttentionShape& shape,
                                 const AttentionInputs& inputs,
                                 void* context,
                                 float* log_sums) {
    return {layout_of(shape, inputs.lengths),
            queries_of<T>(inputs),
            keys_of<T>(inputs),
            static_cast<T*>(context),
            log_sums};
}

/// Whether the tensor cores' kernels, which read 16 bytes at once, can read the rows of matrices.
bool rows_are_aligned(std::initializer_list<std::int64_t> strides) {
    return std::all_of(strides.begin(), strides.end(), [](std::int64_t stride) {
        return stride % pack_size<Bf16> == 0;
    });
}

/// The place `count` numbers behind another one.
template <class Void>
Void* behind(Real real, Void* place, std::int64_t count) {
    using Bytes = std::conditional_t<std::is_const_v<Void>, const std::byte, std::byte>;
    const std::int64_t size = real == Real::F32 ? sizeof(float) : sizeof(Bf16);
    return static_cast<Bytes*>(place) + count * size;
}

// Writes no more than the gradients of padding; a thread has a number of a row of dK | dV.
constexpr int clear_threads = 256;

template <class T>
__global__ void __launch_bounds__(clear_threads)
    clear_padding_kernel(AttentionLayout shape, Matrix<T> dk) {
    const std::int64_t columns = 2 * shape.key_width;
    const std::int64_t size = std::int64_t{shape.samples} * shape.key_positions * columns;
    for (std::int64_t i = thread_of_grid(); i < size; i += threads_of_grid()) {
        const std::int64_t row = i / columns;
        const std::int64_t sample = row / shape.key_positions;
        if (row - sample * shape.key_positions >= shape.lengths[sample]) {
            dk.data[row * dk.stride + (i - row * columns)] = from_float<T>(0);
        }
    }
}

// Rotary positions. Bound by memory: queries and keys are read and written once. A thread has
// `pack` pairs of a row and turns them in up to 8 heads, so that it finds their sines and cosines
// once for all of these.
constexpr int turn_threads = 256;
constexpr int heads_of_thread = 8;

/// Sine and cosine of an angle.
struct Direction {
    float sine;
    float cosine;
};

// Whole turns are taken off in fp64, so that no digit is lost at large positions.
__device__ __forceinline__ Direction direction_of(double angle) {
    constexpr double turn = 6.283185307179586476925286766559;
    const auto left = static_cast<float>(angle - rint(angle / turn) * turn);
    return {sinf(left), cosf(left)};
}

template <class T, int pack>
__global__ void __launch_bounds__(turn_threads) rotate_kernel(Rotation o, T* qkv) {
    const std::int64_t packs = o.pairs / pack;
    const std::int64_t size = o.rows * packs;
    const int first_head = static_cast<int>(blockIdx.y) * heads_of_thread;
    const int behind = first_head + heads_of_thread;
    const int end_head = behind < o.heads ? behind : o.heads;
    for (std::int64_t i = thread_of_grid(); i < size; i += threads_of_grid()) {
        const std::int64_t row = i / packs;
        const std::int64_t pair = (i - row * packs) * pack;
        const auto position = static_cast<double>(row % o.positions);
        Direction directions[static_cast<std::size_t>(pack)];
        PIPETWIN_UNROLL
        for (int k = 0; k < pack; ++k) {
            directions[k] = direction_of(position * o.frequencies[pair + k]);
        }
        T* const own = qkv + row * o.stride + pair;
        for (int head = first_head; head < end_head; ++head) {
            T* const first = own + 2 * head * o.pairs;
            T* const second = first + o.pairs;
            const Pack<T, pack> from_a = load_pack<T, pack>(first);
            const Pack<T, pack> from_b = load_pack<T, pack>(second);
            Pack<T, pack> to_a;
            Pack<T, pack> to_b;
            PIPETWIN_UNROLL
            for (int k = 0; k < pack; ++k) {
                const float a = to_float(from_a.at[k]);
                const float b = to_float(from_b.at[k]);
                const Direction at = directions[k];
                to_a.at[k] = from_float<T>(a * at.cosine - b * at.sine);
                to_b.at[k] = from_float<T>(b * at.cosine + a * at.sine);
            }
            store_pack<T, pack>(first, to_a);
            store_pack<T, pack>(second, to_b);
        }
    }
}

}  // namespace

float attention_scale(const AttentionLayout& shape) {
    return static_cast<float>(1 / std::sqrt(static_cast<double>(shape.head_size)));
}

AttentionInputs inputs_in_one(Real real, const AttentionShape& shape, const void* qkv) {
    AttentionInputs inputs;
    inputs.q = qkv;
    inputs.k = behind(real, qkv, shape.query_width());
    inputs.q_stride = inputs.k_stride = shape.qkv_width();
    return inputs;
}

AttentionGradients gradients_in_one(Real real, const AttentionShape& shape, void* dqkv) {
    return {dqkv, behind(real, dqkv, shape.query_width()), shape.qkv_width(), shape.qkv_width()};
}

cudaError_t attention_forward(Real real,
                              const AttentionShape& shape,
                              const AttentionInputs& inputs,
                              void* context,
                              float* log_sums,
                              cudaStream_t stream) {
    if (!accepted(shape, inputs)) {
        return cudaErrorInvalidValue;
    }
    if (empty(shape)) {
        return cudaSuccess;
    }
    if (real == Real::F32) {
        return plain_forward(forward_call<float>(shape, inputs, context, log_sums), stream);
    }
    const auto call = forward_call<Bf16>(shape, inputs, context, log_sums);
    const bool tensor_cores = tensor_cores_take(shape.head_size) &&
                              are_aligned({inputs.q, inputs.k, context}) &&
                              rows_are_aligned({inputs.q_stride, inputs.k_stride});
    return tensor_cores ? tensor_core_forward(call, stream) : plain_forward(call, stream);
}

cudaError_t attention_backward(Real real,
                               const AttentionShape& shape,
                               const AttentionInputs& inputs,
                               const void* context,
                               const float* log_sums,
                               const void* dcontext,
                               const AttentionGradients& gradients,
                               float* scratch,
                               cudaStream_t stream) {
    if (!accepted(shape, inputs)) {
        return cudaErrorInvalidValue;
    }
    if (empty(shape)) {
        return cudaSuccess;
    }
    const auto run = [&](auto type, auto find_gradients) {
        using T = decltype(type);
        const auto* const dc = static_cast<const T*>(dcontext);
        const cudaError_t error =
            find_row_dots(shape, static_cast<const T*>(context), dc, scratch, stream);
        if (error != cudaSuccess) {
            return error;
        }
        const AttentionBackward<T> call{layout_of(shape, inputs.lengths),
                                        queries_of<T>(inputs),
                                        keys_of<T>(inputs),
                                        log_sums,
                                        dc,
                                        {static_cast<T*>(gradients.dq), gradients.q_stride},
                                        {static_cast<T*>(gradients.dk), gradients.k_stride},
                                        scratch};
        return find_gradients(call, stream);
    };
    if (real == Real::F32) {
        return run(float{}, plain_backward<float>);
    }
    const bool tensor_cores =
        tensor_cores_take(shape.head_size) &&
        are_aligned({inputs.q, inputs.k, dcontext, gradients.dq, gradients.dk}) &&
        rows_are_aligned(
            {inputs.q_stride, inputs.k_stride, gradients.q_stride, gradients.k_stride});
    return run(Bf16{}, tensor_cores ? tensor_core_backward : plain_backward<Bf16>);
}

cudaError_t clear_padding(Real real,
                          const AttentionShape& shape,
                          const std::int32_t* lengths,
                          const AttentionGradients& gradients,
                          cudaStream_t stream) {
    if (shape.is_causal() || lengths == nullptr) {
        return cudaErrorInvalidValue;
    }
    const AttentionLayout layout = layout_of(shape, lengths);
    const std::int64_t size =
        std::int64_t{layout.samples} * layout.key_positions * 2 * layout.key_width;
    if (size == 0) {
        return cudaSuccess;
    }
    return with_real(real, [=](auto zero) {
        using T = decltype(zero);
        const Matrix<T> dk{static_cast<T*>(gradients.dk), gradients.k_stride};
        return launch<clear_padding_kernel<T>>(
            grid_for(size, clear_threads), clear_threads, 0, stream, layout, dk);
    });
}

cudaError_t rotate(Real real, const Rotation& rotation, void* qkv, cudaStream_t stream) {
    if (rotation.pairs > most_rotary_pairs) {
        return cudaErrorInvalidValue;
    }
    if (rotation.rows <= 0 || rotation.heads <= 0 || rotation.pairs <= 0) {
        return cudaSuccess;
    }
    return with_real(real, [=](auto zero) {
        using T = decltype(zero);
        const auto start = [=](auto size) {
            constexpr int pack = decltype(size)::value;
            const dim3 grid(grid_for(rotation.rows * (rotation.pairs / pack), turn_threads),
                            static_cast<unsigned>(ceil_div(rotation.heads, heads_of_thread)));
            return launch<rotate_kernel<T, pack>>(
                grid, turn_threads, 0, stream, rotation, static_cast<T*>(qkv));
        };
        constexpr int pack = pack_size<T>;
        return are_aligned({qkv}) && rotation.pairs % pack == 0 && rotation.stride % pack == 0
                   ? start(std::integral_constant<int, pack>{})
                   : start(std::integral_constant<int, 1>{});
    });
}

}  // namespace pipetwin::cuda
