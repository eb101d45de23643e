// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <vector>

#include "exec/cuda/device/lane.h"
#include "exec/cuda/kernels/kernels.h"

namespace pipetwin::cuda {

/// The table with which one launch updates many parameters, in device memory. It stays the same
/// from step to step, but for the factors.
class UpdateTable {
  public:
    /// `lane` outlives it. All tensors are of one type.
    UpdateTable(Lane& lane, std::vector<UpdateTensor> tensors);
    ~UpdateTable();
    UpdateTable(const UpdateTable&) = delete;
    UpdateTable& operator=(const UpdateTable&) = delete;

    /// True if the table is for exactly these tensors.
    bool is_of(const std::vector<UpdateTensor>& tensors) const;
    const Updates& updates() const { return updates_; }
    /// Device memory for the factors of a step.
    void* factors() const { return factors_; }

  private:
    void upload(std::size_t at, std::span<const std::byte> bytes);

    Lane& lane_;
    std::vector<UpdateTensor> tensors_;
    std::byte* memory_ = nullptr;
    std::size_t bytes_ = 0;
    void* factors_ = nullptr;
    Updates updates_;
};

}  // namespace pipetwin::cuda
