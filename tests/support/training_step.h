// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "core/schedule/generators/generate.h"
#include "core/schedule/schedule.h"
#include "tests/support/small_training.h"

/// One step of a small model, with and without a pipeline, and how to compare the two.
namespace pipetwin::test {

struct StepOutcome {
    double loss = 0;
    std::vector<NamedValues> gradients;
    bool operator==(const StepOutcome&) const = default;
};

/// By the executor, on a random mini-batch that depends on its size alone.
StepOutcome pipeline_step(const Model& model, const Shape& shape);

/// The same micro-batches without a pipeline.
StepOutcome reference_step(const Model& model, const Shape& shape, BackwardOrder order);

/// Loss and gradients: ||a - b|| / ||b|| is at most `bound` for every tensor, and no element is off
/// by more than 100 bounds of the tensor's root mean square.
void expect_near(const StepOutcome& a, const StepOutcome& b, double bound);

/// The arena's peak bytes of every rank are those that the plan predicts, step after step.
void expect_predicted_peaks(const Model& model, const Shape& shape);

}  // namespace pipetwin::test
