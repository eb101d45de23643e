// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "exec/device/window_kernels.h"

/// Convolutions of the CPU by its own products (exec/cpu/products/products.h), of fp32, fp64 and
/// bf16. What a window reads is written into a row of a matrix, block by block of windows; the
/// scratch memory for it is the calling thread's, a few megabytes beside what a plan counts.
namespace pipetwin::exec {

/// y = skip + x * w + b; operands as WindowKernels::convolution_forward.
void convolve(
    const WindowShape& shape, ConstView x, ConstView w, ConstView b, ConstView skip, View y);

/// dx = skip + the gradient by x; operands as WindowKernels::convolution_backward_input.
void convolve_backward_input(
    const WindowShape& shape, ConstView dy, ConstView w, ConstView skip, View dx);

/// dw += the gradient by w; operands as WindowKernels::convolution_backward_weight.
void convolve_backward_weight(const WindowShape& shape, ConstView x, ConstView dy, View dw);

}  // namespace pipetwin::exec
