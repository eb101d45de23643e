// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <vector>

#include "core/base/as_index.h"
#include "exec/cuda/device/cuda_column_kernels.h"
#include "exec/cuda/device/cuda_window_kernels.h"
#include "exec/cuda/device/lane.h"
#include "exec/cuda/device/update_table.h"
#include "exec/cuda/kernels/kernels.h"
#include "exec/device/kernels.h"

namespace pipetwin::cuda {

/// The mathematics of one rank's lane, in fp32 and bf16. A call lists what is to be done; the lane
/// does it when it finishes.
class CudaKernels final : public exec::Kernels {
  public:
    /// `lane` outlives it.
    explicit CudaKernels(Lane& lane) : lane_(lane), columns_(lane), windows_(lane, *this) {}

    const exec::ColumnKernels& columns() const override { return columns_; }
    const exec::WindowKernels& windows() const override { return windows_; }

#define PIPETWIN_KERNEL(name, parameters) void name parameters const override
#define PIPETWIN_FUSED_KERNEL PIPETWIN_KERNEL
#include "exec/device/kernel_list.h"

  private:
    template <class Element>
    Element* scratch(std::int64_t elements) const {
        return static_cast<Element*>(lane_.scratch(as_index(elements) * sizeof(Element)));
    }
    /// Lists a copy of the value into scratch memory; returns where it is then.
    template <class Value>
    const Value* to_device(const Value& value) const;
    /// Lists a copy of the value into a part of the scratch memory; returns that.
    template <class Value>
    const Value* to_device(const Value& value, Value* here) const;
    template <class From>
    void upload_from(std::span<const From> from, exec::View y) const;
    /// The number of a product with an epilogue, where the GELU is that of one.
    std::optional<int> with_gelu(GeluForm form, const Product& product) const;
    void multiply(int number, const Products::Operands& operands) const;
    std::byte* stage(std::size_t bytes) const;

    /// Without a rule: the sums of squares alone.
    void update_by(std::optional<exec::UpdateRule> rule,
                   std::span<const exec::UpdateView> parameters,
                   const UpdateFactors& factors) const;
    LossSums loss_sums(std::int64_t rows, const exec::LossSums& sums) const;
    void stage_factors(const UpdateTable& table, const UpdateFactors& factors) const;
    const UpdateTable& table_of(std::vector<UpdateTensor> tensors) const;

    Lane& lane_;
    CudaColumnKernels columns_;
    CudaWindowKernels windows_;
    mutable std::deque<UpdateTable> tables_;  ///< made when parameters are first updated
};

}  // namespace pipetwin::cuda
