// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <span>
#include <vector>

#include <gtest/gtest.h>

#include "core/base/error.h"
#include "exec/device/device.h"
#include "exec/device/kernels.h"
#include "tests/exec/layers/layer_run.h"
#include "tests/support/compare_tensors.h"
#include "tests/support/finite_difference.h"

namespace pipetwin::exec {
namespace losses_test {

using testing::agree;
using testing::finite_difference;
using testing::LayerRun;
using testing::Numbers;
using testing::numbers_of;

LayerSpec smoothed(double smoothing) {
    return {.type = LayerType::CrossEntropy, .label_smoothing = smoothing};
}
const LayerSpec yes_or_no{.type = LayerType::BinaryCrossEntropy};

SampleShape numbers(int positions, int width) {
    return {.positions = positions, .width = width};
}

constexpr std::array every_type{DType::F64, DType::F32, DType::BF16};

/// How far results may lie from those in fp64: a gradient in bf16 is rounded to 8 bits.
double bound_of(DType type) {
    return type == DType::F64 ? 1e-14 : type == DType::F32 ? 1e-6 : 4e-3;
}

/// The gradient of the input behind a forward.
Numbers input_gradient(LayerRun& run) {
    Tensor dx = run.input_gradient_like();
    LayerCall call = run.call();
    run.layer->backward(call, run.kept, run.x, {}, {}, dx);
    return numbers_of(dx);
}

/// The number of right rows that a forward finds.
double right_rows(LayerRun& run) {
    MicroBatch slice{.batch = &run.batch, .first_sample = 0, .samples = run.batch.samples};
    LayerCall call = run.call();
    double right = -1;
    call.data = &slice;
    call.right_sum = &right;
    Kept kept;
    run.layer->forward(call, run.x, {}, {}, kept);
    return right;
}

/// What torch makes of some logits, which every type can hold.
struct OfTorch {
    double smoothing;
    double loss;
    Numbers gradient;
};

/// From torch 1.13 in fp64, with x = [[1.5, -0.5, 0.25, 2], [0, 3, -1, 0.5], [-2, 1, 1, -0.75]]:
///
///   loss = torch.nn.functional.cross_entropy(x, torch.tensor([3, 2, 1]), label_smoothing=s)
///   loss.backward(); x.grad
const std::vector<OfTorch> of_torch{{0.1,
                                     1.8786318389999044,
                                     {0.10022444983775369,
                                      0.006358364999664516,
                                      0.022768992281691516,
                                      -0.12935180711910974,
                                      0.0060953458910287805,
                                      0.28147443598042277,
                                      -0.30302531888343304,
                                      0.01545553701198151,
                                      -0.0008697695418529331,
                                      -0.15842364722098723,
                                      0.1415763527790128,
                                      0.01771706398382748}},
                                    {0.25,
                                     1.9161318389999042,
                                     {0.08772444983775368,
                                      -0.0061416350003354854,
                                      0.010268992281691511,
                                      -0.09185180711910974,
                                      -0.006404654108971221,
                                      0.2689744359804227,
                                      -0.265525318883433,
                                      0.002955537011981507,
                                      -0.013369769541852936,
                                      -0.12092364722098727,
                                      0.12907635277901272,
                                      0.0052170639838274675}}};

TEST(LabelSmoothing, IsThatOfTorch) {
    for (const OfTorch& expected : of_torch) {
        for (const DType type : every_type) {
            LayerRun run(smoothed(expected.smoothing), numbers(1, 4), 3, type);
            run.batch.targets = {3, 2, 1};
            LayerRun::set(run.x, {1.5, -0.5, 0.25, 2, 0, 3, -1, 0.5, -2, 1, 1, -0.75});
            run.forward();
            const double bound = bound_of(type);
            EXPECT_NEAR(run.loss, expected.loss, std::max(bound, 1e-15)) << to_string(type);
            EXPECT_TRUE(agree<double>(input_gradient(run), expected.gradient, bound))
                << to_string(type);
        }
    }
}

/// (1 - s) nll(target) + s times the mean of nll over all classes, which is how the loss is
/// defined.
TEST(LabelSmoothing, IsAMixtureOfTheTargetsLossAndTheMeanOverAllClasses) {
    constexpr int classes = 9;
    LayerRun run(smoothed(0.3), numbers(3, classes), 4, DType::F64);
    run.forward();
    const double found = run.loss;
    LayerRun plain(smoothed(0), numbers(3, classes), 4, DType::F64);
    plain.forward();
    const double of_target = plain.loss;
    double of_all = 0;
    for (int wanted = 0; wanted < classes; ++wanted) {
        std::ranges::fill(plain.batch.targets, wanted);
        plain.forward();
        of_all += plain.loss / classes;
    }
    EXPECT_NEAR(found, 0.7 * of_target + 0.3 * of_all, 1e-14);
}

/// A forward of a whole head, and what is then in the place of its logits.
Numbers place_of_logits(LayerRun& head, bool keeps, bool evaluation) {
    MicroBatch slice{.batch = &head.batch, .first_sample = 0, .samples = head.batch.samples};
    LayerCall call = head.call();
    call.data = &slice;
    call.keeps = keeps;
    call.evaluation = evaluation;
    double sum = 0;
    call.loss_sum = &sum;
    head.kept = {};
    head.layer->forward(call, head.x, {}, {}, head.kept);
    head.loss = sum * call.loss_scale;
    return numbers_of(head.kept.inner.back().input);
}

// The gradient by the logits is there when the forward ends, bit for bit that of a loss by itself,
// but for a forward without a backward, as in an evaluation: that leaves the logits alone.
TEST(CrossEntropyBehindAProduct, LeavesItsGradientInThePlaceOfTheLogits) {
    constexpr int classes = 9;
    const LayerSpec spec{.type = LayerType::Sequence,
                         .inner = {{.type = LayerType::Linear, .outputs = classes}, smoothed(0.1)}};
    for (const DType type : every_type) {
        LayerRun head(spec, numbers(3, 5), 4, type);
        head.batch.targets[1] = -1;
        const Numbers logits = place_of_logits(head, false, false);
        const double loss = head.loss;
        EXPECT_EQ(place_of_logits(head, true, true), logits) << to_string(type);
        EXPECT_EQ(head.loss, loss);
        LayerRun alone(smoothed(0.1), numbers(3, classes), 4, type);
        alone.batch.targets = head.batch.targets;
        LayerRun::set(alone.x, logits);
        alone.forward();
        EXPECT_EQ(alone.loss, loss);
        const Numbers gradient = input_gradient(alone);
        EXPECT_EQ(place_of_logits(head, true, false), gradient) << to_string(type);
        EXPECT_EQ(head.loss, loss);

        // I, and then W, are those of the product behind that gradient.
        LayerRun product(spec.inner.front(), numbers(3, 5), 4, type);
        Tensor dy = product.arena.allocate(type, 12, classes, MemoryKind::Boundary);
        LayerRun::set(dy, gradient);
        Tensor dx = product.input_gradient_like();
        LayerCall call = product.call();
        product.forward();
        product.layer->backward(call, product.kept, product.x, dy, {}, dx);
        EXPECT_EQ(input_gradient(head), numbers_of(dx)) << to_string(type);
        for (std::size_t i = 0; i < product.layer->parameters().size(); ++i) {
            EXPECT_EQ(numbers_of(head.layer->parameters()[i]->gradient),
                      numbers_of(product.layer->parameters()[i]->gradient))
                << to_string(type);
        }
    }
}

/// What the CPU's kernels make of `classes` columns with `padding` columns of NaN behind them.
struct PaddedLoss {
    std::vector<double> log_sums, gradients;
    double loss = 0;
    double right = 0;

