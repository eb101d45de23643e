// SPDX-License-Identifier: Apache-2.0
#include "exec/device/null_kernels.h"

#include "exec/device/column_kernels.h"
#include "exec/device/window_kernels.h"

// The lists name the operands, and nothing here reads them.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-parameter"

namespace pipetwin::exec {
namespace {

class NullColumnKernels final : public ColumnKernels {
  public:
#define PIPETWIN_KERNEL(name, parameters) \
    void name parameters const override {}
#include "exec/device/column_kernel_list.h"
};

class NullWindowKernels final : public WindowKernels {
  public:
#define PIPETWIN_KERNEL(name, parameters) \
    void name parameters const override {}
#include "exec/device/window_kernel_list.h"
};

class NullKernels final : public Kernels {
  public:
    const WindowKernels& windows() const override {
        static const NullWindowKernels windows;
        return windows;
    }
    const ColumnKernels& columns() const override {
        static const NullColumnKernels columns;
        return columns;
    }

#define PIPETWIN_KERNEL(name, parameters) \
    void name parameters const override {}
#include "exec/device/kernel_list.h"
};

}  // namespace

const Kernels& null_kernels() {
    static const NullKernels kernels;
    return kernels;
}

}  // namespace pipetwin::exec

#pragma GCC diagnostic pop
