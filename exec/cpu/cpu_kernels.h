// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/base/as_index.h"
#include "core/base/error.h"
#include "exec/cpu/products/bfloat16.h"
#include "exec/device/column_kernels.h"
#include "exec/device/expert_kernels.h"
#include "exec/device/kernels.h"
#include "exec/device/window_kernels.h"

namespace pipetwin::exec {

/// The mathematics of the CPU. Each operation stands in the source of its loops.
class CpuKernels final : public Kernels {
  public:
    const WindowKernels& windows() const override { return cpu_window_kernels(); }
    const ColumnKernels& columns() const override { return cpu_column_kernels(); }
    const ExpertKernels& experts() const override { return cpu_expert_kernels(); }
    bool are_immediate() const override { return true; }

#define PIPETWIN_KERNEL(name, parameters) void name parameters const override
#include "exec/device/kernel_list.h"
};

inline std::size_t count(std::int64_t n) {
    return as_index(n);
}

/// Calls f(T{}) with T = float, double or BFloat16.
template <class F>
auto with_type(DType type, F&& f) {
    PIPETWIN_EXPECT(type != DType::I32 && type != DType::U8, "real numbers");
    switch (type) {
        case DType::F64:
            return f(double{});
        case DType::BF16:
            return f(BFloat16{});
        default:
            return f(float{});
    }
}

}  // namespace pipetwin::exec
