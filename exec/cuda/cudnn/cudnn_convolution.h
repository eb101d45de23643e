// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "exec/cuda/cudnn/cudnn_loaded.h"
#include "exec/cuda/kernels/windows/windows.h"

/// Convolutions by cuDNN. It is looked for at run time; where it is missing, or knows no plan that
/// repeats its bits, our own kernels are taken and `describe` says why.
///
/// Nothing here needs cuDNN's headers: without them exec/cuda/cudnn/cudnn_absent.cpp takes the
/// places of the files that do.
namespace pipetwin::cuda {

/// What a plan computes: y, dx, or the gradient of the filters.
enum class ConvolutionDirection : std::uint8_t { Forward, BackwardInput, BackwardWeight };

/// A convolution in one direction. The choice of a plan follows from it, the device and the version
/// of cuDNN alone.
struct CudnnConvolution {
    Real real = Real::F32;
    Window window{};
    ConvolutionDirection direction = ConvolutionDirection::Forward;
    bool adds = false;  ///< what is computed is added to what its place holds
};

/// cuDNN's plans for convolutions on one rank's lane, one for each convolution and direction. Used
/// by one thread at a time, with the lane's context current.
class CudnnConvolutions {
  public:
    /// `wanted` false: own kernels only.
    CudnnConvolutions(CudnnLoaded loaded, bool wanted);
    CudnnConvolutions(const CudnnConvolutions&) = delete;
    CudnnConvolutions& operator=(const CudnnConvolutions&) = delete;
    CudnnConvolutions(CudnnConvolutions&&) = delete;
    CudnnConvolutions& operator=(CudnnConvolutions&&) = delete;
    ~CudnnConvolutions();

    /// Most bytes of workspace of a plan. Engines that fill channels up to a multiple of 8 copy the
    /// image for it: 98 MiB for 128 samples of 224 x 224 pixels of 3 channels.
    static constexpr std::size_t most_workspace_bytes = std::size_t{256} << 20U;

    /// A plan that cuDNN found.
    struct Plan {
        int number = 0;
        std::size_t workspace_bytes = 0;  ///< of device memory, contents do not matter
    };
    /// The plan of a convolution, searched for when first asked for; none: our own kernels compute
    /// it. Operands of a plan begin at multiples of 16 bytes.
    std::optional<Plan> plan(const CudnnConvolution& convolution);

    /// "cuDNN 9.19.0", or "own kernels: " and why.
    std::string describe(const CudnnConvolution& convolution);

    /// How many of the convolutions that were asked for have a plan, and why the first of the
    /// others has none.
    std::string summary() const;

    /// Operands of a plan, all of the convolution's type; the plan writes one of them.
    struct Operands {
        const void* image = nullptr;  ///< x or dx
        const void* filters =
            nullptr;                   ///< (outputs, kernel height, kernel width, group's channels)
        const void* result = nullptr;  ///< y or dy
        void* workspace = nullptr;
    };
    /// Runs a plan, by its number. Throws CudaFailure. Returns success: it is called by a
    /// CommandList.
    cudaError_t run(int number, const Operands& operands, cudaStream_t stream);

  private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

}  // namespace pipetwin::cuda