    PaddedLoss(DType type, std::int64_t padding, double smoothing) {
        constexpr std::int64_t rows = 5;
        constexpr std::int64_t classes = 37;
        const std::vector<std::int32_t> targets{3, 36, -1, 0, 20};
        const std::int64_t columns = classes + padding;
        const std::int64_t all = rows * columns;
        std::vector<double> x(static_cast<std::size_t>(all), std::nan(""));
        for (std::int64_t i = 0; i < rows * classes; ++i) {
            const auto place = i / classes * columns + i % classes;
            x[static_cast<std::size_t>(place)] =
                i == 20 + 4 * classes ? -1 : -2 - std::sin(static_cast<double>(i));
        }
        Arena arena;
        const Kernels& kernels = cpu_kernels();
        const auto made = [&](DType of, std::int64_t height, std::int64_t width) {
            return arena.allocate(of, height, width, MemoryKind::Stash);
        };
        Tensor logits = made(type, rows, columns);
        Tensor dx = made(type, rows, columns);
        Tensor sums = made(NumberFormat(type).exact(), rows, 1);
        Tensor ids = made(DType::I32, rows, 1);
        kernels.upload(x, logits);
        kernels.upload(targets, ids);
        const ClassColumns of{.smoothing = smoothing, .padding = padding};
        kernels.cross_entropy_forward(logits, ids, of, sums, {.loss = &loss, .right = &right});
        kernels.cross_entropy_backward(logits, ids, sums, of, 0.25, dx);
        log_sums = values(kernels, sums);
        const std::vector<double> found = values(kernels, dx);
        for (std::int64_t i = 0; i < all; ++i) {
            if (i % columns < classes) {
                gradients.push_back(found[static_cast<std::size_t>(i)]);
            } else {
                EXPECT_EQ(found[static_cast<std::size_t>(i)], 0);
            }
        }
    }

