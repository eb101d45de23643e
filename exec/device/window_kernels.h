// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "core/model/pixels.h"
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

#define PIPETWIN_KERNEL(name, parameters) virtual void name parameters const = 0
#include "exec/device/window_kernel_list.h"
};

/// Windows on the CPU.
const WindowKernels& cpu_window_kernels();

}  // namespace pipetwin::exec
