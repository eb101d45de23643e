// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "exec/cuda/columns/columns.h"
#include "exec/cuda/kernels/real_of.h"
#include "exec/cuda/runtime/call_site.h"
#include "exec/device/column_kernels.h"

namespace pipetwin::cuda {

/// The mathematics of channels of one rank's lane, in fp32 and bf16. A call lists what is to be
/// done; the lane does it when it finishes. Each operation stands in the source of its kernel.
class CudaColumnKernels final : public exec::ColumnKernels {
  public:
    /// `calls` outlives it.
    explicit CudaColumnKernels(CallSite& calls) : calls_(calls) {}

#define PIPETWIN_KERNEL(name, parameters) void name parameters const override
#include "exec/device/column_kernel_list.h"

  private:
    /// Lists a call of `function`, which takes a stream behind these arguments.
    template <class Function, class... Arguments>
    void call(const char* name, Function* function, const Arguments&... arguments) const {
        calls_.list().add(name, function, arguments...);
    }

    CallSite& calls_;
};

}  // namespace pipetwin::cuda
