// SPDX-License-Identifier: Apache-2.0
#include "exec/profiling/measured_pipeline.h"

#include <algorithm>

#include <gtest/gtest.h>

#include "tests/support/small_training.h"

namespace pipetwin::exec {
namespace measured_pipeline_test {

/// Where gradients are clipped, the second rank is done with its backward while the first one is
/// about to begin with its own, and waits for the norm before it updates its weights. That wait was
/// once counted as part of the update of its first layer: a prediction from such costs was 5 % too
/// long.
TEST(MeasuredPipeline, AWaitForTheNormOfAllGradientsIsPartOfNoLayer) {
    const Model model = mlp_model({256, 1024, 256, 5, 5});
    const test::Shape shape{.stages = 2,
                            .micro_batches = 1,
                            .batch = 128,
                            .schedule = "1f1b",
                            .partition = std::vector{2, 2},
                            .clip_norm = 0.5};
    MeasuredPipeline pipeline(test::plan_of(model, shape), model, {});
    Duration backward = Duration::max();  // of the first rank, which the second one waits for
    Duration update = Duration::max();    // of the second rank
    Duration dispatch = Duration::max();
    // Other programs may take the cores: of many steps some are undisturbed.
    const auto is_right = [&] { return update < backward / 10 && dispatch < backward / 10; };
    for (int step = 0; step < 10 || (step < 500 && !is_right()); ++step) {
        const StepSample sample = pipeline.step();
        Duration backward_here{};
        Duration update_here{};
        for (std::size_t layer = 0; layer < sample.layers.size(); ++layer) {
            const LayerClock::Laps& laps = sample.layers[layer];
            if (layer < 2) {
                backward_here += laps.backward_input + laps.backward_weight;
            } else {
                update_here += laps.optimizer;
            }
        }
        backward = std::min(backward, backward_here);
        update = std::min(update, update_here);
        dispatch = std::min(dispatch, sample.dispatch);
    }
    // 0.5 million weights and 128 samples on one side, 1,315 weights on the other.
    EXPECT_GT(update, Duration{});
    EXPECT_LT(update, backward / 10);
    EXPECT_LT(dispatch, backward / 10);
}

}  // namespace measured_pipeline_test
}  // namespace pipetwin::exec