    bool operator==(const PaddedLoss&) const = default;
};

TEST(CrossEntropyWithPadding, HasTheBitsOfTheClassesAlone) {
    for (const DType type : every_type) {
        for (const double smoothing : {0.0, 0.1}) {
            const PaddedLoss alone(type, 0, smoothing);
            EXPECT_GE(alone.right, 1);
            EXPECT_TRUE(PaddedLoss(type, 27, smoothing) == alone);
        }
    }
}

TEST(LabelSmoothing, KeepsNoBytesMore) {
    const auto plain = make_layer(smoothed(0), numbers(3, 9), DType::F32);
    const auto other = make_layer(smoothed(0.1), numbers(3, 9), DType::F32);
    EXPECT_EQ(plain->kept_bytes(4), other->kept_bytes(4));
    EXPECT_EQ(plain->kept_bytes(4), Bytes{4 * 3 * (4 + 4)});  // a target and a log sum for each row
}

TEST(Losses, HaveTheGradientsOfFiniteDifferences) {
    for (const LayerSpec& spec : {smoothed(0.2), yes_or_no}) {
        const bool is_binary = spec.type == LayerType::BinaryCrossEntropy;
        LayerRun run(spec, numbers(5, is_binary ? 1 : 7), 3, DType::F64);
        const auto value = [&] {
            run.forward();
            return run.loss;
        };
        value();
        const Numbers found = input_gradient(run);
        const std::span<double> x(run.x.as<double>(), static_cast<std::size_t>(run.x.size()));
        EXPECT_TRUE(agree<double>(found, finite_difference(value, x, 3e-4), 1e-8))
            << to_string(spec.type);
    }
}

/// From torch 1.13 in fp64:
///
///   x = torch.tensor([0, 2.5, -1.25, 40, -700, 0.75]); t = torch.tensor([1., 0, 1, 1, 0, 0])
///   loss = torch.nn.functional.binary_cross_entropy_with_logits(x, t); loss.backward(); x.grad
///
/// The gradient by -700 is 1.6e-305 there; 0 is as good.
TEST(BinaryCrossEntropy, IsThatOfTorch) {
    for (const DType type : every_type) {
        LayerRun run(yes_or_no, numbers(3, 1), 2, type);
        run.batch.targets = {1, 0, 1, 1, 0, 0};
        LayerRun::set(run.x, {0, 2.5, -1.25, 40, -700, 0.75});
        run.forward();
        EXPECT_NEAR(run.loss, 0.9851395003854613, 1e-15) << to_string(type);
        EXPECT_TRUE(agree<double>(input_gradient(run),
                                  Numbers{-0.08333333333333333,
                                          0.1540236366631261,
                                          -0.12954997686244854,
                                          0.0,
                                          0.0,
                                          0.1131964498625655},
                                  bound_of(type)))
            << to_string(type);
    }
}

TEST(BinaryCrossEntropy, KeepsItsInputAndTheTargets) {
    const auto loss = make_layer(yes_or_no, numbers(64, 1), DType::BF16);
    EXPECT_EQ(loss->saved_bytes(3), Bytes{3 * 64 * (2 + 4)});
    EXPECT_EQ(loss->output_bytes(3), Bytes{});
}

TEST(BinaryCrossEntropy, HandsOnWhatIsNotANumber) {
    for (const std::int32_t target : {0, 1}) {
        LayerRun run(yes_or_no, numbers(1, 1), 1, DType::F32);
        run.batch.targets = {target};
        LayerRun::set(run.x, {std::nan("")});
        run.forward();
        EXPECT_TRUE(std::isnan(run.loss));
    }
}

TEST(BinaryCrossEntropy, RefusesATargetThatIsNeitherYesNorNo) {
    LayerRun run(yes_or_no, numbers(2, 1), 2, DType::F32);
    run.batch.targets = {0, 1, 1, 2};
    try {
        run.forward();
        FAIL() << "accepted";
    } catch (const Error& error) {
        EXPECT_EQ(error.kind(), ErrorKind::BadInput);
        EXPECT_STREQ(error.what(), "sample 1, position 1: target 2, expected 0 to 1");
    }
}

/// A loss of two outputs of 3 samples with 2 positions and 5 classes.
class TwoLosses {
  public:
    static constexpr int samples = 3;
    static constexpr double smoothing = 0.1;
    static constexpr double weight = 0.3;

