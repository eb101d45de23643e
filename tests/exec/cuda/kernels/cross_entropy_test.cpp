// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "tests/exec/cuda/kernels/kernel_test.h"

namespace pipetwin::cuda {
namespace cross_entropy_test {

using namespace test;  // NOLINT(google-build-using-namespace): the tests' own words

class CudaCrossEntropy : public KernelTest {
  protected:
    /// The loss and its gradient, by one kernel or by two.
    void find(bool in_one_pass,
              const CrossEntropy& loss,
              float smoothing,
              float* log_sums,
              const LossSums& to,
              const LossGradient& gradient) {
        if (in_one_pass) {
            expect_ok(cross_entropy_with_gradient(
                real(), loss, smoothing, log_sums, to, gradient, nullptr));
            return;
        }
        expect_ok(cross_entropy_forward(real(), loss, smoothing, log_sums, to, nullptr));
        expect_ok(cross_entropy_backward(real(), loss, log_sums, smoothing, gradient, nullptr));
    }
};
INSTANTIATE_TEST_SUITE_P(Ways, CudaCrossEntropy, every_way(), ::testing::PrintToStringParamName());

/// What the CPU finds.
struct Expected {
    Numbers log_sums;
    Numbers dx;
    double loss = 0;
    double right = 0;
};

constexpr float scale = 0.25F;

Expected on_cpu(const Shape& shape,
                const Numbers& x,
                const std::vector<std::int32_t>& targets,
                double smoothing) {
    const auto [n, width] = shape;
    Expected found{.log_sums = Numbers(index(n)), .dx = Numbers(index(shape.size()))};
    cpu().cross_entropy_forward(view(x, n, width),
                                view(targets),
                                {.smoothing = smoothing},
                                view(found.log_sums, n, 1),
                                {.loss = &found.loss, .right = &found.right});
    cpu().cross_entropy_backward(view(x, n, width),
                                 view(targets),
                                 view(std::as_const(found.log_sums), n, 1),
                                 {.smoothing = smoothing},
                                 scale,
                                 view(found.dx, n, width));
    return found;
}

TEST_P(CudaCrossEntropy, AndItsGradient) {
    std::vector<Shape> all(row_shapes().begin(), row_shapes().end());
    all.push_back({1100, 3});  // more losses than the block that adds them up has threads
    for (const Shape& shape : all) {
        for (const float smoothing : {0.0F, 0.25F}) {
            SCOPED_TRACE(shape.text());
            const auto [n, width] = shape;
            Numbers x = random(shape.size(), 1);
            std::for_each(x.begin(), x.end(), [](float& value) { value = 8 * value + 8; });
            x = rounded(real(), x);
            const std::vector<std::int32_t> targets = random_ids(n, width, 2);
            const Expected expected = on_cpu(shape, x, targets, smoothing);
            double found_sum = 0;
            double found_right = 0;
            const auto both = [&](bool in_place) {
                return run([&, in_place] {
                    const Operand of_x(way(), x);
                    const Operand of_dx(way(), shape.size());
                    const DeviceArray<std::int32_t> of_targets(targets);
                    const DeviceArray<float> sums(index(n));
                    const DeviceArray<double> scratch(index(loss_scratch(n)));
                    const DeviceArray<double> totals(2);
                    const DeviceArray<float> factor(std::vector<float>{scale});
                    const CrossEntropy loss{n, width, of_x.data(), of_targets.data()};
                    expect_ok(
                        cross_entropy_forward(real(),
                                              loss,
                                              smoothing,
                                              sums.data(),
                                              {totals.data(), totals.data() + 1, scratch.data()},
                                              nullptr));
                    expect_ok(cross_entropy_backward(
                        real(),
                        loss,
                        sums.data(),
                        smoothing,
                        {.scale = factor.data(), .dx = in_place ? of_x.data() : of_dx.data()},
                        nullptr));
                    found_sum = totals.elements()[0];
                    found_right = totals.elements()[1];
                    return joined({sums.elements(), in_place ? of_x.numbers() : of_dx.numbers()});
                });
            };
            const Numbers found = both(true);
            EXPECT_EQ(found, both(false));
            EXPECT_NEAR(found_sum, expected.loss, 1e-5 * 64 * static_cast<double>(n));
            EXPECT_EQ(found_right, expected.right);
            const std::vector<Numbers> parts = split(found, {n, shape.size()});
            EXPECT_TRUE(close(parts[0], expected.log_sums, 1e-5));
            // The gradient of a class that is certain is 0, and what is found is rounding error.
            if (width > 1) {
                EXPECT_TRUE(close(parts[1], expected.dx, way().bound()));
            }
        }
    }
}

/// Columns [first, first + count) of a matrix.
Numbers columns_of(const Numbers& x, const Shape& shape, std::int64_t first, std::int64_t count) {
    Numbers part;
    for (std::int64_t row = 0; row < shape.rows; ++row) {
        const auto begin = x.begin() + row * shape.width + first;
        part.insert(part.end(), begin, begin + count);
    }
    return part;
}

// Each device has as many classes, and what it finds of them goes to all: the loss and the gradient
// are those of one device that has all classes.
TEST_P(CudaCrossEntropy, OfClassesThatSeveralDevicesHave) {
    for (const Shape& shape : {Shape{1, 2}, {5, 12}, {7, 64}, {3, 2056}, {33, 300}}) {
        for (const std::int64_t devices : {2, 4}) {
            const auto [n, width] = shape;
            const std::int64_t own = width / devices;
            if (own == 0) {
                continue;
            }
            SCOPED_TRACE(shape.text());
            Numbers x = random(shape.size(), 1);
            std::for_each(x.begin(), x.end(), [](float& value) { value = 8 * value; });
            x.front() = x.back() = 99;  // in one row the first of two is the largest
            x = rounded(real(), x);
            std::vector<std::int32_t> targets = random_ids(n, width, 2);
            targets.front() = n == 1 ? 0 : -1;  // has no part in the loss
            const Expected expected = on_cpu(shape, x, targets, 0);
            double found_sum = 0;
            double found_right = 0;
            const Numbers found = run([&] {
                const DeviceArray<std::int32_t> of_targets(targets);
                const DeviceArray<float> parts(index(devices * n * 4));
                const DeviceArray<float> sums(index(n));
                const DeviceArray<double> scratch(index(loss_scratch(n)));
                const DeviceArray<double> totals(2);
                const DeviceArray<float> factor(std::vector<float>{scale});
                std::vector<Operand> of_x;
                const auto loss_of = [&](std::int64_t device) {
                    return CrossEntropy{.rows = n,
                                        .width = own,
                                        .x = of_x[index(device)].data(),
                                        .targets = of_targets.data(),
                                        .first = device * own};
                };
                for (std::int64_t device = 0; device < devices; ++device) {
                    of_x.emplace_back(way(), columns_of(x, shape, device * own, own));
                }
                for (std::int64_t device = 0; device < devices; ++device) {
                    expect_ok(class_parts(
                        real(), loss_of(device), parts.data() + device * n * 4, nullptr));
                }
                expect_ok(cross_entropy_of_parts(
                    {n, devices, parts.data(), of_targets.data(), sums.data()},
                    {totals.data(), totals.data() + 1, scratch.data()},
                    nullptr));
                Numbers all = sums.elements();
                for (std::int64_t device = 0; device < devices; ++device) {
                    expect_ok(cross_entropy_backward(
                        real(),
                        loss_of(device),
                        sums.data(),
                        0,
                        {.scale = factor.data(), .dx = of_x[index(device)].data()},
                        nullptr));
                    all = joined({all, of_x[index(device)].numbers()});
                }
                found_sum = totals.elements()[0];
                found_right = totals.elements()[1];
                return all;
            });
            EXPECT_NEAR(found_sum, expected.loss, 1e-5 * 64 * static_cast<double>(n));
            EXPECT_EQ(found_right, expected.right);
            EXPECT_TRUE(close({found.begin(), found.begin() + n}, expected.log_sums, 1e-5));
            auto at = found.begin() + n;
            for (std::int64_t device = 0; device < devices; ++device, at += n * own) {
                const Numbers of_device = columns_of(expected.dx, shape, device * own, own);
                for (std::int64_t i = 0; i < n * own; ++i) {
                    EXPECT_NEAR(at[i], of_device[index(i)], scale * way().bound());
                }
            }
        }
    }
}

/// What a forward leaves, and then the gradient; either by one kernel or by two.
struct Left {
    Numbers log_sums, dx;
    std::vector<double> row_sums, totals;

