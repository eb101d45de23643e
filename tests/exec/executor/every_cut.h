// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "core/base/as_index.h"
#include "core/timeline/footprint.h"
#include "exec/data/random_batch.h"
#include "exec/executor/executor.h"
#include "tests/support/graph_reference.h"
#include "tests/support/small_training.h"
#include "tests/support/training_step.h"

/// A model with branches in some cut, held to the whole model without a pipeline.
namespace pipetwin::exec::every_cut {

using test::Shape;
using test::StepOutcome;

inline std::string described(const Shape& shape) {
    std::string text = test::to_string(shape);
    if (shape.layer_recompute == LayerRecompute::Block) {
        text += " block " + std::to_string(shape.recompute_blocks);
    }
    text += " cut";
    for (const int layers : *shape.partition) {
        text += " " + std::to_string(layers);
    }
    return text;
}

inline StepOutcome reference(const Model& model, const Shape& shape, BackwardOrder order) {
    test::GraphReference graph(model, test::options_of(shape));
    const Batch batch = random_batch(model, shape.batch, 1);
    const double loss =
        graph.run(split(batch, micro_batch_sizes(shape.batch, shape.micro_batches)), order);
    return {.loss = loss, .gradients = test::gradients_of(graph.parameters())};
}

inline BackwardOrder order_of(const Shape& shape) {
    return shape.schedule == "gpipe" ? BackwardOrder::Descending : BackwardOrder::Ascending;
}

/// A step has the loss and the gradients of the whole model, bit for bit, and the peaks that the
/// plan predicts, to the byte. Returns the running statistics behind the step.
inline std::vector<test::NamedValues> expect_bits_and_bytes(const Model& model,
                                                            const Shape& shape,
                                                            const StepOutcome& whole) {
    SCOPED_TRACE(described(shape));
    const Plan plan = test::plan_of(model, shape);
    Executor executor(plan, model, test::options_of(shape));
    const Batch batch = random_batch(model, shape.batch, 1);
    const StepResult step = executor.run_step(batch, 0);
    EXPECT_EQ(step.loss, whole.loss);
    EXPECT_TRUE(test::gradients_of(executor.parameters()) == whole.gradients);
    const std::vector<MemoryUse> predicted = peak_memory(plan);
    for (std::size_t rank = 0; rank < predicted.size(); ++rank) {
        EXPECT_EQ(step.peak[rank].total(), predicted[rank].total()) << "rank " << rank;
        EXPECT_EQ(executor.room(static_cast<int>(rank)).unforeseen, 0);
    }
    return test::weights_of(executor.state());
}

}  // namespace pipetwin::exec::every_cut