    explicit TwoLosses(DType type)
        : run(smoothed(smoothing), numbers(2, 5), samples, type),  // has the targets, and x_0
          made(make_layer({.type = LayerType::CrossEntropy,
                           .label_smoothing = smoothing,
                           .auxiliary_weight = weight},
                          std::vector{run.layer->input(), run.layer->input()},
                          type)),
          loss(dynamic_cast<JoiningLayer&>(*made)),
          other(run.arena.allocate(type, run.x.rows(), run.x.columns(), MemoryKind::Boundary)) {
        LayerRun::set(other, testing::random_numbers(static_cast<std::size_t>(other.size()), 5));
    }

    double forward(bool evaluation = false) {
        kept = {};
        MicroBatch slice{.batch = &run.batch, .first_sample = 0, .samples = samples};
        LayerCall call = run.call();
        double own = -1;
        double auxiliary = -1;
        call.data = &slice;
        call.evaluation = evaluation;
        call.loss_sum = &own;
        call.auxiliary_sum = &auxiliary;
        call.right_sum = &right;
        loss.join(call, std::array<ConstView, 2>{run.x, other}, {}, kept);
        return own * call.loss_scale + auxiliary * call.auxiliary_scale;
    }

    /// The gradients of both, one behind the other.
    Numbers gradients() {
        Tensor first = run.input_gradient_like();
        Tensor second = run.input_gradient_like();
        LayerCall call = run.call();
        loss.join_backward(
            call,
            kept,
            std::array<ConstView, 2>{run.x, other},
            {},
            std::array<JoiningLayer::InputGradient, 2>{JoiningLayer::InputGradient{.dx = first},
                                                       JoiningLayer::InputGradient{.dx = second}});
        Numbers both = numbers_of(first);
        std::ranges::copy(numbers_of(second), std::back_inserter(both));
        return both;
    }

    /// Loss and gradient of one of the two alone, by the loss of one output.
    double alone(const Tensor& x, Numbers& gradient) {
        LayerRun single(smoothed(smoothing), numbers(2, 5), samples, run.x.dtype());
        single.batch.targets = run.batch.targets;
        LayerRun::set(single.x, numbers_of(x));
        single.forward();
        gradient = input_gradient(single);
        return single.loss;
    }

