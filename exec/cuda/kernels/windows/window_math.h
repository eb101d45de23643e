// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "exec/cuda/kernels/dispatch.h"
#include "exec/cuda/kernels/windows/windows.h"

/// Helpers that the kernels of windows share on the device: places of windows on images.
namespace pipetwin::cuda {

/// Threads of a block of a kernel with one number for each thread.
constexpr int window_block = 256;

/// One direction of a window.
struct WindowAxis {
    int size;  ///< of an input image
    int out;   ///< of an output image
    int kernel;
    int stride;
    int dilation;
    int before;  ///< padding

    /// Input at place `k` of the window at output `o`; -1: outside the image.
    __device__ __forceinline__ int input_of(int o, int k) const {
        const int i = o * stride - before + k * dilation;
        return i >= 0 && i < size ? i : -1;
    }
    /// Output whose window has its place `k` on input `i`; -1: none.
    __device__ __forceinline__ int output_of(int i, int k) const {
        const int last = i + before - k * dilation;
        return last >= 0 && last % stride == 0 && last / stride < out ? last / stride : -1;
    }
    /// First output whose window holds input `i`; of a window without dilation.
    __device__ __forceinline__ int first_output(int i) const {
        const int begin = i + before - kernel + 1;
        return begin > 0 ? (begin + stride - 1) / stride : 0;
    }
    /// The output behind the last one whose window holds input `i`.
    __device__ __forceinline__ int end_output(int i) const {
        const int end = i + before < 0 ? 0 : (i + before) / stride + 1;
        return end < out ? end : out;
    }
    /// Pixels of the window at output `o` that lie on the image; of a window without dilation.
    __device__ __forceinline__ int pixels(int o) const {
        const int first = o * stride - before;
        const int begin = first < 0 ? 0 : first;
        const int end = first + kernel < size ? first + kernel : size;
        return end > begin ? end - begin : 0;
    }
};

__device__ __forceinline__ WindowAxis rows_of(const Window& w) {
    return {w.in_height, w.out_height, w.kernel_height, w.stride_height, w.dilation_height, w.top};
}
__device__ __forceinline__ WindowAxis columns_of(const Window& w) {
    return {w.in_width, w.out_width, w.kernel_width, w.stride_width, w.dilation_width, w.left};
}

/// Pixel of an image of so many columns, of a row of the matrix of images.
struct PixelPlace {
    std::int64_t sample;
    int y;
    int x;
};
__device__ __forceinline__ PixelPlace pixel_of(std::int64_t row, int height, int width) {
    const std::int64_t sample = row / (static_cast<std::int64_t>(height) * width);
    const int in_sample = static_cast<int>(row - sample * height * width);
    return {sample, in_sample / width, in_sample % width};
}

/// value + skip[at], rounded once; skip may be null.
template <class T>
__device__ __forceinline__ void store_with_skip(float value,
                                                const T* skip,
                                                std::int64_t at,
                                                T* to) {
    to[at] = from_float<T>(skip == nullptr ? value : to_float(skip[at]) + value);
}

/// Launches a kernel that makes `size` numbers, one for each thread.
template <auto kernel, class Operands>
cudaError_t launch_numbers(std::int64_t size, const Operands& o, cudaStream_t stream) {
    return size <= 0 ? cudaSuccess
                     : launch<kernel>(grid_for(size, window_block), window_block, 0, stream, o);
}

/// Rows of the matrix of input images, and of output images.
inline std::int64_t in_rows(const Window& w) {
    return static_cast<std::int64_t>(w.samples) * w.in_height * w.in_width;
}
inline std::int64_t out_rows(const Window& w) {
    return static_cast<std::int64_t>(w.samples) * w.out_height * w.out_width;
}

}  // namespace pipetwin::cuda
