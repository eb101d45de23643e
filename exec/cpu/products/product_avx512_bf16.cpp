// SPDX-License-Identifier: Apache-2.0

// Products with AVX512-BF16, made as those of product_avx512.cpp: an instruction multiplies 16
// pairs of bf16.
namespace pipetwin::exec {
namespace {
constexpr int vector_bytes = 64;
constexpr int tile_rows = 12;
constexpr int tile_vectors = 2;
}  // namespace
}  // namespace pipetwin::exec
#define PIPETWIN_TARGET \
    __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx512bf16,avx2,fma")))
#include "exec/cpu/products/product_kernel.h"
//
#include "exec/cpu/products/product_pairs.h"

namespace pipetwin::exec {
void multiply_avx512_bf16(const Product& product) {
    multiply_any<BFloat16Pair>(product);
}
}  // namespace pipetwin::exec
