// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <type_traits>

#include "exec/cpu/loops.h"
#include "exec/cpu/products/product_scratch.h"
#include "exec/cpu/products/products.h"

/// What the attentions of a CPU are made of: products of parts of matrices.
namespace pipetwin::exec {

/// A matrix inside a larger one.
template <class T>
struct Block {
    T* data = nullptr;
    std::int64_t stride = 0;

    Factor factor(Transposed transposed = Transposed::No) const {
        return {.data = data,
                .type = dtype_of<std::remove_const_t<T>>,
                .stride = stride,
                .transposed = transposed};
    }
};

/// c (m, n) = a b over the inner dimension k.
struct BlockSizes {
    std::int64_t m = 0;
    std::int64_t n = 0;
    std::int64_t k = 0;
};

template <class T>
void multiply(const BlockSizes& sizes,
              const Factor& a,
              const Factor& b,
              Causal causal,
              Block<T> c,
              bool adds = false) {
    compute({.m = sizes.m,
             .n = sizes.n,
             .k = sizes.k,
             .a = a,
             .b = b,
             .c = c.data,
             .c_type = dtype_of<T>,
             .c_stride = c.stride,
             .skip = adds ? c.data : nullptr,
             .causal = causal});
}

/// Memory of a head's scores, or of their gradients: `rounded` itself where nothing is rounded.
template <class T>
Computed<T>* scores_of(T* rounded, std::int64_t positions) {
    if constexpr (std::is_same_v<T, Computed<T>>) {
        return rounded;
    } else {
        return score_scratch<Computed<T>>(positions * positions);
    }
}

}  // namespace pipetwin::exec