    LayerRun run;
    std::unique_ptr<ExecutableLayer> made;
    JoiningLayer& loss;
    Tensor other;
    Kept kept;
    double right = -1;
};

TEST(LossOfTwo, IsThatOfTheFirstAndAShareOfThatOfTheSecond) {
    for (const DType type : every_type) {
        TwoLosses both(type);
        const double found = both.forward();
        Numbers expected;
        Numbers of_second;
        const double first = both.alone(both.run.x, expected);
        const double second = both.alone(both.other, of_second);
        EXPECT_NEAR(found, first + TwoLosses::weight * second, 1e-14) << to_string(type);
        for (const double value : of_second) {
            expected.push_back(TwoLosses::weight * value);
        }
        EXPECT_TRUE(agree<double>(both.gradients(), expected, 2 * bound_of(type)))
            << to_string(type);
    }
}

TEST(LossOfTwo, HasTheGradientsOfFiniteDifferencesByBoth) {
    TwoLosses both(DType::F64);
    both.forward();
    const Numbers found = both.gradients();
    Numbers expected;
    for (Tensor* const x : {&both.run.x, &both.other}) {
        const std::span<double> values(x->as<double>(), static_cast<std::size_t>(x->size()));
        std::ranges::copy(finite_difference([&] { return both.forward(); }, values, 3e-4),
                          std::back_inserter(expected));
    }
    EXPECT_TRUE(agree<double>(found, expected, 1e-8));
}

TEST(LossOfTwo, OfAnEvaluationIsThatOfTheFirst) {
    TwoLosses both(DType::F64);
    Numbers gradient;
    EXPECT_EQ(both.forward(true), both.alone(both.run.x, gradient));
}

TEST(LossOfTwo, CountsTheRightRowsOfTheFirst) {
    TwoLosses both(DType::F32);
    Numbers x(3 * 2 * 5, 0.0);
    for (std::size_t row = 0; row < 6; ++row) {
        x[5 * row + static_cast<std::size_t>(both.run.batch.targets[row])] = 1;
    }
    LayerRun::set(both.run.x, x);
    for (double& value : x) {
        value = -value;
    }
    LayerRun::set(both.other, x);
    both.forward();
    EXPECT_EQ(both.right, 6);
}

TEST(LossOfTwo, KeepsTheTargetsAndALogSumOfEach) {
    TwoLosses both(DType::BF16);
    EXPECT_EQ(both.loss.kept_bytes(TwoLosses::samples), Bytes{3 * 2 * (4 + 4 + 4)});
    both.forward();
    Bytes found;
    for (const Tensor& tensor : both.kept.tensors) {
        found += tensor.bytes();
    }
    EXPECT_EQ(found, both.loss.kept_bytes(TwoLosses::samples));
}

TEST(Accuracy, CountsRowsWhoseFirstLargestNumberIsTheTargets) {
    for (const DType type : every_type) {
        LayerRun run(smoothed(0.1), numbers(1, 40), 5, type);
        Numbers x(5 * 40, -1.0);
        x[33] = 2;           // row 0: 33
        x[40 + 7] = 3;       // row 1: 7, and 8 as large
        x[40 + 8] = 3;       //
        x[2 * 40 + 39] = 0;  // row 2: 39
        x[3 * 40 + 1] = -2;  // row 3: 0, the first of 39 equal ones
        x[4 * 40] = -1.5;    // row 4: 1, the first of 39 equal ones
        LayerRun::set(run.x, x);
        run.batch.targets = {33, 7, 39, 0, 1};
        EXPECT_EQ(right_rows(run), 5) << to_string(type);
        run.batch.targets = {32, 8, 38, 2, 0};
        EXPECT_EQ(right_rows(run), 0) << to_string(type);
        run.batch.targets = {33, 8, 39, 3, 1};
        EXPECT_EQ(right_rows(run), 3) << to_string(type);
    }
}

TEST(Accuracy, OfYesOrNoIsTheSignOfTheLogit) {
    for (const DType type : every_type) {
        LayerRun run(yes_or_no, numbers(4, 1), 2, type);
        LayerRun::set(run.x, {0.5, 0.5, -0.5, -0.5, 0, 0, 700, -700});
        run.batch.targets = {1, 0, 1, 0, 0, 1, 1, 0};
        EXPECT_EQ(right_rows(run), 5) << to_string(type);  // 0 says no
    }
}

TEST(Accuracy, OfARowThatIsNotANumberIsNotRight) {
    LayerRun run(smoothed(0), numbers(1, 3), 1, DType::F32);
    LayerRun::set(run.x, Numbers(3, std::nan("")));
    run.batch.targets = {0};
    EXPECT_EQ(right_rows(run), 0);
}

}  // namespace losses_test
}  // namespace pipetwin::exec
