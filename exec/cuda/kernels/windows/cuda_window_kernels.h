// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "core/model/pixels.h"
#include "exec/cuda/kernels/real_of.h"
#include "exec/cuda/kernels/windows/windows.h"
#include "exec/cuda/runtime/call_site.h"
#include "exec/device/window_kernels.h"

namespace pipetwin::cuda {

class Lane;

/// Windows over images on one rank's lane, in fp32 and bf16. A call lists what is to be done; the
/// lane does it when it finishes. Each operation stands in the source of its kernel; convolutions,
/// which cuDNN may compute, in exec/cuda/device.
class CudaWindowKernels final : public exec::WindowKernels {
  public:
    /// `lane` and `kernels`, which multiply matrices, outlive it.
    CudaWindowKernels(Lane& lane, const exec::Kernels& kernels);

#define PIPETWIN_KERNEL(name, parameters) void name parameters const override
#include "exec/device/window_kernel_list.h"

  private:
    CallSite& calls_;
    Lane& lane_;
    const exec::Kernels& kernels_;
};

/// A window over the images of x.
inline Window window_of(const exec::WindowShape& shape, exec::ConstView x) {
    return {.samples = static_cast<std::int32_t>(x.rows / shape.in_rows(1)),
            .in_height = shape.in.height,
            .in_width = shape.in.width,
            .out_height = shape.out.height,
            .out_width = shape.out.width,
            .channels = shape.channels,
            .outputs = shape.outputs,
            .kernel_height = shape.kernel.height,
            .kernel_width = shape.kernel.width,
            .stride_height = shape.stride.height,
            .stride_width = shape.stride.width,
            .dilation_height = shape.dilation.height,
            .dilation_width = shape.dilation.width,
            .top = shape.padding.top,
            .left = shape.padding.left,
            .groups = shape.groups,
            .count_padding = shape.count_padding ? 1 : 0};
}

}  // namespace pipetwin::cuda
