// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <initializer_list>
#include <type_traits>

#include "exec/cuda/kernels/device_math.h"
#include "exec/cuda/kernels/kernels.h"

/// Choice of types and grids in the host's halves of kernels.
namespace pipetwin::cuda {

/// f(T{}) with T = float or Bf16.
template <class F>
cudaError_t with_real(Real real, F&& f) {
    return real == Real::F32 ? f(float{}) : f(Bf16{});
}

/// Whether all addresses are multiples of 16 bytes.
inline bool are_aligned(std::initializer_list<const void*> addresses) {
    for (const void* const address : addresses) {
        if (reinterpret_cast<std::uintptr_t>(address) % 16 != 0) {
            return false;
        }
    }
    return true;
}

/// a / b rounded up; a >= 0, b > 0.
constexpr std::int64_t ceil_div(std::int64_t a, std::int64_t b) {
    return (a + b - 1) / b;
}

/// Blocks for a loop over `count` with a stride of the grid; enough for every GPU of today.
inline unsigned grid_for(std::int64_t count, std::int64_t per_block) {
    constexpr std::int64_t most = 8192;
    const std::int64_t blocks = ceil_div(count, per_block);
    return static_cast<unsigned>(blocks < 1 ? 1 : blocks < most ? blocks : most);
}

/// Threads of a block of a kernel of rows. Such a kernel gives a short row to a warp, a longer one
/// to a block.
constexpr int row_block = 256;
/// The longest row, in elements, that one warp works on.
constexpr std::int64_t short_row = 2048;
/// Rows of a block whose rows are shared by `threads` threads each.
template <int threads>
constexpr int rows_per_block = row_block / threads;

/// f(T{}, threads), the latter a std::integral_constant: how many share a row.
template <class F>
cudaError_t with_rows(Real real, std::int64_t width, F&& f) {
    return with_real(real, [&](auto zero) {
        return width <= short_row ? f(zero, std::integral_constant<int, warp_lanes>{})
                                  : f(zero, std::integral_constant<int, row_block>{});
    });
}

/// The row of the calling thread.
template <int threads>
__device__ __forceinline__ std::int64_t row_of_thread() {
    return static_cast<std::int64_t>(blockIdx.x) * rows_per_block<threads> + threadIdx.x / threads;
}

/// Launches a kernel on all `o.rows` rows, with `threads` threads to a row.
template <auto kernel, int threads, class Operands>
cudaError_t launch_rows(const Operands& o, cudaStream_t stream) {
    const auto grid = static_cast<unsigned>(ceil_div(o.rows, rows_per_block<threads>));
    return launch<kernel>(grid, row_block, 0, stream, o);
}

}  // namespace pipetwin::cuda
