// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "core/model/model.h"
#include "exec/device/kernels.h"
#include "exec/device/tensor.h"

namespace pipetwin::exec {

/// A window that moves over images, and the images before and behind it. Images are matrices with a
/// row for each pixel: sample by sample, from the top, from the left.
///
/// Place (ky, kx) of the window of output pixel (oy, ox) lies on input pixel
///
///   (oy stride.height - padding.top + ky dilation.height,
///    ox stride.width - padding.left + kx dilation.width)
///
/// which may lie outside the image: there x is zero. A padding below zero crops the image.
struct WindowShape {
    Pixels in{};       ///< of an input image
    Pixels out{};      ///< of an output image
    int channels = 0;  ///< columns of x
    int outputs = 0;   ///< columns of y; `channels` but for a convolution
    Pixels kernel{1, 1};
    Pixels stride{1, 1};
    Pixels dilation{1, 1};
    Margins padding{};
    int groups = 1;             ///< of a convolution
    bool count_padding = true;  ///< an average's divisor is the size of the window, not its pixels

    bool operator==(const WindowShape&) const = default;

    int places() const { return kernel.height * kernel.width; }
    /// Input channels that an output channel reads.
    int group_channels() const { return channels / groups; }
    int group_outputs() const { return outputs / groups; }
    /// Numbers that an output number sums: rows of a convolution's weight.
    int depth() const { return places() * group_channels(); }
    std::int64_t in_rows(int samples) const { return std::int64_t{samples} * in.height * in.width; }
    std::int64_t out_rows(int samples) const {
        return std::int64_t{samples} * out.height * out.width;
    }
    /// True if y = x w: one pixel at a time, every one of them.
    bool is_pointwise() const {
        return kernel == Pixels{1, 1} && groups == 1 && stride == Pixels{1, 1} &&
               padding == Margins{};
    }
};

/// Type of the place of a window's largest number: a byte, with 255 for none, else int32.
inline DType place_type(const WindowShape& shape) {
    return shape.places() <= 255 ? DType::U8 : DType::I32;
}

/// Sizes of an upsampling: every pixel becomes factor x factor of them.
struct UpsampleShape {
    Pixels in{};
    int factor = 2;
    /// Between the four nearest pixels, whose centres stay where they are, else the nearest one.
    bool bilinear = false;

    std::int64_t pixels() const { return std::int64_t{in.height} * in.width; }
};

/// The mathematics of windows over images of one device; names and rules as in `Kernels`. The
/// number of samples follows from the rows of x or y. A sample's y and dx do not depend on the
/// samples beside it; gradients of weights are added in row order. `skip` may be empty, or y (dx)
/// itself: then it is added to what y (dx) holds.
class WindowKernels {
  public:
    virtual ~WindowKernels() = default;

    /// y = skip + x * w + b, a convolution without reflection.  x (n, c), w (kh kw c / groups, o)
    /// with its rows in the order of ky, kx, channel; b (1, o) or empty; y (m, o). Group g of the
    /// channels makes group g of the outputs.
    virtual void convolution_forward(const WindowShape& shape,
                                     ConstView x,
                                     ConstView w,
                                     ConstView b,
                                     ConstView skip,
                                     View y) const = 0;
    /// dx = skip + its gradient by x.
    virtual void convolution_backward_input(
        const WindowShape& shape, ConstView dy, ConstView w, ConstView skip, View dx) const = 0;
    /// dw += its gradient by w,  db += sum of the rows of dy (where db is not empty).
    virtual void convolution_backward_weight(const WindowShape& shape,
                                             ConstView x,
                                             ConstView dy,
                                             const GradientSum& dw,
                                             const GradientSum& db) const = 0;

    /// y = skip + the largest number of the window in each channel, 0 where it has no pixel; places
    /// (m, c), of `place_type`: where it is, ky kw + kx, the first of equal ones. NaN is larger
    /// than all.
    virtual void max_pool_forward(
        const WindowShape& shape, ConstView x, ConstView skip, View y, View places) const = 0;
    /// dx = skip + the sum of dy of the windows whose largest number it is, in row order.
    virtual void max_pool_backward(const WindowShape& shape,
                                   ConstView places,
                                   ConstView dy,
                                   ConstView skip,
                                   View dx) const = 0;

    /// y = skip + the sum of the window's pixels in each channel, divided by the size of the window
    /// or by the number of its pixels.
    virtual void average_pool_forward(const WindowShape& shape,
                                      ConstView x,
                                      ConstView skip,
                                      View y) const = 0;
    /// dx = skip + the sum over the windows that hold the pixel of dy / divisor, in row order.
    virtual void average_pool_backward(const WindowShape& shape,
                                       ConstView dy,
                                       ConstView skip,
                                       View dx) const = 0;

    /// y = skip + x, each pixel made larger.
    virtual void upsample_forward(const UpsampleShape& shape,
                                  ConstView x,
                                  ConstView skip,
                                  View y) const = 0;
    /// dx = skip + the sum of what y took from the pixel, in row order.
    virtual void upsample_backward(const UpsampleShape& shape,
                                   ConstView dy,
                                   ConstView skip,
                                   View dx) const = 0;

    /// y = skip + x with zeros around it, or without its edges where a margin is below zero; `from`
    /// are the pixels of x. Its gradient by x is the same with margins of the other sign.
    virtual void pad(Pixels from, Margins margins, ConstView x, ConstView skip, View y) const = 0;
};

/// Windows on the CPU.
const WindowKernels& cpu_window_kernels();

}  // namespace pipetwin::exec
