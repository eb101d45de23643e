// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "exec/cuda/kernels/kernels.h"

/// Kernels of windows that move over images: the rules of exec/cuda/kernels/kernels.h, the words of
/// exec/device/window_kernels.h. Rows of a matrix are the pixels of all samples. `skip` may be
/// null, or the result itself.
namespace pipetwin::cuda {

/// A window that moves over images. No padding between its members: lists of calls compare bytes.
struct Window {
    std::int32_t samples = 0;
    std::int32_t in_height = 0;
    std::int32_t in_width = 0;
    std::int32_t out_height = 0;
    std::int32_t out_width = 0;
    std::int32_t channels = 0;
    std::int32_t outputs = 0;
    std::int32_t kernel_height = 1;
    std::int32_t kernel_width = 1;
    std::int32_t stride_height = 1;
    std::int32_t stride_width = 1;
    std::int32_t dilation_height = 1;
    std::int32_t dilation_width = 1;
    std::int32_t top = 0;   ///< padding
    std::int32_t left = 0;  ///< padding
    std::int32_t groups = 1;
    std::int32_t count_padding = 1;  ///< 0: an average's divisor is the number of real pixels
    std::int32_t zero = 0;
};

// convolution.cu

/// Operands of a convolution forward.
struct Convolution {
    const void* x = nullptr;
    const void* w = nullptr;
    const void* bias = nullptr;  ///< null: none
    const void* skip = nullptr;
    void* y = nullptr;
};
/// y = skip + x * w + b.
cudaError_t convolution_forward(Real real,
                                const Window& window,
                                const Convolution& operands,
                                cudaStream_t stream);

/// Operands of a convolution's gradient by x.
struct ConvolutionInput {
    const void* dy = nullptr;
    const void* w = nullptr;
    const void* skip = nullptr;
    void* dx = nullptr;
};
/// dx = skip + the gradient by x.
cudaError_t convolution_backward_input(Real real,
                                       const Window& window,
                                       const ConvolutionInput& operands,
                                       cudaStream_t stream);

/// Number of fp32 scratch numbers that `convolution_backward_weight` needs.
std::int64_t convolution_scratch(const Window& window);
/// dw += the gradient by w.
cudaError_t convolution_backward_weight(Real real,
                                        const Window& window,
                                        const void* x,
                                        const void* dy,
                                        float* dw,
                                        float* scratch,
                                        cudaStream_t stream);

// filters.cu

/// to (outputs, depth) = w (depth, outputs), transposed.
cudaError_t turn_filters(Real real,
                         std::int64_t depth,
                         std::int64_t outputs,
                         const void* w,
                         void* to,
                         cudaStream_t stream);
/// dw (depth, outputs) += from (outputs, depth), transposed.
cudaError_t add_turned_filters(Real real,
                               std::int64_t depth,
                               std::int64_t outputs,
                               const void* from,
                               float* dw,
                               cudaStream_t stream);
/// y (rows, columns) += row, of one number a column.
cudaError_t add_row(Real real,
                    std::int64_t rows,
                    std::int64_t columns,
                    const void* row,
                    void* y,
                    cudaStream_t stream);

// pools.cu

/// y = skip + the largest number of each window; places: where it is, in bytes if `bytes` is 1,
/// else in int32.
cudaError_t max_pool_forward(Real real,
                             const Window& window,
                             std::int32_t bytes,
                             const void* x,
                             const void* skip,
                             void* y,
                             void* places,
                             cudaStream_t stream);
/// dx = skip + dy of the windows whose largest number it is.
cudaError_t max_pool_backward(Real real,
                              const Window& window,
                              std::int32_t bytes,
                              const void* places,
                              const void* dy,
                              const void* skip,
                              void* dx,
                              cudaStream_t stream);
/// y = skip + the mean of each window.
cudaError_t average_pool_forward(
    Real real, const Window& window, const void* x, const void* skip, void* y, cudaStream_t stream);
/// dx = skip + the shares of the means that the pixel is part of.
cudaError_t average_pool_backward(Real real,
                                  const Window& window,
                                  const void* dy,
                                  const void* skip,
                                  void* dx,
                                  cudaStream_t stream);

// resample.cu

/// An upsampling. No padding between its members.
struct Upsampling {
    std::int32_t samples = 0;
    std::int32_t height = 0;  ///< of x
    std::int32_t width = 0;   ///< of x
    std::int32_t channels = 0;
    std::int32_t factor = 1;
    std::int32_t bilinear = 0;
};
/// y = skip + x, each pixel made larger.
cudaError_t upsample_forward(Real real,
                             const Upsampling& upsampling,
                             const void* x,
                             const void* skip,
                             void* y,
                             cudaStream_t stream);
/// dx = skip + the sum of what y took from the pixel.
cudaError_t upsample_backward(Real real,
                              const Upsampling& upsampling,
                              const void* dy,
                              const void* skip,
                              void* dx,
                              cudaStream_t stream);

/// Images with zeros around them; negative margins cut off. No padding between its members.
struct Padding {
    std::int32_t samples = 0;
    std::int32_t height = 0;  ///< of x
    std::int32_t width = 0;   ///< of x
    std::int32_t channels = 0;
    std::int32_t top = 0;
    std::int32_t left = 0;
    std::int32_t out_height = 0;
    std::int32_t out_width = 0;
};
/// y = skip + x with its margins.
cudaError_t pad(Real real,
                const Padding& padding,
                const void* x,
                const void* skip,
                void* y,
                cudaStream_t stream);

}  // namespace pipetwin::cuda
