// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <optional>

#include "core/model/pixels.h"
#include "exec/cuda/device/lane.h"
#include "exec/device/window_kernels.h"

namespace pipetwin::cuda {

/// Windows over images on one rank's lane, in fp32 and bf16. A call lists what is to be done; the
/// lane does it when it finishes.
class CudaWindowKernels final : public exec::WindowKernels {
  public:
    /// `lane` and `kernels`, which multiply matrices, outlive it.
    CudaWindowKernels(Lane& lane, const exec::Kernels& kernels) : lane_(lane), kernels_(kernels) {}

#define PIPETWIN_KERNEL(name, parameters) void name parameters const override
#include "exec/device/window_kernel_list.h"

  private:
    /// A plan of cuDNN, and the memory for its call.
    struct CudnnCall {
        int number = 0;
        void* filters = nullptr;  ///< room for as many as the weight has
        void* workspace = nullptr;
    };
    /// What is needed to have cuDNN compute it; none: our own kernels do.
    std::optional<CudnnCall> cudnn_call(const CudnnConvolution& convolution,
                                        std::int64_t weights) const;
    void list_cudnn(int number, const CudnnConvolutions::Operands& operands) const;
    /// Images before and behind the window, or their gradients.
    struct Images {
        exec::ConstView x;
        exec::ConstView y;
    };
    /// Lists what has cuDNN make `to`, which is one of the images. Does nothing and returns false
    /// where it has no plan.
    bool is_cudnns(CudnnConvolution convolution,
                   exec::ConstView w,
                   exec::ConstView skip,
                   const Images& images,
                   exec::View to) const;
    float* scratch(std::int64_t numbers) const;

    Lane& lane_;
    const exec::Kernels& kernels_;
};

}  // namespace pipetwin::cuda
