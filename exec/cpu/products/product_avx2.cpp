// SPDX-License-Identifier: Apache-2.0

// 6 x 2 vectors: 12 sums, 2 numbers of b and 1 of a in 16 registers.
namespace pipetwin::exec {
namespace {
constexpr int vector_bytes = 32;
constexpr int tile_rows = 6;
constexpr int tile_vectors = 2;
}  // namespace
}  // namespace pipetwin::exec
#define PIPETWIN_TARGET __attribute__((target("avx2,fma")))
#include "exec/cpu/products/product_kernel.h"

namespace pipetwin::exec {
void multiply_avx2(const Product& product) {
    multiply_any<float>(product);
}
}  // namespace pipetwin::exec
