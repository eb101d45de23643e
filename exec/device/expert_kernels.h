// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>

#include "core/model/routing.h"
#include "exec/device/kernels.h"
#include "exec/device/tensor.h"

namespace pipetwin::exec {

/// The mathematics of routers, and of rows that go to experts and come back.
///
/// Names, types and the promises about results are those of `Kernels`. Scores and weights are
/// computed in fp32 at least.
class ExpertKernels {
  public:
    virtual ~ExpertKernels() = default;

#define PIPETWIN_KERNEL(name, parameters) virtual void name parameters const = 0
#include "exec/device/expert_kernel_list.h"
};

/// The CPU's.
const ExpertKernels& cpu_expert_kernels();
/// Kernels of a device that has none: each throws Error(Unavailable).
const ExpertKernels& no_expert_kernels();

}  // namespace pipetwin::exec
