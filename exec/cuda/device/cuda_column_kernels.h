// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "exec/cuda/columns/columns.h"
#include "exec/cuda/device/lane.h"
#include "exec/device/column_kernels.h"

namespace pipetwin::cuda {

/// The mathematics of channels of one rank's lane, in fp32 and bf16. A call lists what is to be
/// done; the lane does it when it finishes.
class CudaColumnKernels final : public exec::ColumnKernels {
  public:
    /// `lane` outlives it.
    explicit CudaColumnKernels(Lane& lane) : lane_(lane) {}

#define PIPETWIN_KERNEL(name, parameters) void name parameters const override
#include "exec/device/column_kernel_list.h"

  private:
    double* scratch(const NormBlocks& blocks) const;

    Lane& lane_;
};

}  // namespace pipetwin::cuda
