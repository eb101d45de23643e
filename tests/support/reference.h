// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/schedule/generators/generate.h"
#include "exec/executor/executor.h"

namespace pipetwin {

class Model;

}  // namespace pipetwin

namespace pipetwin::test {

/// The same step without a pipeline: one stage, one thread, no channels, no schedule. The oracle
/// for gradients.
class Reference {
  public:
    Reference(const Model& model, const exec::ExecutorOptions& options);
    ~Reference();

    /// Forward and backward of the slices in order (backward in `backward_order`), gradients
    /// summed, one update; `step` counts from 0, as the executor's. {whole batch} is the undivided
    /// step. Returns the loss.
    double run_step(const std::vector<exec::MicroBatch>& slices,
                    BackwardOrder backward_order,
                    int step);

    std::vector<exec::Parameter*> parameters();
    /// Running statistics.
    std::vector<exec::Parameter*> state();

  private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

}  // namespace pipetwin::test
