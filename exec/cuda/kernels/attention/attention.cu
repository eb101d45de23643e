#include <cmath>
#include <cstdint>
#include <limits>

#include "exec/cuda/kernels/attention/attention.h"
#include "exec/cuda/kernels/attention/attention_paths.h"
#include "exec/cuda/kernels/dispatch.h"

namespace pipetwin::cuda {
namespace {

constexpr int dots_per_block = rows_per_block<warp_lanes>;

bool accepted(const AttentionShape& shape) {
    if (shape.samples < 0 || shape.positions < 0 || shape.key_value_heads < 1 || shape.heads < 1 ||
        shape.heads % shape.key_value_heads != 0 || shape.head_size < 1 ||
        shape.head_size > largest_head) {
        return false;
    }
    // A grid has at most 2^31 - 1 blocks, those of the dots are the most; a row is counted in an
    // int.
    const std::int64_t heads = std::int64_t{shape.samples} * shape.heads;
    constexpr std::int64_t most = std::numeric_limits<int>::max();
    return shape.positions <= most - 2 * largest_head && heads <= most &&
           (heads == 0 || ceil_divide(shape.positions, dots_per_block) <= most / heads);
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
        blocks, row_block, 0, stream, layout_of(shape), context, dcontext, row_dots);
}

template <class T>
AttentionForward<T> forward_call(const AttentionShape& shape,
                                 const void* qkv,
                                 void* context,
                                 float* log_sums) {
    return {layout_of(shape), static_cast<const T*>(qkv), static_cast<T*>(context), log_sums};
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

cudaError_t attention_forward(Real real,
                              const AttentionShape& shape,
                              const void* qkv,
                              void* context,
                              float* log_sums,
                              cudaStream_t stream) {
    if (!accepted(shape)) {
        return cudaErrorInvalidValue;
    }
    if (empty(shape)) {
        return cudaSuccess;
    }
    if (real == Real::F32) {
        return plain_forward(forward_call<float>(shape, qkv, context, log_sums), stream);
    }
    const auto call = forward_call<Bf16>(shape, qkv, context, log_sums);
    const bool tensor_cores = tensor_cores_take(shape.head_size) && are_aligned({qkv, context});
    return tensor_cores ? tensor_core_forward(call, stream) : plain_forward(call, stream);
}

cudaError_t attention_backward(Real real,
                               const AttentionShape& shape,
                               const void* qkv,
                               const void* context,
                               const float* log_sums,
                               const void* dcontext,
                               void* dqkv,
                               float* scratch,
                               cudaStream_t stream) {
    if (!accepted(shape)) {
        return cudaErrorInvalidValue;
    }
    if (empty(shape)) {
        return cudaSuccess;
    }
    const auto run = [&](auto type, auto gradients) {
        using T = decltype(type);
        const auto* const dc = static_cast<const T*>(dcontext);
        const cudaError_t error =
            find_row_dots(shape, static_cast<const T*>(context), dc, scratch, stream);
        if (error != cudaSuccess) {
            return error;
        }
        const AttentionBackward<T> call{layout_of(shape),
                                        static_cast<const T*>(qkv),
                                        log_sums,
                                        dc,
                                        static_cast<T*>(dqkv),
                                        scratch};
        return gradients(call, stream);
    };
    if (real == Real::F32) {
        return run(float{}, plain_backward<float>);
    }
    const bool tensor_cores =
        tensor_cores_take(shape.head_size) && are_aligned({qkv, dcontext, dqkv});
    return run(Bf16{}, tensor_cores ? tensor_core_backward : plain_backward<Bf16>);
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
