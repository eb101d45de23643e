// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "exec/cpu/products/bfloat16.h"

/// The CPU's loops over the columns of a matrix, on bare pointers, for T = float, double and
/// BFloat16; numbers of BFloat16 are stored so, and computed as float. Formulas:
/// exec/device/column_kernels.h.
namespace pipetwin::exec {

/// Rows and columns of one block, cut into groups of as many columns.
struct NormBlock {
    std::size_t rows = 0;
    std::size_t columns = 0;
    std::size_t groups = 0;
};
/// Means and sums of squares around them of the block's columns: `moments` (2, columns).
template <class T>
void column_moments(const NormBlock& block, const T* x, double* moments);
/// Operands of a norm's forward over one block. All may be null but x and statistics.
template <class T>
struct NormOperands {
    NormBlock block;
    const T* x = nullptr;
    const Computed<T>* statistics = nullptr;  ///< (2, groups)
    const T* gain = nullptr;
    const T* bias = nullptr;
    const T* dy = nullptr;
    const T* skip = nullptr;
};
/// y = skip + gain (x - mean) / sqrt(variance + epsilon) + bias.
template <class T>
void normalise(const NormOperands<T>& o, T* y);
/// The sums over the block's rows of dy and of dy times the normalised x: `sums` (2, columns).
template <class T>
void norm_sums(const NormOperands<T>& o, double* sums);
/// The gradient by x, from the block's sums; it may be x itself.
template <class T>
void norm_input_gradient(const NormOperands<T>& o, const double* sums, T* dx);

}  // namespace pipetwin::exec
