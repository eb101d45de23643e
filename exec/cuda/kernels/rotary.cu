#include "exec/cuda/kernels/dispatch.h"

// Bound by memory: queries and keys are read and written once. A thread has `pack` pairs of a row
// and turns them in up to 8 heads, so that it finds their sines and cosines once for all of these.
namespace pipetwin::cuda {
namespace {

constexpr int block_size = 256;
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
__global__ void __launch_bounds__(block_size) rotate_kernel(Rotation o, T* qkv) {
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
            const dim3 grid(grid_for(rotation.rows * (rotation.pairs / pack), block_size),
                            static_cast<unsigned>(ceil_div(rotation.heads, heads_of_thread)));
            return launch<rotate_kernel<T, pack>>(
                grid, block_size, 0, stream, rotation, static_cast<T*>(qkv));
        };
        constexpr int pack = pack_size<T>;
        return are_aligned({qkv}) && rotation.pairs % pack == 0 && rotation.stride % pack == 0
                   ? start(std::integral_constant<int, pack>{})
                   : start(std::integral_constant<int, 1>{});
    });
}

}  // namespace pipetwin::cuda