    bool operator==(const Left&) const = default;
};

// The gradient that the forward writes in the place of the logits has the bits of the backward, and
// so have the loss and the number of right rows. Rows of 57000 and 115000 numbers do not fit into
// shared memory in fp32 and in bf16.
TEST_P(CudaCrossEntropy, HasTheSameBitsWithItsGradientInOnePass) {
    std::vector<Shape> all(row_shapes().begin(), row_shapes().end());
    all.insert(all.end(), {{3, 2051}, {2, 57'003}, {1, 115'001}});
    for (const Shape& shape : all) {
        SCOPED_TRACE(shape.text());
        const auto [n, width] = shape;
        Numbers x = random(shape.size(), 1);
        std::for_each(x.begin(), x.end(), [](float& value) { value = 8 * value; });
        x = rounded(real(), x);
        std::vector<std::int32_t> targets = random_ids(n, width, 2);
        targets.back() = n > 1 ? -1 : targets.back();
        for (const float smoothing : {0.0F, 0.25F}) {
            const auto left = [&](bool in_one_pass) {
                Left found;
                static_cast<void>(run([&] {
                    const Operand of_x(way(), x);
                    const DeviceArray<std::int32_t> of_targets(targets);
                    const DeviceArray<float> sums(index(n));
                    const DeviceArray<double> scratch(index(loss_scratch(n)));
                    const DeviceArray<double> totals(2);
                    const DeviceArray<float> factor(std::vector<float>{scale});
                    const CrossEntropy loss{n, width, of_x.data(), of_targets.data()};
                    const LossSums to{totals.data(), totals.data() + 1, scratch.data()};
                    const LossGradient gradient{.scale = factor.data(), .dx = of_x.data()};
                    find(in_one_pass, loss, smoothing, sums.data(), to, gradient);
                    found = {.log_sums = sums.elements(),
                             .dx = of_x.numbers(),
                             .row_sums = scratch.elements(),
                             .totals = totals.elements()};
                    return joined({found.log_sums, found.dx});
                }));
                return found;
            };
            EXPECT_TRUE(left(true) == left(false)) << "smoothing " << smoothing;
        }
    }
}

/// The rows of x with `padding` columns of `number` behind them.
Numbers padded(const Shape& shape, const Numbers& x, std::int64_t padding, float number) {
    Numbers all;
    for (std::int64_t row = 0; row < shape.rows; ++row) {
        const auto begin = x.begin() + row * shape.width;
        all.insert(all.end(), begin, begin + shape.width);
        all.insert(all.end(), index(padding), number);
    }
    return all;
}

// What padding holds is in no maximum, sum, mean or comparison, and its gradient is 0: in one pass
// and in two, in the place of the logits and beside them, aligned or not, in short rows, in long
// ones and in such as do not fit into shared memory.
TEST_P(CudaCrossEntropy, SeesNothingOfTheColumnsBehindTheClasses) {
    struct Case {
        Shape shape;
        std::int64_t padding;
    };
    for (const auto& [shape, padding] : {Case{{37, 65}, 7},
                                         Case{{5, 11}, 5},
                                         Case{{3, 257}, 1},
                                         Case{{4, 2049}, 63},
                                         Case{{2, 57'003}, 5}}) {
        SCOPED_TRACE(shape.text());
        const auto [n, width] = shape;
        Numbers x = random(shape.size(), 1);
        std::for_each(x.begin(), x.end(), [](float& value) { value = 8 * value - 100; });
        x = rounded(real(), x);
        std::vector<std::int32_t> targets = random_ids(n, width, 2);
        targets.front() =
            static_cast<std::int32_t>(std::max_element(x.begin(), x.begin() + width) - x.begin());
        targets.back() = -1;
        for (const float smoothing : {0.0F, 0.25F}) {
            const Expected expected = on_cpu(shape, x, targets, smoothing);
            enum class How { OnePass, InPlace, Beside };
            const auto left = [&](How how, float number) {
                Left found;
                static_cast<void>(run([&] {
                    const Operand of_x(way(), padded(shape, x, padding, number));
                    const Operand of_dx(way(), n * (width + padding));
                    const Operand& to_dx = how == How::Beside ? of_dx : of_x;
                    const DeviceArray<std::int32_t> of_targets(targets);
                    const DeviceArray<float> sums(index(n));
                    const DeviceArray<double> scratch(index(loss_scratch(n)));
                    const DeviceArray<double> totals(2);
                    const DeviceArray<float> factor(std::vector<float>{scale});
                    const CrossEntropy loss{n, width, of_x.data(), of_targets.data(), padding};
                    const LossSums to{totals.data(), totals.data() + 1, scratch.data()};
                    const LossGradient gradient{.scale = factor.data(), .dx = to_dx.data()};
                    find(how == How::OnePass, loss, smoothing, sums.data(), to, gradient);
                    found = {.log_sums = sums.elements(),
                             .dx = to_dx.numbers(),
                             .row_sums = scratch.elements(),
                             .totals = totals.elements()};
                    return joined({found.log_sums, found.dx});
                }));
                return found;
            };
            const Left found = left(How::OnePass, std::numeric_limits<float>::quiet_NaN());
            EXPECT_TRUE(left(How::InPlace, std::numeric_limits<float>::infinity()) == found);
            EXPECT_TRUE(left(How::Beside, 0) == found);
            EXPECT_NEAR(found.totals[0], expected.loss, 1e-5 * 64 * static_cast<double>(n));
            EXPECT_EQ(found.totals[1], expected.right);
            EXPECT_GE(found.totals[1], 1);
            for (std::int64_t row = 0; row + 1 < n; ++row) {
                EXPECT_NEAR(found.log_sums[index(row)],
                            expected.log_sums[index(row)],
                            1e-5 * std::fabs(expected.log_sums[index(row)]));
            }
            EXPECT_TRUE(close(found.dx, padded(shape, expected.dx, padding, 0), way().bound()));
            for (std::int64_t row = 0; row < n; ++row) {
                const auto begin = found.dx.begin() + row * (width + padding) + width;
                EXPECT_TRUE(std::all_of(begin, begin + padding, [](float dx) { return dx == 0; }));
            }
        }
    }
}

// Rows without a target add nothing to the loss, are never right, and have no gradient, whatever
// their numbers are.
TEST_P(CudaCrossEntropy, LeavesOutRowsWithoutATarget) {
    for (const std::int64_t width : {5L, 3000L}) {
        constexpr std::int64_t n = 6;
        Numbers x = random(n * width, 1);
        std::fill_n(x.begin() + width, width, std::numeric_limits<float>::max());
        std::fill_n(x.begin() + 4 * width, width, std::numeric_limits<float>::quiet_NaN());
        x = rounded(real(), x);
        std::vector<std::int32_t> targets = random_ids(n, width, 2);
        targets[1] = -1;
        targets[4] = -1;
        const Expected expected = on_cpu({n, width}, x, targets, 0.1);
        double found_sum = 0;
        double found_right = 0;
        const Numbers found = run([&] {
            const Operand of_x(way(), x);
            const Operand of_dx(way(), n * width);
            const DeviceArray<std::int32_t> of_targets(targets);
            const DeviceArray<float> sums(n);
            const DeviceArray<double> scratch(index(loss_scratch(n)));
            const DeviceArray<double> totals(2);
            const DeviceArray<float> factor(std::vector<float>{scale});
            const CrossEntropy loss{n, width, of_x.data(), of_targets.data()};
            expect_ok(cross_entropy_forward(real(),
                                            loss,
                                            0.1F,
                                            sums.data(),
                                            {totals.data(), totals.data() + 1, scratch.data()},
                                            nullptr));
            expect_ok(cross_entropy_backward(
                real(), loss, sums.data(), 0.1F, {factor.data(), of_dx.data()}, nullptr));
            found_sum = totals.elements()[0];
            found_right = totals.elements()[1];
            return of_dx.numbers();
        });
        EXPECT_NEAR(found_sum, expected.loss, 1e-5 * 64 * n);
        EXPECT_EQ(found_right, expected.right);
        EXPECT_TRUE(close(found, expected.dx, way().bound()));
        const std::vector<Numbers> rows = split(found, {width, width, width, width, width, width});
        EXPECT_EQ(rows[1], Numbers(index(width)));
        EXPECT_EQ(rows[4], Numbers(index(width)));
    }
}

// The first of equal largest numbers is the class, as in argmax; a long row is shared by a
// block, whose threads see different parts of it.
TEST_P(CudaCrossEntropy, CountsTheRowsWhoseFirstLargestNumberIsTheTargets) {
    for (const std::int64_t width : {5L, 3000L}) {
        constexpr std::int64_t n = 4;
        Numbers x(index(n * width), 1.0F);
        const auto largest = [&](std::int64_t row, std::int64_t column) {
            x[index(row * width + column)] = 2;
        };
        largest(0, 3);
        largest(1, 1);
        largest(1, width - 1);
        largest(2, 1);
        largest(2, width - 1);
        const std::vector<std::int32_t> targets{3, 1, static_cast<std::int32_t>(width - 1), 1};
        const Operand of_x(way(), x);
        const DeviceArray<std::int32_t> of_targets(targets);
        const DeviceArray<float> log_sums(index(n));
        const DeviceArray<double> scratch(index(loss_scratch(n)));
        const DeviceArray<double> right(1);
        const CrossEntropy loss{n, width, of_x.data(), of_targets.data()};
        expect_ok(cross_entropy_forward(
            real(), loss, 0, log_sums.data(), {nullptr, right.data(), scratch.data()}, nullptr));
        EXPECT_EQ(right.elements()[0], 2) << width;
        EXPECT_EQ(scratch.elements(n, n), (std::vector<double>{1, 1, 0, 0}));
        EXPECT_EQ(on_cpu({n, width}, x, targets, 0).right, 2);
    }
}

TEST_P(CudaCrossEntropy, OfYesAndNoAndItsGradient) {
    for (const std::int64_t n : {1L, 37L, 1025L, 5000L}) {
        SCOPED_TRACE(n);
        Numbers x = random(n, 3);
        std::for_each(x.begin(), x.end(), [](float& value) { value *= 20; });
        x.front() = 0;
        x.back() = n > 1 ? -3000.0F : 0.0F;
        x = rounded(real(), x);
        const std::vector<std::int32_t> targets = random_ids(n, 2, 4);
        double loss = 0;
        double right = 0;
        Numbers dx(index(n));
        cpu().binary_cross_entropy_forward(
            view(std::as_const(x), n, 1), view(targets), {.loss = &loss, .right = &right});
        cpu().binary_cross_entropy_backward(
            view(std::as_const(x), n, 1), view(targets), scale, view(dx, n, 1));
        double found_loss = 0;
        double found_right = 0;
        const Numbers found = run([&] {
            const Operand of_x(way(), x);
            const DeviceArray<std::int32_t> of_targets(targets);
            const DeviceArray<double> scratch(index(loss_scratch(n)));
            const DeviceArray<double> totals(2);
            expect_ok(
                binary_cross_entropy_forward(real(),
                                             n,
                                             of_x.data(),
                                             of_targets.data(),
                                             {totals.data(), totals.data() + 1, scratch.data()},
                                             nullptr));
            expect_ok(binary_cross_entropy_backward(
                real(), n, of_x.data(), of_targets.data(), scale, of_x.data(), nullptr));
            found_loss = totals.elements()[0];
            found_right = totals.elements()[1];
            return of_x.numbers();
        });
        EXPECT_NEAR(found_loss, loss, 1e-6 * loss);
        EXPECT_EQ(found_right, right);
        EXPECT_TRUE(close(found, dx, way().bound()));
    }
}

// A vocabulary of odd size whose logits lie far apart, one of them at minus infinity, and high or
// low.
TEST_P(CudaCrossEntropy, OfLogitsWhoseExponentialsAreNoNumbers) {
    for (const float level : {3072.0F, 0.0F, -3072.0F}) {
        SCOPED_TRACE(level);
        constexpr float nowhere = -std::numeric_limits<float>::infinity();
        Numbers x = {-90, -900, 0, -16, nowhere, -200, -80, -3000, -70};
        std::for_each(x.begin(), x.end(), [=](float& value) { value += level; });
        const Operand of_x(way(), rounded(real(), x));
        const DeviceArray<std::int32_t> targets(std::vector<std::int32_t>{3});
        const DeviceArray<float> log_sums(1);
        const DeviceArray<double> scratch(index(loss_scratch(1)));
        const DeviceArray<double> sum(1);
        const CrossEntropy loss{1, 9, of_x.data(), targets.data()};
        expect_ok(cross_entropy_forward(
            real(), loss, 0, log_sums.data(), {sum.data(), nullptr, scratch.data()}, nullptr));
        EXPECT_NEAR(sum.elements()[0], std::log1p(std::exp(-16.0)) + 16, 1e-6);
    }
}

TEST(CudaCrossEntropyOfNothing, IsZero) {
    const DeviceArray<double> sum(1);
    EXPECT_EQ(cross_entropy_forward(Real::F32, {0, 5}, 0, nullptr, {.loss = sum.data()}, nullptr),
              cudaSuccess);
    EXPECT_EQ(sum.elements()[0], 0);
    EXPECT_EQ(cross_entropy_backward(Real::F32, {0, 5}, nullptr, 0, {}, nullptr), cudaSuccess);
    EXPECT_EQ(cross_entropy_with_gradient(
                  Real::F32, {0, 5}, 0, nullptr, {.loss = sum.data()}, {}, nullptr),
              cudaSuccess);
    EXPECT_EQ(sum.elements()[0], 0);
    EXPECT_EQ(binary_cross_entropy_forward(
                  Real::F32, 0, nullptr, nullptr, {.right = sum.data()}, nullptr),
              cudaSuccess);
    EXPECT_EQ(sum.elements()[0], 0);
    EXPECT_EQ(binary_cross_entropy_backward(Real::F32, 0, nullptr, nullptr, 1, nullptr, nullptr),
              cudaSuccess);
}

}  // namespace cross_entropy_test
}  // namespace pipetwin::cuda
