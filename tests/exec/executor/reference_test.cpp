// SPDX-License-Identifier: Apache-2.0
#include "tests/support/reference.h"

#include <cmath>
#include <span>
#include <vector>

#include <gtest/gtest.h>

#include "core/model/model.h"
#include "core/model/transformers.h"
#include "core/plan/plan.h"
#include "core/schedule/generators/generate.h"
#include "exec/base/random.h"
#include "exec/executor/backend.h"
#include "exec/stage/stage.h"
#include "tests/exec/layers/layer_run.h"
#include "tests/support/compare_tensors.h"

namespace pipetwin::exec {
namespace reference_test {

using testing::agree;
using testing::Numbers;
using testing::numbers_of;

Model small_gpt() {
    return gpt_model({.layers = 2,
                      .d_model = 16,
                      .heads = 2,
                      .context = 10,
                      .vocabulary = 17,
                      .feed_forward = 40});
}

Batch random_batch(int samples) {
    Batch batch{.samples = samples,
                .positions = 10,
                .width = 0,
                .target_positions = 10,
                .tokens = {},
                .values = {},
                .targets = {}};
    const RandomStream random(23);
    for (std::uint64_t i = 0; i < static_cast<std::uint64_t>(samples) * 10; ++i) {
        batch.tokens.push_back(static_cast<std::int32_t>(random.below(2 * i, 17)));
        batch.targets.push_back(static_cast<std::int32_t>(random.below(2 * i + 1, 17)));
    }
    return batch;
}

ExecutorOptions options(Precision precision) {
    ExecutorOptions options;
    options.precision = precision;
    options.seed = 9;
    return options;
}

struct Outcome {
    double loss = 0;
    std::vector<Numbers> gradients;
    std::vector<Numbers> weights;
    bool operator==(const Outcome&) const = default;
};

Outcome run(const Batch& batch,
            const std::vector<int>& sizes,
            Precision precision,
            BackwardOrder order = BackwardOrder::Descending) {
    test::Reference reference(small_gpt(), options(precision));
    Outcome outcome;
    outcome.loss = reference.run_step(split(batch, sizes), order, 0);
    for (Parameter* const parameter : reference.parameters()) {
        outcome.gradients.push_back(numbers_of(parameter->gradient));
        outcome.weights.push_back(numbers_of(parameter->value));
    }
    return outcome;
}

TEST(Reference, OneStageAndOneMicroBatchHaveItsBits) {
    const Batch batch = random_batch(4);
    const std::vector<MicroBatch> slices = split(batch, {4});
    const std::unique_ptr<Device> device = make_cpu_device();
    for (const Precision precision : {Precision::Fp32, Precision::Fp64, Precision::Bf16}) {
        const Outcome expected = run(batch, {4}, precision);
        Arena arena;
        const Model model = small_gpt();
        Stage stage(*device,
                    arena,
                    model,
                    {.stage = 0, .first_layer = 0, .layer_count = model.layer_count()},
                    {.format = number_format(precision, Backend::Cpu),
                     .seed = 9,
                     .micro_batches = 1,
                     .largest_micro_batch = 4,
                     .optimizer = OptimizerKind::AdamW,
                     .input_gradient = false,
                     .layer_done = {}});
        stage.forward(0, {}, slices.front(), true, {});
        stage.backward(0, {}, {});
        EXPECT_EQ(stage.loss(), expected.loss);
        stage.update({}, 1);
        std::size_t index = 0;
        for (Parameter* const parameter : stage.parameters()) {
            EXPECT_EQ(numbers_of(parameter->gradient), expected.gradients[index])
                << parameter->name;
            EXPECT_EQ(numbers_of(parameter->value), expected.weights[index]) << parameter->name;
            ++index;
        }
    }
}

TEST(Reference, ARepeatedRunHasTheSameBits) {
    const Batch batch = random_batch(5);
    EXPECT_EQ(run(batch, {3, 2}, Precision::Fp32), run(batch, {3, 2}, Precision::Fp32));
}

TEST(Reference, MicroBatchesOfAnySizeGiveTheGradientsAndLossOfTheWholeBatch) {
    const Batch batch = random_batch(7);
    // In bf16, too, as rows are computed alike in every micro-batch and gradients are summed in
    // fp32.
    for (const Precision precision : {Precision::Fp32, Precision::Fp64, Precision::Bf16}) {
        const double bound = precision == Precision::Fp64 ? 1e-12 : 1e-5;
        const Outcome whole = run(batch, {7}, precision);
        for (int micro_batches = 2; micro_batches <= 7; ++micro_batches) {
            const std::vector<int> sizes = micro_batch_sizes(7, micro_batches);
            for (const BackwardOrder order :
                 {BackwardOrder::Descending, BackwardOrder::Ascending}) {
                const Outcome parts = run(batch, sizes, precision, order);
                EXPECT_NEAR(parts.loss, whole.loss, bound * whole.loss) << micro_batches;
                for (std::size_t i = 0; i < whole.gradients.size(); ++i) {
                    EXPECT_TRUE(agree<double>(parts.gradients[i], whole.gradients[i], bound))
                        << micro_batches << " micro-batches, parameter " << i;
                }
            }
        }
    }
}

TEST(Reference, VeryUnequalMicroBatchesWeighByTheirSamples) {
    const Batch batch = random_batch(9);
    const Outcome whole = run(batch, {9}, Precision::Fp64);
    const Outcome parts = run(batch, {1, 8}, Precision::Fp64);
    EXPECT_NEAR(parts.loss, whole.loss, 1e-12);
    for (std::size_t i = 0; i < whole.gradients.size(); ++i) {
        EXPECT_TRUE(agree<double>(parts.gradients[i], whole.gradients[i], 1e-12)) << i;
    }
}

TEST(Reference, LossStartsNearThatOfGuessingAndFalls) {
    test::Reference reference(small_gpt(), options(Precision::Fp32));
    const Batch batch = random_batch(4);
    const std::vector<MicroBatch> slices = split(batch, {2, 2});
    const double first = reference.run_step(slices, BackwardOrder::Descending, 0);
    EXPECT_NEAR(first, std::log(17.0), 0.1);
    double last = first;
    for (int step = 1; step < 60; ++step) {
        last = reference.run_step(slices, BackwardOrder::Descending, step);
    }
    EXPECT_LT(last, first - 0.2);  // the same four samples, learned by heart
}

TEST(Agree, ComparesByTheNormOfTheWholeAndByTheWorstElement) {
    const Numbers exact{1, 1, 1, 1};
    const Numbers off{1 + 1e-6, 1, 1, 1};
    EXPECT_TRUE(agree<double>(off, exact, 1e-6));  // 5e-7 in the norm
    EXPECT_FALSE(agree<double>(off, exact, 4e-7));
    Numbers large(40000, 1.0);
    const Numbers good = large;
    large[7] += 1.5e-4;  // 7.5e-7 in the norm, but this element is off by 1.5e-4
    EXPECT_FALSE(agree<double>(large, good, 1e-6));
    EXPECT_FALSE(agree<double>(Numbers{std::nan("")}, Numbers{1.0}, 1));
    EXPECT_TRUE(agree<double>(Numbers(3), Numbers(3), 0));
    EXPECT_FALSE(agree<double>(Numbers(3), Numbers(2), 1));
}

}  // namespace reference_test
}  // namespace pipetwin::exec
