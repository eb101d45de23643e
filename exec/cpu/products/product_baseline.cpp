// SPDX-License-Identifier: Apache-2.0

// 4 x 2 vectors, for any machine: 8 sums in the 16 registers that each has.
namespace pipetwin::exec {
namespace {
constexpr int vector_bytes = 16;
constexpr int tile_rows = 4;
constexpr int tile_vectors = 2;
}  // namespace
}  // namespace pipetwin::exec
#define PIPETWIN_TARGET
#include "exec/cpu/products/product_kernel.h"

namespace pipetwin::exec {
void multiply_baseline(const Product& product) {
    multiply_any<float>(product);
}
}  // namespace pipetwin::exec
