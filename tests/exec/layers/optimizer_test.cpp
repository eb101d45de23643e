// SPDX-License-Identifier: Apache-2.0
#include "exec/layers/optimizer.h"

#include <array>
#include <cmath>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/base/error.h"
#include "core/scenario/scenario.h"
#include "exec/device/arena.h"
#include "exec/device/device.h"
#include "exec/device/kernels.h"
#include "exec/executor/executor.h"
#include "tests/exec/layers/layer_run.h"
#include "tests/support/compare_tensors.h"
#include "tests/support/small_training.h"

namespace pipetwin::exec {
namespace optimizer_test {

using testing::agree;
using ::testing::ElementsAre;
using testing::Numbers;
using testing::numbers_of;
using testing::random_numbers;

/// One number under an optimizer, by the formula.
struct Scalar {
    double w = 0;
    double first = 0;
    double second = 0;
};

struct Case {
    std::string name;
    OptimizerKind kind;
    int slots;
    std::function<void(Scalar&, double gradient, int step)> formula;
};

constexpr double rate = 0.01;

void adam_formula(Scalar& s, double g, int step) {
    s.first = 0.9 * s.first + 0.1 * g;
    s.second = 0.999 * s.second + 0.001 * g * g;
    const double m = s.first / (1 - std::pow(0.9, step));
    const double v = s.second / (1 - std::pow(0.999, step));
    s.w -= rate * m / (std::sqrt(v) + 1e-8);
}

std::vector<Case> cases() {
    return {
        {"Sgd", OptimizerKind::Sgd, 0, [](Scalar& s, double g, int) { s.w -= rate * g; }},
        {"Momentum",
         OptimizerKind::Momentum,
         1,
         [](Scalar& s, double g, int) {
             s.first = 0.9 * s.first + g;
             s.w -= rate * s.first;
         }},
        {"RmsProp",
         OptimizerKind::RmsProp,
         1,
         [](Scalar& s, double g, int) {
             s.first = 0.9 * s.first + 0.1 * g * g;
             s.w -= rate * g / (std::sqrt(s.first) + 1e-8);
         }},
        {"RmsPropMomentum",
         OptimizerKind::RmsPropMomentum,
         2,
         [](Scalar& s, double g, int) {
             s.first = 0.9 * s.first + 0.1 * g * g;
             s.second = 0.9 * s.second + rate * g / std::sqrt(s.first + 1);
             s.w -= s.second;
         }},
        {"Adam", OptimizerKind::Adam, 2, adam_formula},
        {"AdamW",
         OptimizerKind::AdamW,
         2,
         [](Scalar& s, double g, int step) {
             s.w -= rate * 0.01 * s.w;
             adam_formula(s, g, step);
         }},
    };
}

class EveryOptimizer : public ::testing::TestWithParam<Case> {};

INSTANTIATE_TEST_SUITE_P(Optimizers,
                         EveryOptimizer,
                         ::testing::ValuesIn(cases()),
                         [](const auto& chosen) { return chosen.param.name; });

constexpr std::int64_t size =
    5000;  // more than one block of a fused pass, and a last one that is not full

Parameter make_parameter(Arena& arena, DType type, int slots) {
    const NumberFormat format(type);
    const auto allocate = [&](MemoryKind kind) {
        const bool value = kind == MemoryKind::Weights;
        Tensor tensor = arena.allocate(value ? type : format.exact(), 1, size, kind);
        cpu_kernels().fill_zero(tensor);
        return tensor;
    };
    Parameter parameter;
    parameter.value = allocate(MemoryKind::Weights);
    if (format.has_master_weights()) {
        parameter.master = allocate(MemoryKind::Optimizer);
        cpu_kernels().upload(random_numbers(size, 1), parameter.master);
    }
    parameter.gradient = allocate(MemoryKind::Gradients);
    if (slots > 0) {
        parameter.first = allocate(MemoryKind::Optimizer);
    }
    if (slots > 1) {
        parameter.second = allocate(MemoryKind::Optimizer);
    }
    cpu_kernels().upload(random_numbers(size, 1), parameter.value);
    return parameter;
}

TEST_P(EveryOptimizer, FollowsItsFormulaOverSeveralSteps) {
    const std::unique_ptr<Device> device = make_cpu_device();
    OptimizerSettings settings;
    settings.kind = GetParam().kind;
    settings.learning_rate = rate;
    for (const DType type : {DType::F64, DType::F32, DType::BF16}) {
        Arena arena;
        Parameter parameter = make_parameter(arena, type, GetParam().slots);
        const Tensor& exact = parameter.master.empty() ? parameter.value : parameter.master;
        std::vector<Scalar> scalars;
        for (const double w : numbers_of(exact)) {
            scalars.push_back({.w = w});
        }
        for (int step = 1; step <= 4; ++step) {
            const Numbers gradient = random_numbers(size, static_cast<std::uint64_t>(10 + step));
            cpu_kernels().upload(gradient, parameter.gradient);
            const std::span<double> squares = device->results(1);
            update(*device, std::array{&parameter}, settings, step, squares);
            EXPECT_NEAR(std::sqrt(squares[0]), testing::norm(std::span(gradient)), 1e-5);
            for (std::size_t i = 0; i < gradient.size(); ++i) {
                GetParam().formula(scalars[i], gradient[i], step);
            }
        }
        Numbers expected;
        for (const Scalar& scalar : scalars) {
            expected.push_back(scalar.w);
        }
        const double bound = type == DType::F64 ? 1e-14 : 1e-6;
        EXPECT_TRUE(agree<double>(numbers_of(exact), expected, bound)) << to_string(type);
        if (type == DType::BF16) {
            Tensor rounded = arena.allocate(type, 1, size, MemoryKind::Workspace);
            cpu_kernels().upload(numbers_of(exact), rounded);
            EXPECT_EQ(numbers_of(parameter.value), numbers_of(rounded));
        }
    }
}

TEST_P(EveryOptimizer, HasTheStateThatThePlanCounts) {
    EXPECT_EQ(traits(GetParam().kind).state_slots, GetParam().slots);
}

TEST_P(EveryOptimizer, RefusesAStepZero) {
    const std::unique_ptr<Device> device = make_cpu_device();
    Arena arena;
    Parameter parameter = make_parameter(arena, DType::F32, GetParam().slots);
    EXPECT_THROW(
        update(*device, std::array{&parameter}, {.kind = GetParam().kind}, 0, device->results(1)),
        InternalError);
}

TEST_P(EveryOptimizer, UpdatesWithTheScaledGradientAndSumsTheSquaresOfTheOther) {
    const std::unique_ptr<Device> device = make_cpu_device();
    const OptimizerSettings settings{.kind = GetParam().kind, .learning_rate = rate};
    Arena arena;
    Parameter scaled = make_parameter(arena, DType::F64, GetParam().slots);
    Parameter plain = make_parameter(arena, DType::F64, GetParam().slots);
    Numbers gradient = random_numbers(size, 11);
    cpu_kernels().upload(gradient, scaled.gradient);
    const double norm = testing::norm(std::span<const double>(gradient));
    for (double& g : gradient) {
        g *= 0.25;  // exact
    }
    cpu_kernels().upload(gradient, plain.gradient);
    const std::span<double> squares = device->results(2);
    update(*device, std::array{&scaled}, settings, 1, squares.first(1), 0.25);
    update(*device, std::array{&plain}, settings, 1, squares.last(1));
    EXPECT_EQ(numbers_of(scaled.value), numbers_of(plain.value));
    EXPECT_NEAR(std::sqrt(squares[0]), norm, 1e-9);
}

/// Three weights behind three updates, and by which settings.
struct OfTorch {
    std::string name;
    OptimizerSettings settings;
    Numbers weights;
};

/// From torch 1.13, in fp64:
///
///   w = torch.nn.Parameter(torch.tensor([1, -0.5, 0.25])); o = torch.optim.SGD([w], lr=0.1, ...)
///   for g in [[0.5, -1, 2], [-0.25, 0.75, 1], [1.5, 0.125, -0.5]]:
///       w.grad = torch.tensor(g); o.step()
///
/// and SGD(momentum=0.9), RMSprop(alpha=0.9, eps=1e-3), Adam and AdamW in its place, with these
/// values of weight_decay.
std::vector<OfTorch> decayed_by_torch() {
    return {{"sgd",
             {.kind = OptimizerKind::Sgd, .weight_decay = 0.01},
             {0.822077949, -0.48612639950000003, -0.0002494502500000037}},
            {"momentum",
             {.kind = OptimizerKind::Momentum, .weight_decay = 0.01},
             {0.7565597489999999, -0.38150229950000003, -0.43254150025}},
            {"momentum of 0.8",
             {.kind = OptimizerKind::Momentum, .momentum = 0.8},
             {0.7729999999999999, -0.4035, -0.36800000000000005}},
            {"rmsprop",
             {.kind = OptimizerKind::RmsProp, .epsilon = 1e-3, .weight_decay = 0.01},
             {0.5281424137524127, -0.4125348876918523, -0.13714191375111429}},
            {"adam",
             {.kind = OptimizerKind::Adam, .weight_decay = 0.01},
             {0.8036044488459577, -0.3894775190842721, 0.0003690158727027021}},
            {"adamw",
             {.kind = OptimizerKind::AdamW, .weight_decay = 0.05},
             {0.7925217864126223, -0.3841381725341467, -0.0018517914580913827}}};
}

/// A parameter of three numbers and its state, all 0 but for the weights.
Parameter three_weights(Arena& arena, const Numbers& weights) {
    Parameter parameter;
    for (Tensor Parameter::*const part : {&Parameter::value,
                                          &Parameter::gradient,
                                          &Parameter::first,
                                          &Parameter::second,
                                          &Parameter::average}) {
        parameter.*part = arena.allocate(DType::F64, 1, 3, MemoryKind::Optimizer);
        cpu_kernels().fill_zero(parameter.*part);
    }
    cpu_kernels().upload(weights, parameter.value);
    return parameter;
}

const std::array three_gradients{
    Numbers{0.5, -1, 2}, Numbers{-0.25, 0.75, 1}, Numbers{1.5, 0.125, -0.5}};

TEST(WeightDecay, IsThatOfTorch) {
    const std::unique_ptr<Device> device = make_cpu_device();
    for (OfTorch& expected : decayed_by_torch()) {
        expected.settings.learning_rate = 0.1;
        Arena arena;
        Parameter parameter = three_weights(arena, {1, -0.5, 0.25});
        for (int step = 1; step <= 3; ++step) {
            cpu_kernels().upload(three_gradients.at(static_cast<std::size_t>(step) - 1),
                                 parameter.gradient);
            update(*device, std::array{&parameter}, expected.settings, step, device->results(1));
        }
        EXPECT_TRUE(agree<double>(numbers_of(parameter.value), expected.weights, 1e-14))
            << expected.name;
    }
}

/// Clipping scales the gradient of the loss alone, as where torch clips before its optimizer runs.
TEST(WeightDecay, IsNotClipped) {
    const std::unique_ptr<Device> device = make_cpu_device();
    Arena arena;
    Parameter parameter = three_weights(arena, {1, -0.5, 0.25});
    cpu_kernels().upload(Numbers{4, 8, -4}, parameter.gradient);
    const OptimizerSettings settings{
        .kind = OptimizerKind::Sgd, .learning_rate = 0.5, .weight_decay = 0.5};
    update(*device, std::array{&parameter}, settings, 1, device->results(1), 0.25);
    EXPECT_EQ(numbers_of(parameter.value), (Numbers{0.25, -1.375, 0.6875}));
}

/// What recipes for Transformers write as two groups of parameters, of which one has a weight decay
/// of 0.
TEST(WeightDecay, OfWeightsLeavesNormsBiasesAndEmbeddingsAsTheyWouldBeWithoutIt) {
    const std::unique_ptr<Device> device = make_cpu_device();
    for (const OptimizerKind kind :
         {OptimizerKind::Sgd, OptimizerKind::Momentum, OptimizerKind::Adam, OptimizerKind::AdamW}) {
        const auto updated = [&](bool is_weight, const OptimizerSettings& settings) {
            Arena arena;
            Parameter first = three_weights(arena, {3, 2, 1});
            Parameter parameter = three_weights(arena, {1, -0.5, 0.25});
            parameter.is_weight = is_weight;
            Parameter last = three_weights(arena, {1, 2, 3});
            last.is_weight = true;
            for (Parameter* const each : {&first, &parameter, &last}) {
                cpu_kernels().upload(three_gradients[0], each->gradient);
            }
            const std::span<double> squares = device->results(3);
            update(*device, std::array{&first, &parameter, &last}, settings, 1, squares);
            EXPECT_THAT(squares, ::testing::Each(5.25));
            return numbers_of(parameter.value);
        };
        OptimizerSettings settings{.kind = kind, .learning_rate = 0.1, .weight_decay = 0.5};
        const Numbers decayed = updated(false, settings);
        settings.weight_decay_of = WeightDecayOf::Weights;
        EXPECT_EQ(updated(true, settings), decayed);
        const Numbers left = updated(false, settings);
        EXPECT_NE(left, decayed);
        settings.weight_decay = 0;
        EXPECT_EQ(left, updated(false, settings));
    }
}

TEST(WeightDecay, WeightsAreTheMatricesOfProductsAndConvolutions) {
    const auto weights_of = [](const Model& model) {
        Executor executor(test::plan_of(model, {.stages = 1}), model, test::options_of({}));
        std::vector<std::string> names;
        for (const Parameter* const parameter : executor.parameters()) {
            if (parameter->is_weight) {
                names.push_back(parameter->name);
            }
        }
        return names;
    };
    EXPECT_THAT(weights_of(gpt_model({.layers = 1,
                                      .d_model = 8,
                                      .heads = 2,
                                      .context = 4,
                                      .vocabulary = 11,
                                      .feed_forward = 16})),
                ElementsAre("block0.attention.attention.qkv.weight",
                            "block0.attention.attention.out.weight",
                            "block0.feed_forward.up.weight",
                            "block0.feed_forward.down.weight",
                            "head.projection.weight"));
}

/// Kingma and Ba's formula after one step from nothing: m / (1 - beta1) is g, and v / (1 - beta2)
/// is g^2, whatever the betas; after two it is not.
TEST(Adam, KeepsTheSharesThatItsBetasSay) {
    const std::unique_ptr<Device> device = make_cpu_device();
    Arena arena;
    Parameter parameter = three_weights(arena, {0, 0, 0});
    const OptimizerSettings settings{.kind = OptimizerKind::Adam,
                                     .learning_rate = 0.1,
                                     .beta1 = 0.5,
                                     .beta2 = 0.75,
                                     .epsilon = 0};
    double m = 0;
    double v = 0;
    double w = 0;
    for (int step = 1; step <= 3; ++step) {
        const double g = three_gradients.at(static_cast<std::size_t>(step) - 1)[0];
        m = 0.5 * m + 0.5 * g;
        v = 0.75 * v + 0.25 * g * g;
        w -= 0.1 * (m / (1 - std::pow(0.5, step))) / std::sqrt(v / (1 - std::pow(0.75, step)));
        cpu_kernels().upload(three_gradients.at(static_cast<std::size_t>(step) - 1),
                             parameter.gradient);
        update(*device, std::array{&parameter}, settings, step, device->results(1));
        EXPECT_NEAR(numbers_of(parameter.value)[0], w, 1e-14);
    }
}

/// tf.compat.v1.train.RMSPropOptimizer begins with a mean of squares of 1, so GPipe's recipe with
/// rate 1 and a gradient of 2 moves first by 2 / sqrt(0.9 + 0.1 * 4 + 1).
TEST(RmsPropMomentum, BeginsWithAMeanOfSquaresOfOneAndTakesTheRootOfItAndEpsilon) {
    EXPECT_EQ(traits(OptimizerKind::RmsPropMomentum).first_begins_at, 1);
    EXPECT_EQ(traits(OptimizerKind::RmsProp).first_begins_at, 0);
    const std::unique_ptr<Device> device = make_cpu_device();
    Arena arena;
    Parameter parameter = three_weights(arena, {0, 0, 0});
    cpu_kernels().upload(Numbers(3, 1), parameter.first);
    const OptimizerSettings settings{.kind = OptimizerKind::RmsPropMomentum, .learning_rate = 1};
    double mean = 1;
    double move = 0;
    double w = 0;
    for (int step = 1; step <= 3; ++step) {
        cpu_kernels().upload(Numbers(3, 2), parameter.gradient);
        update(*device, std::array{&parameter}, settings, step, device->results(1));
        mean = 0.9 * mean + 0.1 * 4;
        move = 0.9 * move + 2 / std::sqrt(mean + 1);
        w -= move;
    }
    EXPECT_TRUE(agree<double>(numbers_of(parameter.value), Numbers(3, w), 1e-14));
}

/// The decay is min(0.9999, (1 + n) / (10 + n)) for update n = 1, 2, ..., so 2/11, 3/12 and 4/13.
TEST(AverageOfWeights, FadesAsTensorFlowsExponentialMovingAverage) {
    const std::unique_ptr<Device> device = make_cpu_device();
    Arena arena;
    Parameter parameter = three_weights(arena, {1, -0.5, 0.25});
    cpu_kernels().upload(Numbers{1, -0.5, 0.25}, parameter.average);
    const OptimizerSettings settings{
        .kind = OptimizerKind::Sgd, .learning_rate = 0.1, .average_decay = 0.9999};
    Numbers expected{1, -0.5, 0.25};
    const Numbers decays{2.0 / 11, 3.0 / 12, 4.0 / 13};
    for (int step = 1; step <= 3; ++step) {
        const auto index = static_cast<std::size_t>(step) - 1;
        cpu_kernels().upload(three_gradients.at(index), parameter.gradient);
        update(*device, std::array{&parameter}, settings, step, device->results(1));
        const Numbers w = numbers_of(parameter.value);
        for (std::size_t i = 0; i < w.size(); ++i) {
            expected[i] = decays[index] * expected[i] + (1 - decays[index]) * w[i];
        }
    }
    EXPECT_TRUE(agree<double>(numbers_of(parameter.average), expected, 1e-14));
    EXPECT_EQ(average_decay_of(settings, 1'000'000), 0.9999);
    EXPECT_EQ(average_decay_of({.average_decay = 0.5}, 8), 0.5);
}

TEST(AverageOfWeights, ChangesNoBitOfTheWeights) {
    const std::unique_ptr<Device> device = make_cpu_device();
    for (const DType type : {DType::F64, DType::F32, DType::BF16}) {
        Arena arena;
        Parameter plain = make_parameter(arena, type, 2);
        Parameter averaged = make_parameter(arena, type, 2);
        averaged.average =
            arena.allocate(NumberFormat(type).exact(), 1, size, MemoryKind::Optimizer);
        cpu_kernels().fill_zero(averaged.average);
        OptimizerSettings settings;
        for (int step = 1; step <= 2; ++step) {
            const Numbers gradient = random_numbers(size, static_cast<std::uint64_t>(20 + step));
            cpu_kernels().upload(gradient, plain.gradient);
            cpu_kernels().upload(gradient, averaged.gradient);
            settings.average_decay = 0;
            update(*device, std::array{&plain}, settings, step, device->results(1));
            settings.average_decay = 0.9;
            update(*device, std::array{&averaged}, settings, step, device->results(1));
        }
        EXPECT_EQ(numbers_of(plain.value), numbers_of(averaged.value)) << to_string(type);
    }
}

TEST(SumOfSquares, IsThatOfTheUpdateBitForBitAndChangesNothing) {
    const std::unique_ptr<Device> device = make_cpu_device();
    for (const DType type : {DType::F64, DType::F32}) {
        Arena arena;
        Parameter parameter = make_parameter(arena, type, 2);
        cpu_kernels().upload(random_numbers(size, 12), parameter.gradient);
        const Numbers before = numbers_of(parameter.value);
        const std::span<double> squares = device->results(2);
        sum_squares(*device, std::array{&parameter}, squares.first(1));
        EXPECT_EQ(numbers_of(parameter.value), before);
        update(*device, std::array{&parameter}, {}, 1, squares.last(1));
        EXPECT_EQ(squares[0], squares[1]);
    }
}

/// From torch 1.13, in fp64:
///
///   def alone(make, n):
///       w = torch.nn.Parameter(torch.zeros(1)); opt = torch.optim.SGD([w], lr=0.01)
///       s = make(opt); out = []
///       for _ in range(n): out.append(opt.param_groups[0]['lr']); opt.step(); s.step()
///       return out
///   alone(lambda o: LinearLR(o, start_factor=0.25, total_iters=3), 4)
///   alone(lambda o: CosineAnnealingLR(o, T_max=8, eta_min=0.001), 9)
///   alone(lambda o: LinearLR(o, start_factor=1.0, end_factor=0.1, total_iters=8), 9)
TEST(LearningRate, IsThatOfTorchsSchedulers) {
    OptimizerSettings settings{
        .learning_rate = 0.01, .warmup_steps = 4, .final_learning_rate = 0.001, .steps = 12};
    const Numbers warm_up{0.0025, 0.005, 0.0075, 0.01};
    const Numbers cosine{0.01,
                         0.009657457896300792,
                         0.008681980515339464,
                         0.007222075445642905,
                         0.0055000000000000005,
                         0.0037779245543570965,
                         0.0023180194846605367,
                         0.0013425421036992098,
                         0.001};
    const Numbers linear{
        0.01, 0.008875, 0.00775, 0.006625, 0.0055, 0.004375, 0.00325, 0.002125, 0.001};
    const auto expect_rates = [&](RateSchedule schedule, const Numbers& after) {
        settings.schedule = schedule;
        for (std::size_t step = 0; step < warm_up.size() + after.size(); ++step) {
            const double expected =
                step < warm_up.size() ? warm_up[step] : after[step - warm_up.size()];
            EXPECT_NEAR(learning_rate(settings, static_cast<int>(step)), expected, 1e-17) << step;
        }
    };
    expect_rates(RateSchedule::Constant, Numbers(9, 0.01));
    expect_rates(RateSchedule::Cosine, cosine);
    expect_rates(RateSchedule::Linear, linear);
}

/// From torch 1.13: alone(lambda o: MultiStepLR(o, [3, 5, 6], gamma=0.1), 8) of a rate of 0.01.
TEST(LearningRate, OfMilestonesIsThatOfTorchsMultiStep) {
    const OptimizerSettings settings{.learning_rate = 0.01,
                                     .schedule = RateSchedule::Step,
                                     .milestones = {3, 5, 6},
                                     .rate_factor = 0.1};
    const Numbers expected{0.01, 0.01, 0.01, 0.001, 0.001, 0.0001, 1e-5, 1e-5};
    for (std::size_t step = 0; step < expected.size(); ++step) {
        EXPECT_NEAR(learning_rate(settings, static_cast<int>(step)), expected[step], 1e-17) << step;
    }
}

TEST(LearningRate, StaysAtItsEndBehindTheLastStepAndInAWarmUpThatIsLongerThanTheRun) {
    OptimizerSettings settings{.learning_rate = 1,
                               .schedule = RateSchedule::Cosine,
                               .final_learning_rate = 0.25,
                               .steps = 3};
    EXPECT_EQ(learning_rate(settings, 0), 1);
    EXPECT_EQ(learning_rate(settings, 3), 0.25);
    EXPECT_EQ(learning_rate(settings, 1000), 0.25);
    settings.warmup_steps = 10;
    EXPECT_EQ(learning_rate(settings, 4), 0.5);
    EXPECT_EQ(learning_rate(settings, 9), 1);
}

TEST(LearningRate, IsWhatTheUpdateUses) {
    const std::unique_ptr<Device> device = make_cpu_device();
    Arena arena;
    Parameter parameter = make_parameter(arena, DType::F64, 0);
    const Numbers gradient = random_numbers(size, 13);
    cpu_kernels().upload(gradient, parameter.gradient);
    Numbers expected = numbers_of(parameter.value);
    for (std::size_t i = 0; i < expected.size(); ++i) {
        expected[i] -= 0.005 * gradient[i];
    }
    const OptimizerSettings settings{
        .kind = OptimizerKind::Sgd, .learning_rate = 0.01, .warmup_steps = 4};
    update(*device, std::array{&parameter}, settings, 2, device->results(1));
    EXPECT_EQ(numbers_of(parameter.value), expected);
}

/// torch.nn.utils.clip_grad_norm_ of gradients (3, 4) and (12) in fp64 with 6.5 makes 3 to
/// 1.4999998846153937, with 13 to 2.9999997692307874, and leaves it with 14.
TEST(ClipScale, IsThatOfTorch) {
    const auto scale = [](double clip_norm) {
        return clip_scale({.clip_norm = clip_norm}, std::sqrt(9 + 16 + 144));
    };
    EXPECT_DOUBLE_EQ(3 * scale(6.5), 1.4999998846153937);
    EXPECT_DOUBLE_EQ(3 * scale(13), 2.9999997692307874);
    EXPECT_EQ(scale(14), 1);
    EXPECT_EQ(scale(0), 1);
}

TEST(OptimizerSettings, ComeFromTheScenario) {
    Scenario scenario;
    scenario.training.optimizer = OptimizerKind::Momentum;
    scenario.training.learning_rate = 0.5;
    const OptimizerSettings settings = optimizer_settings(scenario);
    EXPECT_EQ(settings.kind, OptimizerKind::Momentum);
    EXPECT_EQ(settings.learning_rate, 0.5);
    EXPECT_EQ(settings.momentum, 0.9);
    EXPECT_EQ(weight_decay_of(settings), 0);
    EXPECT_EQ(settings.average_decay, 0);
}

TEST(OptimizerSettings, HaveTheDefaultsOfTheirOptimizer) {
    EXPECT_EQ(weight_decay_of({.kind = OptimizerKind::AdamW}), 0.01);
    EXPECT_EQ(weight_decay_of({.kind = OptimizerKind::Adam}), 0);
    EXPECT_EQ(epsilon_of({.kind = OptimizerKind::RmsProp}), 1e-8);
    EXPECT_EQ(epsilon_of({.kind = OptimizerKind::RmsPropMomentum}), 1);
    EXPECT_EQ(epsilon_of({.kind = OptimizerKind::RmsPropMomentum, .epsilon = 0.25}), 0.25);
}

TEST(OptimizerSettings, OfTheScenarioTakeThePlaceOfTheDefaults) {
    Scenario scenario;
    scenario.training.optimizer = OptimizerKind::RmsPropMomentum;
    scenario.training.momentum = 0.5;
    scenario.training.rmsprop_decay = 0.75;
    scenario.training.epsilon = 0.125;
    scenario.training.weight_decay = 4e-5;
    scenario.training.weight_decay_of = WeightDecayOf::Weights;
    scenario.training.betas = {0.8, 0.9};
    scenario.training.average_decay = 0.9999;
    scenario.training.learning_rate_schedule = RateSchedule::Step;
    scenario.training.learning_rate_milestones = {4, 9};
    scenario.training.learning_rate_factor = 0.5;
    const OptimizerSettings settings = optimizer_settings(scenario);
    EXPECT_EQ(settings.momentum, 0.5);
    EXPECT_EQ(settings.decay, 0.75);
    EXPECT_EQ(epsilon_of(settings), 0.125);
    EXPECT_EQ(weight_decay_of(settings), 4e-5);
    EXPECT_EQ(settings.weight_decay_of, WeightDecayOf::Weights);
    EXPECT_EQ(settings.beta1, 0.8);
    EXPECT_EQ(settings.beta2, 0.9);
    EXPECT_EQ(settings.average_decay, 0.9999);
    EXPECT_EQ(learning_rate(settings, 9), settings.learning_rate / 4);
}

}  // namespace optimizer_test
}  // namespace pipetwin::exec
