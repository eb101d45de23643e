// SPDX-License-Identifier: Apache-2.0

// 12 x 2 vectors: 24 sums and 2 vectors of b in 32 registers.
namespace pipetwin::exec {
namespace {
constexpr int vector_bytes = 64;
constexpr int tile_rows = 12;
constexpr int tile_vectors = 2;
}  // namespace
}  // namespace pipetwin::exec
#define PIPETWIN_TARGET __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx2,fma")))
#include "exec/cpu/products/product_kernel.h"

namespace pipetwin::exec {
void multiply_avx512(const Product& product) {
    multiply_any<float>(product);
}
}  // namespace pipetwin::exec
