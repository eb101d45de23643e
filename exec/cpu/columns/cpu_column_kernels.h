// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "exec/cpu/cpu_kernels.h"

namespace pipetwin::exec {

/// The mathematics of channels on the CPU. Each operation stands in the source of its loops.
class CpuColumnKernels final : public ColumnKernels {
  public:
#define PIPETWIN_KERNEL(name, parameters) void name parameters const override
#include "exec/device/column_kernel_list.h"
};

}  // namespace pipetwin::exec
