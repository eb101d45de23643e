// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "exec/cuda/cudnn/cudnn_convolution.h"
#include "exec/cuda/cudnn/cudnn_graph.h"

/// Convolutions as graphs of one operation of cuDNN.
namespace pipetwin::cuda {

/// Tensors that a plan reads and writes, by the numbers that name them in a variant pack: pixels x
/// channels as everywhere, and the filters as (outputs, kernel height, kernel width, channels of a
/// group), which is the transpose of our weights. Each is of the convolution's type, the gradient
/// of the filters, too: for bf16 images cuDNN 9.19 proposes no engine that writes it in fp32.
enum class ConvolutionTensor : std::int64_t { Image = 1, Filters, Result };

/// Padding of an image, in pixels, for a convolution descriptor of cuDNN. Where negative, so many
/// rows or columns of pixels are left out.
struct ConvolutionMargins {
    std::array<std::int64_t, 2> before{};  ///< top, left
    std::array<std::int64_t, 2> after{};   ///< bottom, right
};

/// The margins with which a window gives results of its size: as much at the end as at the
/// beginning where that does, else only what the last window reads. None where something is cut
/// off.
std::optional<ConvolutionMargins> margins_of(const Window& window);

/// Makes the operation graph of a convolution in one direction. `handle` may be null where plans
/// are made for a device that is not there. Throws CudaFailure where cuDNN refuses a part.
/// Precondition: margins_of(window).
CudnnGraph convolution_graph(const CudnnFunctions& cudnn,
                             cudnnHandle_t handle,
                             const CudnnConvolution& convolution);

/// Notes of engines that are not taken for a type, since they compute something else than sums of
/// products in fp32: a sum in half precision; factors of fp32 that are rounded to TF32, which only
/// tensor cores take; and transforms whose rounding grows with their tile.
std::vector<cudnnBackendNumericalNote_t> refused_notes(Real real);

}  // namespace pipetwin::cuda
