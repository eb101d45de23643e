// SPDX-License-Identifier: Apache-2.0
#include "exec/stage/stage.h"

#include <cmath>
#include <functional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "core/base/error.h"
#include "exec/layers/layer.h"
#include "tests/exec/layers/layer_run.h"
#include "tests/exec/stage/stage_pipeline.h"

namespace pipetwin::exec {
namespace stage_test {

using test_stages::gpt_batch;
using test_stages::mlp_batch;
using test_stages::options;
using test_stages::Pipeline;
using test_stages::small_gpt;
using testing::Numbers;
using testing::numbers_of;
using testing::random_numbers;

struct Outcome {
    double loss = 0;
    std::vector<Numbers> gradients;
    bool operator==(const Outcome&) const = default;
};

/// One mini-batch in micro-batches, forward ascending, backward descending.
Outcome run(const Model& model,
            const std::vector<int>& partition,
            const std::function<bool(int micro_batch)>& recompute,
            const StageOptions& stage_options) {
    const Batch batch = gpt_batch(7);
    const std::vector<MicroBatch> slices = split(batch, {3, 2, 2});
    Pipeline pipeline(model, partition, stage_options);
    for (int m = 0; m < 3; ++m) {
        pipeline.forward(m, slices[static_cast<std::size_t>(m)], !recompute(m));
    }
    for (int m = 2; m >= 0; --m) {
        pipeline.backward(m, slices[static_cast<std::size_t>(m)], recompute(m));
    }
    return {.loss = pipeline.stages.back()->loss(), .gradients = pipeline.gradients()};
}

bool never(int /*micro_batch*/) {
    return false;
}

TEST(Stage, GradientsHaveTheSameBitsForEveryPartitionAndRecomputeMode) {
    const Model model = small_gpt();
    for (const Precision precision : {Precision::Fp32, Precision::Fp64}) {
        const Outcome expected = run(model, {6}, never, options(precision));
        EXPECT_NEAR(expected.loss, std::log(13.0), 0.2);  // weights are small at the start
        for (const std::vector<int>& partition : {std::vector{3, 3}, {1, 1, 1, 1, 1, 1}, {5, 1}}) {
            EXPECT_EQ(run(model, partition, never, options(precision)), expected);
            EXPECT_EQ(run(
                          model, partition, [](int) { return true; }, options(precision)),
                      expected);
            EXPECT_EQ(run(
                          model, partition, [](int m) { return m != 2; }, options(precision)),
                      expected);
        }
    }
}

TEST(Stage, InputAndWeightGradientsInTwoActionsHaveTheBitsOfOne) {
    const Model model = small_gpt();
    const Batch batch = gpt_batch(3);
    const MicroBatch data = split(batch, {3}).front();
    Pipeline whole(model, {3, 3}, options());
    Pipeline split_up(model, {3, 3}, options());
    whole.forward(0, data, true);
    whole.backward(0, data, false);

    split_up.forward(0, data, true);
    Tensor gradient = test_stages::backward_input(*split_up.stages[1], 0, {});
    split_up.hand_over(gradient, 0);
    EXPECT_TRUE(test_stages::backward_input(*split_up.stages[0], 0, std::move(gradient)).empty());
    split_up.stages[0]->backward_weight(0);
    split_up.stages[1]->backward_weight(0);
    EXPECT_EQ(split_up.gradients(), whole.gradients());
    EXPECT_EQ(split_up.arenas[0].live()[MemoryKind::Stash], Bytes{});
    EXPECT_EQ(split_up.arenas[1].live()[MemoryKind::Boundary], Bytes{});
}

/// Attention: its norm's output (d), the gradients of Q, K and V (3 d), the context (d), and the
/// gradient of its own output (d). Feed-forward: its norm's output (d), the gradient of what goes
/// into the GELU (f), and what comes out (f); the gradient of its output is the stage's (d). No
/// more than before I, when the inputs of norms, softmax and GELU are there.
TEST(Stage, BetweenInputAndWeightHalfABlockHoldsWhatItsProductsRead) {
    const Model model = small_gpt();
    constexpr int d = 8;
    constexpr int f = 20;
    constexpr int rows = 3 * 6;
    const auto bytes = [](int numbers) { return Bytes{4 * std::int64_t{rows} * numbers}; };
    const Batch batch = gpt_batch(3);
    Pipeline pipeline(model, {1, 2, 3}, options(Precision::Fp32));
    pipeline.forward(0, split(batch, {3}).front(), true);
    const Bytes before = pipeline.arenas[1].live()[MemoryKind::Stash];
    Tensor gradient = test_stages::backward_input(*pipeline.stages[2], 0, {});
    pipeline.hand_over(gradient, 1);
    gradient = test_stages::backward_input(*pipeline.stages[1], 0, std::move(gradient));
    const MemoryUse& between = pipeline.arenas[1].live();
    EXPECT_EQ(between[MemoryKind::Stash], bytes((d + 3 * d + d + d) + (d + 2 * f)));
    EXPECT_EQ(between[MemoryKind::Boundary], bytes(d) + gradient.bytes());
    EXPECT_LE(between[MemoryKind::Stash] + bytes(d), before);
}

TEST(Stage, FirstStageTrainsWithoutAGradientOfItsInputAndGivesOneWhenAsked) {
    const Model model = mlp_model({5, 7, 3});
    const Batch batch = mlp_batch(4, 5, 3);
    const MicroBatch data = split(batch, {4}).front();
    StageOptions asking = options(Precision::Fp64);
    asking.input_gradient = true;
    for (const bool recompute : {false, true}) {
        Pipeline silent(model, {1, 1}, options(Precision::Fp64));
        silent.forward(0, data, !recompute);
        EXPECT_TRUE(silent.backward(0, data, recompute).empty());

        Pipeline asked(model, {1, 1}, asking);
        asked.forward(0, data, !recompute);
        const Tensor gradient = asked.backward(0, data, recompute);
        EXPECT_EQ(gradient.rows(), 4);
        EXPECT_EQ(gradient.columns(), 5);
        EXPECT_GT(std::abs(numbers_of(gradient)[0]), 0);

        EXPECT_EQ(silent.gradients(), asked.gradients());
        EXPECT_GT(std::abs(silent.gradients()[0][0]), 0);
    }
}

TEST(Stage, ParametersAndTheirNamesDoNotDependOnThePartition) {
    const Model model = small_gpt();
    Pipeline one(model, {6}, options());
    Pipeline three(model, {2, 2, 2}, options());
    std::vector<Parameter*> cut;
    for (const auto& stage : three.stages) {
        std::ranges::copy(stage->parameters(), std::back_inserter(cut));
    }
    const std::vector<Parameter*> whole = one.stages[0]->parameters();
    ASSERT_EQ(cut.size(), whole.size());
    for (std::size_t i = 0; i < cut.size(); ++i) {
        EXPECT_EQ(cut[i]->name, whole[i]->name);
        EXPECT_EQ(numbers_of(cut[i]->value), numbers_of(whole[i]->value)) << cut[i]->name;
    }
}

TEST(Stage, DrawsWeightsOfAGptAsGpt2Does) {
    const Model model = gpt_model({.layers = 2,
                                   .d_model = 64,
                                   .heads = 2,
                                   .context = 32,
                                   .vocabulary = 256,
                                   .feed_forward = 128});
    Pipeline pipeline(model, {6}, options());
    const auto deviation = [](const Tensor& tensor) {
        const Numbers values = numbers_of(tensor);
        double squares = 0;
        for (const double value : values) {
            squares += value * value / static_cast<double>(values.size());
        }
        return std::sqrt(squares);
    };
    for (Parameter* const parameter : pipeline.stages[0]->parameters()) {
        const std::string& name = parameter->name;
        const double found = deviation(parameter->value);
        if (name.ends_with(".bias")) {
            EXPECT_EQ(found, 0) << name;
        } else if (name.ends_with(".gain")) {
            EXPECT_EQ(found, 1) << name;
        } else if (name.ends_with(".out.weight")) {
            EXPECT_NEAR(found, 0.02 / std::sqrt(4.0), 0.001)
                << name;  // 2 blocks, 4 residual branches
        } else if (name.ends_with(".tokens")) {
            EXPECT_NEAR(found, 0.02, 0.001) << name;
        }
    }
}

// He et al. by outputs, as torchvision draws its ResNets: sqrt(2 / (kh kw o)); else the variance of
// a uniform number in +-1/sqrt(kh kw c), which is a third of 1 / (kh kw c).
TEST(Stage, DrawsConvolutionsAsWritten) {
    for (const bool he_normal : {true, false}) {
        const Model model = Model::chain(image_shape({4, 4}, 16),
                                         {{.type = LayerType::Conv2d,
                                           .outputs = 64,
                                           .bias = false,
                                           .kernel = {3, 3},
                                           .he_normal = he_normal},
                                          {.type = LayerType::CrossEntropy}});
        Pipeline pipeline(model, {2}, options());
        const Numbers weights = numbers_of(pipeline.stages[0]->parameters().front()->value);
        double squares = 0;
        for (const double weight : weights) {
            squares += weight * weight / static_cast<double>(weights.size());
        }
        const double variance = he_normal ? 2.0 / (3 * 3 * 64) : 1.0 / (3 * 3 * 16) / 3;
        // 9216 draws of a normal number: the relative deviation of their variance is 1.5 %.
        EXPECT_NEAR(squares, variance, 0.06 * variance);
    }
}

TEST(Stage, RefusesABoundaryOfAWrongShapeOrTypeNamingStageAndLayer) {
    const Model model = small_gpt();
    const Batch batch = gpt_batch(3);
    const MicroBatch data = split(batch, {3}).front();
    Pipeline pipeline(model, {2, 4}, options());
    const auto refusal = [&](DType type, std::int64_t rows, std::int64_t columns) {
        Tensor input = pipeline.arenas[1].allocate(type, rows, columns, MemoryKind::Boundary);
        try {
            test_stages::forward(*pipeline.stages[1], 0, std::move(input), data, true);
        } catch (const Error& error) {
            EXPECT_EQ(error.kind(), ErrorKind::BadInput);
            return std::string(error.what());
        }
        return std::string("accepted");
    };
    EXPECT_EQ(
        refusal(DType::F32, 12, 8),
        "stage 1, layer \"block0.feed_forward\": the input is (12, 8) fp32, expected (18, 8) fp32");
    EXPECT_EQ(
        refusal(DType::F32, 18, 9),
        "stage 1, layer \"block0.feed_forward\": the input is (18, 9) fp32, expected (18, 8) fp32");
    EXPECT_EQ(
        refusal(DType::F64, 18, 8),
        "stage 1, layer \"block0.feed_forward\": the input is (18, 8) fp64, expected (18, 8) fp32");
    EXPECT_EQ(refusal(DType::F32, 18, 8), "accepted");

    test_stages::forward(*pipeline.stages[0], 0, {}, data, true);
    Tensor gradient = pipeline.arenas[0].allocate(DType::F32, 18, 7, MemoryKind::Boundary);
    EXPECT_THROW(test_stages::backward(*pipeline.stages[0], 0, std::move(gradient)), Error);
}

TEST(Stage, RefusesABatchThatTheModelCannotRead) {
    const Batch batch = mlp_batch(3, 4, 2);
    const MicroBatch data = split(batch, {3}).front();
    Pipeline pipeline(mlp_model({5, 2}), {1}, options());
    try {
        test_stages::forward(*pipeline.stages[0], 0, {}, data, true);
        FAIL() << "accepted";
    } catch (const Error& error) {
        EXPECT_EQ(error.kind(), ErrorKind::BadInput);
        EXPECT_EQ(error.place(), "stage 0, layer \"linear0\"");
    }
}

TEST(Stage, LossIsTheSumInMicroBatchOrderWhateverTheOrderOfExecution) {
    const Model model = small_gpt();
    const Batch batch = gpt_batch(7);
    const std::vector<MicroBatch> slices = split(batch, {3, 2, 2});
    std::vector<double> losses;
    for (const std::vector<std::size_t>& order : {std::vector<std::size_t>{0, 1, 2}, {2, 0, 1}}) {
        Pipeline pipeline(model, {6}, options());
        for (const std::size_t m : order) {
            pipeline.forward(static_cast<int>(m), slices[m], true);
        }
        losses.push_back(pipeline.stages[0]->loss());
    }
    EXPECT_EQ(losses[0], losses[1]);
}

/// Says how often it was called, and in which capacity.
class Counting final : public ExecutableLayer {
  public:
    struct Calls {
        int forward = 0;
        int recomputation = 0;
        int backward = 0;
    };
    Counting(const SampleShape& shape, Calls& calls)
        : ExecutableLayer(shape, shape, DType::F32), calls_(calls) {}

