// SPDX-License-Identifier: Apache-2.0
// The operations of `WindowKernels`, each said once: what it computes, and of which operands.
//
// A class includes this list in its body and says before what a line of it declares there:
//
//     #define PIPETWIN_KERNEL(name, parameters) void name parameters const override
//     #include "exec/device/window_kernel_list.h"

/// y = skip + x * w + b, a convolution without reflection.  x (n, c), w (kh kw c / groups, o)
/// with its rows in the order of ky, kx, channel; b (1, o) or empty; y (m, o). Group g of the
/// channels makes group g of the outputs.
PIPETWIN_KERNEL(convolution_forward,
                (const exec::WindowShape& shape,
                 exec::ConstView x,
                 exec::ConstView w,
                 exec::ConstView b,
                 exec::ConstView skip,
                 exec::View y));
/// dx = skip + its gradient by x.
PIPETWIN_KERNEL(convolution_backward_input,
                (const exec::WindowShape& shape,
                 exec::ConstView dy,
                 exec::ConstView w,
                 exec::ConstView skip,
                 exec::View dx));
/// dw += its gradient by w,  db += sum of the rows of dy (where db is not empty).
PIPETWIN_KERNEL(convolution_backward_weight,
                (const exec::WindowShape& shape,
                 exec::ConstView x,
                 exec::ConstView dy,
                 const exec::GradientSum& dw,
                 const exec::GradientSum& db));

/// y = skip + the largest number of the window in each channel, 0 where it has no pixel; places
/// (m, c), of `place_type`: where it is, ky kw + kx, the first of equal ones. NaN is larger
/// than all.
PIPETWIN_KERNEL(max_pool_forward,
                (const exec::WindowShape& shape,
                 exec::ConstView x,
                 exec::ConstView skip,
                 exec::View y,
                 exec::View places));
/// dx = skip + the sum of dy of the windows whose largest number it is, in row order.
PIPETWIN_KERNEL(max_pool_backward,
                (const exec::WindowShape& shape,
                 exec::ConstView places,
                 exec::ConstView dy,
                 exec::ConstView skip,
                 exec::View dx));

/// y = skip + the sum of the window's pixels in each channel, divided by the size of the window
/// or by the number of its pixels.
PIPETWIN_KERNEL(
    average_pool_forward,
    (const exec::WindowShape& shape, exec::ConstView x, exec::ConstView skip, exec::View y));
/// dx = skip + the sum over the windows that hold the pixel of dy / divisor, in row order.
PIPETWIN_KERNEL(
    average_pool_backward,
    (const exec::WindowShape& shape, exec::ConstView dy, exec::ConstView skip, exec::View dx));

/// y = skip + x, each pixel made larger.
PIPETWIN_KERNEL(
    upsample_forward,
    (const exec::UpsampleShape& shape, exec::ConstView x, exec::ConstView skip, exec::View y));
/// dx = skip + the sum of what y took from the pixel, in row order.
PIPETWIN_KERNEL(
    upsample_backward,
    (const exec::UpsampleShape& shape, exec::ConstView dy, exec::ConstView skip, exec::View dx));

/// y = skip + x with zeros around it, or without its edges where a margin is below zero; `from`
/// are the pixels of x. Its gradient by x is the same with margins of the other sign.
PIPETWIN_KERNEL(
    pad, (Pixels from, Margins margins, exec::ConstView x, exec::ConstView skip, exec::View y));

#undef PIPETWIN_KERNEL
