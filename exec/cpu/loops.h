// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include "core/model/gelu_form.h"
#include "exec/cpu/products/bfloat16.h"

/// Loops on bare pointers that several sources of the CPU's kernels share, for T = float, double
/// and BFloat16; numbers of BFloat16 are stored so, and computed as float.
namespace pipetwin::exec {

/// y += x.
template <class T, class Sum>
void add(const T* x, Sum* y, std::size_t size);
/// sums += the sum of the n rows of x, which are `width` numbers long.
template <class T>
void add_rows(const T* x, Computed<T>* sums, std::size_t n, std::size_t width);

}  // namespace pipetwin::exec
