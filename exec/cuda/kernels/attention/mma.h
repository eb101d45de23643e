// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "exec/cuda/kernels/launch.h"

/// The tensor cores' instructions, for all 32 lanes of a warp together. With g = lane / 4 and t =
/// lane mod 4 ("Matrix Fragments for mma.m16n8k16" in the PTX ISA), two bf16 neighbours in a
/// register, the first in its lower half:
///
///     a (16, 16): a[0] row g, columns 2t, 2t+1    a[2] row g, columns 2t+8, 2t+9
///                 a[1], a[3]: the same in row g + 8
///     b (16, 8):  b[0] rows 2t, 2t+1 of column g  b[1] rows 2t+8, 2t+9 of column g
///     c (16, 8):  c[0], c[1] row g, columns 2t, 2t+1   c[2], c[3]: the same in row g + 8
// NOLINTBEGIN(modernize-avoid-c-arrays): registers, as in device_math.h
namespace pipetwin::cuda {

#ifdef __CUDACC__

/// c += a b, products exact, sums in fp32.
__device__ __forceinline__ void multiply_16x8x16(float (&c)[4],
                                                 const std::uint32_t (&a)[4],
                                                 const std::uint32_t (&b)[2]) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

/// The address within shared memory, as PTX instructions take it.
__device__ __forceinline__ unsigned shared_address(const void* pointer) {
    return static_cast<unsigned>(__cvta_generic_to_shared(pointer));
}

/// Four 8 x 8 matrices of 16-bit elements from shared memory. Lanes 8i ... 8i+7 give the addresses
/// of matrix i's rows, each 16 bytes and so aligned; register i receives elements 2t, 2t+1 of row g
/// of matrix i.
__device__ __forceinline__ void load_matrices(std::uint32_t (&registers)[4], const void* row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(registers[0]), "=r"(registers[1]), "=r"(registers[2]), "=r"(registers[3])
                 : "r"(shared_address(row))
                 : "memory");
}
/// Four 8 x 8 matrices as in `load_matrices`, but register i receives elements 2t, 2t+1 of column g
/// of matrix i.
__device__ __forceinline__ void load_matrices_transposed(std::uint32_t (&registers)[4],
                                                         const void* row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(registers[0]), "=r"(registers[1]), "=r"(registers[2]), "=r"(registers[3])
                 : "r"(shared_address(row))
                 : "memory");
}

/// 16 bytes from global into shared memory, past the registers; both aligned to 16 bytes.
__device__ __forceinline__ void copy_async_16(void* to_shared, const void* from) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;"
                 :
                 : "r"(shared_address(to_shared)), "l"(__cvta_generic_to_global(from))
                 : "memory");
}
/// The calling thread's copies since the last commit become a group.
__device__ __forceinline__ void commit_copies() {
    asm volatile("cp.async.commit_group;" ::: "memory");
}
/// Waits until all but the latest `pending` groups of the calling thread have arrived. What other
/// threads copied takes their wait and a barrier.
template <int pending>
__device__ __forceinline__ void wait_for_copies() {
    asm volatile("cp.async.wait_group %0;" ::"n"(pending) : "memory");
}

#else

inline void multiply_16x8x16(float (&c)[4],
                             const std::uint32_t (&a)[4],
                             const std::uint32_t (&b)[2],
                             const char* file = __builtin_FILE(),
                             int line = __builtin_LINE()) {
    emulation::multiply_16x8x16(c, a, b, {file, line});
}
inline void load_matrices(std::uint32_t (&registers)[4],
                          const void* row,
                          const char* file = __builtin_FILE(),
                          int line = __builtin_LINE()) {
    emulation::load_matrices(registers, 4, false, row, {file, line});
}
inline void load_matrices_transposed(std::uint32_t (&registers)[4],
                                     const void* row,
                                     const char* file = __builtin_FILE(),
                                     int line = __builtin_LINE()) {
    emulation::load_matrices(registers, 4, true, row, {file, line});
}
inline void copy_async_16(void* to_shared, const void* from) {
    emulation::copy_async_16(to_shared, from);
}
inline void commit_copies() {
    emulation::commit_copies();
}
template <int pending>
void wait_for_copies() {
    emulation::wait_for_copies(pending);
}

#endif

}  // namespace pipetwin::cuda
// NOLINTEND(modernize-avoid-c-arrays)