    void forward(
        LayerCall& call, ConstView /*x*/, ConstView /*skip*/, View y, Kept& /*kept*/) override {
        call.recomputation ? ++calls_.recomputation : ++calls_.forward;
        call.kernels.fill_zero(y);
    }
    void backward_input(LayerCall& /*call*/,
                        Kept& /*kept*/,
                        ConstView /*x*/,
                        ConstView /*dy*/,
                        ConstView /*skip*/,
                        View /*dx*/) override {
        ++calls_.backward;
    }

  private:
    Calls& calls_;
};

TEST(Stage, ALayerIsToldWhetherItRunsAsARecomputation) {
    Counting::Calls calls;
    const SampleShape shape{.token_ids = false, .positions = 1, .width = 4};
    std::vector<std::unique_ptr<ExecutableLayer>> layers;
    layers.push_back(std::make_unique<Counting>(shape, calls));
    const std::unique_ptr<Device> device = make_cpu_device();
    Arena arena;
    const Model model = mlp_model({4, 4, 2});  // its first layer reads and makes as much
    Stage stage(*device,
                arena,
                model,
                {.stage = 0, .first_layer = 0, .layer_count = 1},
                std::move(layers),
                options());
    const Batch batch = mlp_batch(4, 4, 2);
    const std::vector<MicroBatch> slices = split(batch, {2, 2});
    for (int m = 0; m < 2; ++m) {
        test_stages::forward(stage, m, {}, slices[static_cast<std::size_t>(m)], false);
    }
    for (int m = 1; m >= 0; --m) {
        stage.recompute(m, slices[static_cast<std::size_t>(m)]);
        test_stages::backward(stage, m, arena.allocate(DType::F32, 2, 4, MemoryKind::Boundary));
    }
    EXPECT_EQ(calls.forward, 2);  // once per micro-batch
    EXPECT_EQ(calls.recomputation, 2);
    EXPECT_EQ(calls.backward, 2);
}

TEST(Stage, ResetFreesWhatAFailedStepLeft) {
    const Batch batch = gpt_batch(3);
    const MicroBatch data = split(batch, {3}).front();
    Pipeline pipeline(small_gpt(), {6}, options());
    const MemoryUse before = pipeline.arenas[0].live();
    pipeline.forward(0, data, true);
    pipeline.backward(0, data, false);
    pipeline.forward(1, data, true);
    pipeline.stages[0]->reset();
    EXPECT_EQ(pipeline.arenas[0].live(), before);
    EXPECT_EQ(pipeline.stages[0]->loss(), 0);
    pipeline.forward(0, data, true);
    pipeline.backward(0, data, false);
    Pipeline fresh(small_gpt(), {6}, options());
    fresh.forward(0, data, true);
    fresh.backward(0, data, false);
    EXPECT_EQ(pipeline.gradients(), fresh.gradients());
}

TEST(Stage, AGradientThatNoBackwardOfTheBatchHasWrittenIsZero) {
    const Batch batch = gpt_batch(3);
    const MicroBatch data = split(batch, {3}).front();
    Pipeline pipeline(small_gpt(), {6}, options());
    pipeline.forward(0, data, true);
    pipeline.backward(0, data, false);
    pipeline.stages[0]->begin_batch();
    pipeline.stages[0]->zero_missing_gradients();
    for (const Numbers& gradient : pipeline.gradients()) {
        EXPECT_EQ(gradient, Numbers(gradient.size(), 0.0));
    }
}

TEST(Stage, TellsOfEveryLayerAndPartWhenItIsDone) {
    std::vector<std::string> told;
    std::set<int> with_weights;
    StageOptions observed = options();
    TimePoint last;
    observed.layer_done = [&](int layer, Op part, TimePoint done, const GroupTimes&) {
        EXPECT_GE(done, last);
        last = done;
        const std::string text = std::string(op_text(part)) + std::to_string(layer);
        if (part == Op::BackwardWeight) {
            with_weights.insert(layer);
        } else if (told.empty() ||
                   told.back() != text) {  // a layer made of others tells of each of them
            told.push_back(text);
        }
    };
    const Batch batch = gpt_batch(3);
    const MicroBatch data = split(batch, {3}).front();
    Pipeline pipeline(small_gpt(), {2, 4}, observed);
    pipeline.forward(0, data, true);
    EXPECT_EQ(told, (std::vector<std::string>{"F0", "F1", "F2", "F3", "F4", "F5"}));
    told.clear();
    pipeline.backward(0, data, false);
    EXPECT_EQ(told, (std::vector<std::string>{"I5", "I4", "I3", "I2", "I1", "I0"}));
    EXPECT_EQ(with_weights, (std::set<int>{0, 1, 2, 3, 4, 5}));
    told.clear();
    pipeline.stages[1]->update({}, 1);
    EXPECT_EQ(told, (std::vector<std::string>{"OPT2", "OPT3", "OPT4", "OPT5"}));
}

}  // namespace stage_test
}  // namespace pipetwin::exec
