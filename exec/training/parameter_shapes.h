// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "exec/device/allocation_trace.h"
#include "exec/device/arena.h"
#include "exec/device/number_format.h"
#include "exec/executor/trained_parameters.h"
#include "exec/layers/layer.h"

namespace pipetwin {

class Model;

}  // namespace pipetwin

namespace pipetwin::exec {

/// The parameters that a training of a model has, by name, shape and type, without their numbers:
/// no memory is taken for them. They are those of the whole model, however it is cut into stages.
class ParameterShapes {
  public:
    /// Throws Error(Unavailable) for a model with an opaque layer.
    ParameterShapes(const Model& model,
                    NumberFormat format,
                    OptimizerKind optimizer,
                    bool averages_weights = false);

    /// The parameters as one piece. Their tensors hold nothing: they may be looked at, but neither
    /// read nor written. Valid as long as this object.
    TrainedParameters parameters() const;

  private:
    AllocationTrace trace_;
    Arena arena_;  ///< gives names in place of memory
    std::vector<std::unique_ptr<ExecutableLayer>> layers_;
};

}  // namespace pipetwin::exec
