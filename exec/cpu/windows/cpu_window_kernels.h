// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "exec/cpu/cpu_kernels.h"

namespace pipetwin::exec {

/// Windows over images on the CPU. Each operation stands in the source of its loops.
class CpuWindowKernels final : public WindowKernels {
  public:
#define PIPETWIN_KERNEL(name, parameters) void name parameters const override
#include "exec/device/window_kernel_list.h"
};

}  // namespace pipetwin::exec
