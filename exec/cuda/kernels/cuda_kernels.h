// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "exec/cuda/kernels/kernels.h"
#include "exec/cuda/kernels/real_of.h"
#include "exec/cuda/runtime/call_site.h"
#include "exec/device/expert_kernels.h"
#include "exec/device/kernels.h"

namespace pipetwin::cuda {

class Lane;

/// The mathematics of one rank's lane, in fp32 and bf16. A call lists what is to be done; the lane
/// does it when it finishes. Each operation stands in the source of its kernel; those that are more
/// than a call of a kernel in exec/cuda/device.
class CudaKernels final : public exec::Kernels {
  public:
    /// `lane` outlives it.
    explicit CudaKernels(Lane& lane);
    CudaKernels(const CudaKernels&) = delete;
    CudaKernels& operator=(const CudaKernels&) = delete;
    ~CudaKernels() override;

    const exec::ColumnKernels& columns() const override;
    const exec::WindowKernels& windows() const override;
    const exec::ExpertKernels& experts() const override { return exec::no_expert_kernels(); }

#define PIPETWIN_KERNEL(name, parameters) void name parameters const override
#define PIPETWIN_FUSED_KERNEL PIPETWIN_KERNEL
#include "exec/device/kernel_list.h"

  private:
    /// Lists a call of `function`, which takes a stream behind these arguments.
    template <class Function, class... Arguments>
    void call(const char* name, Function* function, const Arguments&... arguments) const {
        calls_.list().add(name, function, arguments...);
    }

    struct Parts;  ///< what more than a call of a kernel needs
    CallSite& calls_;
    Lane& lane_;
    std::unique_ptr<Parts> parts_;
};

}  // namespace pipetwin::cuda
