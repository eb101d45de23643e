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

    void copy(exec::ConstView x, exec::View y) const override;
    void rectify(double slope, exec::ConstView x, exec::View y) const override;
    void rectify_backward(double slope,
                          exec::ConstView x,
                          exec::ConstView dy,
                          exec::View dx) const override;
    void drop_columns(const exec::DropoutMask& mask,
                      int samples,
                      exec::ConstView x,
                      exec::ConstView skip,
                      exec::View y) const override;
    void norm_statistics(const exec::NormParts& parts,
                         double epsilon,
                         exec::ConstView x,
                         exec::View statistics,
                         exec::View moments) const override;
    void running_statistics(const exec::RunningValues& running,
                            double epsilon,
                            exec::View statistics) const override;
    void normalise(const exec::NormParts& parts,
                   exec::ConstView x,
                   exec::ConstView statistics,
                   exec::ConstView gain,
                   exec::ConstView bias,
                   exec::ConstView skip,
                   exec::View y) const override;
    void normalise_backward(const exec::NormParts& parts,
                            const exec::NormGradients& operands,
                            std::byte* scratch) const override;
    void add_moments(const exec::Moments& more, std::int64_t rows, exec::View sums) const override;
    void move_averages(const exec::RunningRule& rule,
                       const exec::Moments& moments,
                       const exec::RunningValues& running) const override;

  private:
    double* scratch(const NormBlocks& blocks) const;

    Lane& lane_;
};

}  // namespace pipetwin::cuda
