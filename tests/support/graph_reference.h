// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <vector>

#include "core/schedule/generators/generate.h"
#include "exec/executor/executor.h"

namespace pipetwin {

class Model;

}  // namespace pipetwin

namespace pipetwin::test {

/// Forward and backward of a model whose layers read any outputs before them, layer by layer, with
/// every output and every gradient in a tensor of its own from begin to end: no stage, no pipeline,
/// no message. A sequence with branches inside is taken apart into its layers. The oracle for
/// gradients of models with branches, in fp32 and fp64.
class GraphReference {
  public:
    GraphReference(const Model& model, const exec::ExecutorOptions& options);
    ~GraphReference();

    /// Adds up the gradients of the slices, forwards in their order, backwards in
    /// `backward_order`. Returns the mean loss.
    double run(const std::vector<exec::MicroBatch>& slices, BackwardOrder backward_order);

    std::vector<exec::Parameter*> parameters();

  private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

}  // namespace pipetwin::test
