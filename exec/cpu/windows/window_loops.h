// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "core/base/as_index.h"
#include "core/base/simd_targets.h"
#include "exec/cpu/products/bfloat16.h"
#include "exec/device/window_kernels.h"

/// Loops over windows and channels that the CPU's kernels of images share, and those kernels, for
/// T = float, double and BFloat16. Formulas: exec/device/window_kernels.h.
namespace pipetwin::exec {

/// Neighbouring places, ascending; `end` is not one of them.
struct Places {
    int begin = 0;
    int end = 0;

    int count() const { return std::max(end - begin, 0); }
};

/// One direction of a window that moves over an image.
struct WindowAxis {
    int size = 0;  ///< of an input image
    int out = 0;   ///< of an output image
    int kernel = 1;
    int stride = 1;
    int dilation = 1;
    int before = 0;  ///< padding at the top or left

    /// Place of the window's beginning at output `o`; may lie outside the image.
    PIPETWIN_INLINE int first(int o) const { return o * stride - before; }
    /// Places of the window at output `o` that lie on the image; of a window without dilation.
    PIPETWIN_INLINE Places inside(int o) const {
        return {.begin = std::max(-first(o), 0), .end = std::min(size - first(o), kernel)};
    }
    /// Outputs whose window holds input `i`; of a window without dilation.
    PIPETWIN_INLINE Places covering(int i) const {
        const int last = i + before;
        const int begin = last - kernel + 1;
        return {.begin = begin > 0 ? (begin + stride - 1) / stride : 0,
                .end = last < 0 ? 0 : std::min(last / stride + 1, out)};
    }
    /// Output whose window has its place `k` on input `i`; -1: none.
    PIPETWIN_INLINE int output_of(int i, int k) const {
        const int last = i + before - k * dilation;
        return last >= 0 && last % stride == 0 && last / stride < out ? last / stride : -1;
    }
};

inline WindowAxis rows_axis(const WindowShape& s) {
    return {.size = s.in.height,
            .out = s.out.height,
            .kernel = s.kernel.height,
            .stride = s.stride.height,
            .dilation = s.dilation.height,
            .before = s.padding.top};
}
inline WindowAxis columns_axis(const WindowShape& s) {
    return {.size = s.in.width,
            .out = s.out.width,
            .kernel = s.kernel.width,
            .stride = s.stride.width,
            .dilation = s.dilation.width,
            .before = s.padding.left};
}

/// Channels whose sums run beside each other, in registers.
template <class T>
inline constexpr std::size_t channel_block = 256 / sizeof(Computed<T>);

/// Calls f(first channel, number of channels) block by block; the number is a constant but for the
/// last channels.
template <class T, class F>
PIPETWIN_INLINE void for_channels(std::size_t channels, F&& f) {
    constexpr std::size_t large = channel_block<T>;
    constexpr std::size_t small = large / 4;
    std::size_t c = 0;
    for (; c + large <= channels; c += large) {
        f(c, std::integral_constant<std::size_t, large>());
    }
    for (; c + small <= channels; c += small) {
        f(c, std::integral_constant<std::size_t, small>());
    }
    if (c < channels) {
        f(c, channels - c);
    }
}

/// y[0 ... count) = skip + sums; skip may be null.
template <class T>
PIPETWIN_INLINE void store_sums(const Computed<T>* sums, const T* skip, T* y, std::size_t count) {
    if (skip == nullptr) {
        for (std::size_t j = 0; j < count; ++j) {
            y[j] = stored<T>(sums[j]);
        }
        return;
    }
    PIPETWIN_ELEMENTWISE
    for (std::size_t j = 0; j < count; ++j) {
        y[j] = stored<T>(computed(skip[j]) + sums[j]);
    }
}

/// Samples of a matrix whose rows are the pixels of such images.
inline int samples_of(ConstView view, Pixels image) {
    const std::int64_t pixels = std::int64_t{image.height} * image.width;
    PIPETWIN_EXPECT(pixels > 0 && view.rows % pixels == 0, "whole images");
    return static_cast<int>(view.rows / pixels);
}

/// Samples of x and y, or of their gradients.
inline int samples_of(const WindowShape& shape, ConstView x, ConstView y) {
    const int samples = samples_of(x, shape.in);
    PIPETWIN_EXPECT(samples == samples_of(y, shape.out) && x.columns == shape.channels &&
                        y.columns == shape.outputs,
                    "images of the window's sizes");
    return samples;
}

// depthwise.cpp
/// Operands of the convolution of each channel by itself; each function reads those that its
/// formula names.
template <class T>
struct DepthwiseOperands {
    const T* x = nullptr;
    const T* dy = nullptr;
    const T* w = nullptr;
    const T* bias = nullptr;  ///< null: none
    const T* skip = nullptr;  ///< null: none
};
/// y = skip + x * w + b.
template <class T>
void depthwise_forward(const WindowShape& shape, int samples, const DepthwiseOperands<T>& o, T* y);
/// dx = skip + its gradient by x.
template <class T>
void depthwise_backward_input(const WindowShape& shape,
                              int samples,
                              const DepthwiseOperands<T>& o,
                              T* dx);
/// dw += its gradient by w. `sums` has room for as many numbers as w.
template <class T>
void depthwise_backward_weight(const WindowShape& shape,
                               int samples,
                               const DepthwiseOperands<T>& o,
                               Computed<T>* sums,
                               Computed<T>* dw);

}  // namespace pipetwin::exec
