// SPDX-License-Identifier: Apache-2.0
#include "tests/support/training_step.h"

#include <algorithm>
#include <cmath>

#include <gtest/gtest.h>

#include "core/schedule/generators/generate.h"
#include "core/timeline/footprint.h"
#include "exec/data/random_batch.h"
#include "exec/executor/executor.h"
#include "tests/support/reference.h"

namespace pipetwin::test {
namespace {

void expect_near(const std::vector<double>& a, const std::vector<double>& b, double bound) {
    ASSERT_EQ(a.size(), b.size());
    double difference = 0;
    double norm = 0;
    double largest = 0;
    for (std::size_t index = 0; index < a.size(); ++index) {
        const double off = a[index] - b[index];
        difference += off * off;
        norm += b[index] * b[index];
        largest = std::max(largest, std::abs(off));
    }
    EXPECT_LE(std::sqrt(difference), bound * std::sqrt(norm));
    EXPECT_LE(largest, 100 * bound * std::sqrt(norm / static_cast<double>(b.size())));
}

}  // namespace

StepOutcome pipeline_step(const Model& model, const Shape& shape) {
    exec::Executor executor(plan_of(model, shape), model, options_of(shape));
    const double loss = executor.run_step(exec::random_batch(model, shape.batch, 1), 0).loss;
    return {.loss = loss, .gradients = gradients_of(executor.parameters())};
}

StepOutcome reference_step(const Model& model, const Shape& shape, BackwardOrder order) {
    Reference reference(model, options_of(shape));
    const exec::Batch batch = exec::random_batch(model, shape.batch, 1);
    const std::vector<int> sizes = micro_batch_sizes(shape.batch, shape.micro_batches);
    const double loss = reference.run_step(exec::split(batch, sizes), order, 0);
    return {.loss = loss, .gradients = gradients_of(reference.parameters())};
}

void expect_near(const StepOutcome& a, const StepOutcome& b, double bound) {
    EXPECT_NEAR(a.loss, b.loss, bound * b.loss);
    ASSERT_EQ(a.gradients.size(), b.gradients.size());
    for (std::size_t index = 0; index < a.gradients.size(); ++index) {
        SCOPED_TRACE(a.gradients[index].name);
        expect_near(a.gradients[index].values, b.gradients[index].values, bound);
    }
}

void expect_predicted_peaks(const Model& model, const Shape& shape) {
    const Plan plan = plan_of(model, shape);
    exec::Executor executor(plan, model, options_of(shape));
    const exec::Batch batch = exec::random_batch(model, shape.batch, 1);
    const std::vector<MemoryUse> predicted = peak_memory(plan);
    for (int step = 0; step < 2; ++step) {
        const exec::StepResult result = executor.run_step(batch, step);
        for (std::size_t rank = 0; rank < predicted.size(); ++rank) {
            // The composition is not compared: inside an action memory moves from one kind to
            // another.
            EXPECT_EQ(result.peak[rank].total(), predicted[rank].total())
                << to_string(shape) << ", rank " << rank;
        }
    }
}

}  // namespace pipetwin::test
