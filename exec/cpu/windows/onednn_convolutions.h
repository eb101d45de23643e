// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "exec/device/window_kernels.h"

/// Convolutions by oneDNN, of fp32, and of bf16 where the processor has instructions for it. The
/// library chooses the layout of the weights, so they are copied into it in every call; images stay
/// as they are. The copy and the library's own scratch are memory of the calling thread, beside
/// what a plan counts. Code is made once for each shape and thread. Bits depend on the machine,
/// too.
namespace pipetwin::exec {

/// y = skip + x * w + b; operands as WindowKernels::convolution_forward. Does nothing and returns
/// false where this build has no oneDNN, or oneDNN no fast code for such a convolution here.
bool onednn_convolution_forward(
    const WindowShape& shape, ConstView x, ConstView w, ConstView b, ConstView skip, View y);

/// dx = the gradient by x, without a skip; else as the forward.
bool onednn_convolution_backward_input(const WindowShape& shape,
                                       ConstView dy,
                                       ConstView w,
                                       View dx);

/// dw += the gradient by w; else as the forward.
bool onednn_convolution_backward_weight(const WindowShape& shape,
                                        ConstView x,
                                        ConstView dy,
                                        View dw);

}  // namespace pipetwin::exec
