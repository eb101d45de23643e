// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "exec/device/tensor.h"

/// Matrix products of the CPU, one thread, of fp32, bf16 (computed in fp32) and fp64.
namespace pipetwin::exec {

/// Whether a factor is used as it lies in memory or transposed.
enum class Transposed { No, Yes };

/// A row-major matrix inside a larger one: `stride` elements from row to row.
struct Factor {
    const void* data = nullptr;
    DType type = DType::F32;
    std::int64_t stride = 0;
    Transposed transposed = Transposed::No;
};

/// Which half of a product lies above a diagonal and is not computed; rows and columns of the
/// triangle are positions. What is read of it is zero from the diagonal on to the right for at
/// least `causal_margin` numbers.
enum class Causal {
    No,
    Result,       ///< of c only what is not right of the diagonal, and undefined numbers beside it
    A,            ///< a is zero right of the diagonal
    ATransposed,  ///< the matrix that a is the transpose of is
};
/// Numbers right of the diagonal that are zero.
inline constexpr std::int64_t causal_margin = 16;

/// A product c = a b + (skip) + (bias); skip and bias may be null.
///
/// a (m, k) and b (k, n) after they were transposed, c (m, n). fp64 goes with fp64 alone; else each
/// may be fp32 or bf16. The sums are fp32 (or fp64) until c is stored.
///
/// The bits of a number of c depend on its row of a, its column of b and k, on nothing else: not on
/// m, n, strides, addresses, or the machine as long as it has fused multiply-add: k is cut into
/// blocks of 384, a block is summed in order with fused multiply-add, skip and bias are added to
/// the first, and then the others in order. Products of bf16 with bf16 are exceptions on machines
/// with instructions for them: `compute_by_pairs`, or oneDNN where it is faster
/// (exec/cpu/products/onednn_products.h).
struct Product {
    std::int64_t m = 0;
    std::int64_t n = 0;
    std::int64_t k = 0;
    Factor a;
    Factor b;
    void* c = nullptr;
    DType c_type = DType::F32;
    std::int64_t c_stride = 0;
    const void* skip =
        nullptr;  ///< (m, n), of c's type and stride; c itself: added to what it holds
    const void* bias = nullptr;  ///< (n), of c's type
    Causal causal = Causal::No;
};
/// Computes a product on the calling thread.
void compute(const Product& product);

/// True if the processor multiplies pairs of bf16 (AVX512-BF16).
bool multiplies_bf16();
/// Computes a product of bf16 with bf16 by pairs. An instruction adds the two products of a pair to
/// the sum, and counts denormals as zero. The bits of a number of c depend on its row of a, its
/// column of b and k alone here, too: blocks have a depth of 2048, and a pair begins at an even
/// place.
void compute_by_pairs(const Product& product);

/// Name of the kernels that this machine uses: "avx512f", "avx2", "baseline".
std::string_view product_kernel();

/// Names of all kernels that this machine can run; for tests.
std::vector<std::string_view> product_kernels();
/// Computes a product by the kernels of this name; for tests.
void compute_with(std::string_view kernel, const Product& product);

}  // namespace pipetwin::exec
