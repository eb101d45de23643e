// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <ostream>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "exec/base/random.h"
#include "exec/cpu/windows/convolution.h"
#include "exec/device/arena.h"
#include "exec/device/device.h"
#include "exec/device/window_kernels.h"
#include "tests/exec/cpu/windows/naive_windows.h"
#include "tests/exec/layers/layer_run.h"
#include "tests/support/compare_tensors.h"
#include "tests/support/soak.h"

namespace pipetwin::exec {
namespace windows_test {

using testing::agree;
using testing::Numbers;
using testing::numbers_of;
using testing::random_numbers;

const WindowKernels& windows() {
    return cpu_kernels().windows();
}

/// A window over some images; every test below runs over all of them.
struct Case {
    std::string name;
    WindowShape shape;
    int samples = 2;
};

void PrintTo(const Case& c, std::ostream* out) {
    *out << c.name;
}

WindowShape shape(Pixels in, int channels, int outputs, Pixels kernel) {
    return {.in = in, .channels = channels, .outputs = outputs, .kernel = kernel};
}

std::vector<Case> convolutions() {
    std::vector<Case> all;
    const auto add = [&](std::string name, const WindowShape& s) {
        all.push_back({.name = std::move(name), .shape = testing::with_output(s)});
    };
    add("Pointwise", shape({5, 7}, 3, 4, {1, 1}));
    WindowShape s = shape({5, 7}, 3, 4, {1, 1});
    s.stride = {2, 2};
    add("PointwiseStride2", s);
    s.padding = {.top = -1, .left = -1, .bottom = 1, .right = 1};
    add("PointwiseStride2Moved", s);
    s = shape({5, 7}, 3, 4, {3, 3});
    s.padding = {1, 1, 1, 1};
    add("Square", s);
    s.stride = {2, 2};
    add("SquareStride2", s);
    s.stride = {1, 2};
    s.kernel = {1, 7};
    s.padding = {0, 3, 0, 3};
    add("Row", s);
    s = shape({5, 7}, 3, 6, {3, 2});
    s.dilation = {2, 3};
    s.padding = {2, 1, 1, 2};
    s.stride = {2, 1};
    s.groups = 3;
    add("DilatedInGroups", s);
    s = shape({5, 7}, 3, 3, {3, 3});
    s.padding = {2, 2, 2, 2};
    s.dilation = {2, 2};
    s.groups = 3;
    add("DepthwiseDilated", s);
    s.stride = {2, 2};
    s.dilation = {1, 1};
    add("DepthwiseStride2", s);
    s = shape({6, 7}, 96, 96, {3, 3});
    s.padding = {1, 1, 1, 1};
    s.groups = 96;
    add("DepthwiseMany", s);
    s = shape({6, 8}, 8, 12, {3, 3});
    s.groups = 4;
    s.padding = {-1, -2, -1, 1};
    add("CroppedInGroups", s);
    s = shape({29, 31}, 3, 4, {7, 7});
    s.stride = {2, 2};
    s.padding = {3, 3, 3, 3};
    add("Stem", s);
    s = shape({5, 4}, 44, 20, {3, 3});
    s.padding = {1, 1, 1, 1};
    add("MoreThanOneBlockOfDepth", s);
    s = shape({3, 3}, 2, 3, {2, 2});
    s.stride = {3, 3};
    add("StrideLargerThanTheWindow", s);
    return all;
}

std::vector<Case> random_convolutions(int count) {
    std::vector<Case> all;
    const RandomStream random = RandomStream(tests::seed()).of(33);
    std::uint64_t drawn = 0;
    const auto from = [&](int low, int high) {
        return low +
               static_cast<int>(random.below(drawn++, static_cast<std::uint64_t>(high - low + 1)));
    };
    while (static_cast<int>(all.size()) < count) {
        const int groups = from(1, 3);
        WindowShape s = shape({from(1, 9), from(1, 9)},
                              groups * from(1, 5),
                              groups * from(1, 5),
                              {from(1, 4), from(1, 4)});
        s.groups = groups;
        s.stride = {from(1, 3), from(1, 3)};
        s.dilation = {from(1, 2), from(1, 2)};
        s.padding = {from(-2, 3), from(-2, 3), from(-2, 3), from(-2, 3)};
        s = testing::with_output(s);
        const Pixels padded{s.in.height + s.padding.top + s.padding.bottom,
                            s.in.width + s.padding.left + s.padding.right};
        const bool fits = padded.height >= s.dilation.height * (s.kernel.height - 1) + 1 &&
                          padded.width >= s.dilation.width * (s.kernel.width - 1) + 1;
        if (fits) {
            all.push_back(
                {.name = fmt::format("Random{}", all.size()), .shape = s, .samples = from(1, 3)});
        }
    }
    return all;
}

/// Which code computes a convolution: that of the kernels, or our products whatever there is.
enum class Way { Chosen, Products };

/// Operands of a convolution and of its gradients, and what they must become.
class Convolution {
    Arena arena_;  // outlives the tensors

  public:
    Convolution(const Case& c, DType type) : shape_(c.shape), samples_(c.samples), type_(type) {
        x = made(shape_.in_rows(samples_), shape_.channels);
        w = made(shape_.depth(), shape_.outputs);
        b = made(1, shape_.outputs);
        dy = made(shape_.out_rows(samples_), shape_.outputs);
        skip = made(dy.rows(), dy.columns());
        skip_x = made(x.rows(), x.columns());
        y = made(dy.rows(), dy.columns());
        dx = made(x.rows(), x.columns());
        dw = arena_.allocate(exact(), w.rows(), w.columns(), MemoryKind::Gradients);
        db = arena_.allocate(exact(), 1, shape_.outputs, MemoryKind::Gradients);
        cpu_kernels().fill_zero(dw);
        cpu_kernels().fill_zero(db);
    }

    void compute(Way way, bool with_skip) {
        const ConstView to_y = with_skip ? ConstView(skip) : ConstView();
        const ConstView to_x = with_skip ? ConstView(skip_x) : ConstView();
        if (way == Way::Chosen) {
            windows().convolution_forward(shape_, x, w, b, to_y, y);
            windows().convolution_backward_input(shape_, dy, w, to_x, dx);
            windows().convolution_backward_weight(shape_, x, dy, dw, db);
        } else {
            convolve(shape_, x, w, b, to_y, y);
            convolve_backward_input(shape_, dy, w, to_x, dx);
            convolve_backward_weight(shape_, x, dy, dw);
        }
    }

    void expect_right(Way way, bool with_skip, double bound, double weight_bound) const {
        const auto sum = [](Numbers numbers, const Numbers& more, bool wanted) {
            for (std::size_t i = 0; wanted && i < numbers.size(); ++i) {
                numbers[i] += more[i];
            }
            return numbers;
        };
        const Numbers numbers_y = testing::naive_convolution(shape_, samples_, of(x), of(w), of(b));
        const Numbers numbers_x = testing::naive_convolution_input(shape_, samples_, of(dy), of(w));
        const Numbers weights = testing::naive_convolution_weight(shape_, samples_, of(x), of(dy));
        EXPECT_TRUE(agree<double>(of(y), sum(numbers_y, of(skip), with_skip), bound)) << "y";
        EXPECT_TRUE(agree<double>(of(dx), sum(numbers_x, of(skip_x), with_skip), bound)) << "dx";
        EXPECT_TRUE(agree<double>(of(dw), weights, weight_bound)) << "dw";
        if (way == Way::Chosen) {
            Numbers biases(static_cast<std::size_t>(shape_.outputs));
            const Numbers gradients = of(dy);
            for (std::size_t i = 0; i < gradients.size(); ++i) {
                biases[i % biases.size()] += gradients[i];
            }
            EXPECT_TRUE(agree<double>(of(db), biases, weight_bound)) << "db";
        }
    }

    Tensor x, w, b, dy, skip, skip_x, y, dx, dw, db;

  private:
    DType exact() const { return NumberFormat(type_).exact(); }
    Numbers of(const Tensor& tensor) const { return numbers_of(tensor); }
    Tensor made(std::int64_t rows, std::int64_t columns) {
        Tensor tensor = arena_.allocate(type_, rows, columns, MemoryKind::Stash);
        cpu_kernels().upload(random_numbers(static_cast<std::size_t>(tensor.size()), ++made_),
                             tensor);
        return tensor;
    }

    WindowShape shape_;
    int samples_;
    DType type_;
    std::uint64_t made_ = 0;
};

double bound_of(DType type) {
    switch (type) {
        case DType::F64:
            return 1e-14;
        case DType::BF16:
            return 4e-3;  // a result is rounded once, or twice where a skip is added
        default:
            return 1e-6;
    }
}

class EveryConvolution : public ::testing::TestWithParam<Case> {};
INSTANTIATE_TEST_SUITE_P(Windows,
                         EveryConvolution,
                         ::testing::ValuesIn(convolutions()),
                         [](const auto& chosen) { return chosen.param.name; });

TEST_P(EveryConvolution, ComputesWhatItsDefinitionSays) {
    for (const DType type : {DType::F64, DType::F32, DType::BF16}) {
        for (const Way way : {Way::Chosen, Way::Products}) {
            for (const bool with_skip : {false, true}) {
                Convolution convolution(GetParam(), type);
                convolution.compute(way, with_skip);
                // Gradients of weights are not rounded to bf16.
                convolution.expect_right(
                    way, with_skip, bound_of(type), type == DType::F64 ? 1e-14 : 1e-6);
            }
        }
    }
}

TEST(Convolution, ComputesWhatItsDefinitionSaysForRandomSizes) {
    for (const Case& c : random_convolutions(tests::soaked(60))) {
        SCOPED_TRACE(fmt::format("{}, seed {}", c.name, tests::seed()));
        for (const DType type : {DType::F64, DType::F32}) {
            Convolution convolution(c, type);
            convolution.compute(Way::Chosen, true);
            convolution.expect_right(Way::Chosen, true, bound_of(type), bound_of(type));
        }
    }
}

/// A part of the rows of a tensor.
ConstView rows_of(const Tensor& tensor, std::int64_t begin, std::int64_t count) {
    const auto row = static_cast<std::size_t>(tensor.columns()) * size_of(tensor.dtype());
    return {static_cast<const std::byte*>(tensor.data()) + static_cast<std::size_t>(begin) * row,
            tensor.dtype(),
            count,
            tensor.columns()};
}

TEST_P(EveryConvolution, GivesASampleAloneTheBitsThatItHasInABatch) {
    Case c = GetParam();
    c.samples = 3;
    for (const DType type : {DType::F64, DType::F32, DType::BF16}) {
        Convolution batch(c, type);
        batch.compute(Way::Chosen, true);
        Case one = c;
        one.samples = 1;
        Convolution alone(one, type);
        const std::int64_t in = c.shape.in_rows(1);
        const std::int64_t out = c.shape.out_rows(1);
        windows().convolution_forward(c.shape,
                                      rows_of(batch.x, 2 * in, in),
                                      batch.w,
                                      batch.b,
                                      rows_of(batch.skip, 2 * out, out),
                                      alone.y);
        windows().convolution_backward_input(c.shape,
                                             rows_of(batch.dy, 2 * out, out),
                                             batch.w,
                                             rows_of(batch.skip_x, 2 * in, in),
                                             alone.dx);
        EXPECT_EQ(numbers_of(alone.y), numbers_of(rows_of(batch.y, 2 * out, out)));
        EXPECT_EQ(numbers_of(alone.dx), numbers_of(rows_of(batch.dx, 2 * in, in)));
    }
}

TEST_P(EveryConvolution, AddsToWhatIsThereWhereItsSkipIsItsResult) {
    for (const DType type : {DType::F64, DType::F32}) {
        Convolution apart(GetParam(), type);
        apart.compute(Way::Chosen, true);
        Convolution same(GetParam(), type);
        cpu_kernels().upload(numbers_of(same.skip), same.y);
        cpu_kernels().upload(numbers_of(same.skip_x), same.dx);
        windows().convolution_forward(GetParam().shape, same.x, same.w, same.b, same.y, same.y);
        windows().convolution_backward_input(GetParam().shape, same.dy, same.w, same.dx, same.dx);
        EXPECT_TRUE(agree<double>(numbers_of(same.y), numbers_of(apart.y), bound_of(type)));
        EXPECT_TRUE(agree<double>(numbers_of(same.dx), numbers_of(apart.dx), bound_of(type)));
    }
}

TEST(Convolution, OfOnePixelIsALinearLayerBitForBit) {
    const Case c{.name = "Pointwise", .shape = testing::with_output(shape({5, 7}, 33, 17, {1, 1}))};
    for (const DType type : {DType::F64, DType::F32, DType::BF16}) {
        Convolution convolution(c, type);
        convolution.compute(Way::Chosen, true);
        Convolution linear(c, type);
        cpu_kernels().linear_forward(linear.x, linear.w, linear.b, linear.skip, linear.y);
        cpu_kernels().linear_backward_input(linear.dy, linear.w, linear.skip_x, linear.dx);
        cpu_kernels().linear_backward_weight(linear.x, linear.dy, linear.dw, linear.db);
        EXPECT_EQ(numbers_of(convolution.y), numbers_of(linear.y));
        EXPECT_EQ(numbers_of(convolution.dx), numbers_of(linear.dx));
        EXPECT_EQ(numbers_of(convolution.dw), numbers_of(linear.dw));
        EXPECT_EQ(numbers_of(convolution.db), numbers_of(linear.db));
    }
}

// AmoebaNet's factorized reduction: half of the outputs from every second pixel of x, half from
// those of x moved by one pixel up and left. On the numbers 0 to 15 the first convolution reads 0,
// 2, 8, 10, the second 5, 7, 13, 15.
TEST(Convolution, ReadsEverySecondPixelOfAnImageMovedByOne) {
    WindowShape s = shape({4, 4}, 1, 1, {1, 1});
    s.stride = {2, 2};
    s = testing::with_output(s);
    Arena arena;
    Tensor x = arena.allocate(DType::F64, 16, 1, MemoryKind::Stash);
    Numbers numbers;
    for (int i = 0; i < 16; ++i) {
        numbers.push_back(i);
    }
    cpu_kernels().upload(numbers, x);
    Tensor w = arena.allocate(DType::F64, 1, 1, MemoryKind::Weights);
    cpu_kernels().upload(Numbers{2}, w);
    Tensor y = arena.allocate(DType::F64, 4, 1, MemoryKind::Stash);
    windows().convolution_forward(s, x, w, {}, {}, y);
    EXPECT_EQ(numbers_of(y), (Numbers{0, 4, 16, 20}));

    s.padding = {.top = -1, .left = -1, .bottom = 1, .right = 1};
    ASSERT_EQ(testing::with_output(s).out, (Pixels{2, 2}));
    windows().convolution_forward(s, x, w, {}, {}, y);
    EXPECT_EQ(numbers_of(y), (Numbers{10, 14, 26, 30}));

    Tensor dx = arena.allocate(DType::F64, 16, 1, MemoryKind::Stash);
    windows().convolution_backward_input(s, y, w, {}, dx);
    EXPECT_EQ(numbers_of(dx), (Numbers{0, 0, 0, 0, 0, 20, 0, 28, 0, 0, 0, 0, 0, 52, 0, 60}));
    Tensor dw = arena.allocate(DType::F64, 1, 1, MemoryKind::Gradients);
    cpu_kernels().upload(Numbers{1}, dw);
    windows().convolution_backward_weight(s, x, y, dw, {});
    EXPECT_EQ(numbers_of(dw), (Numbers{1.0 + 5 * 10 + 7 * 14 + 13 * 26 + 15 * 30}));
}

std::vector<Case> pools() {
    std::vector<Case> all;
    const auto add = [&](std::string name, const WindowShape& s) {
        all.push_back({.name = std::move(name), .shape = testing::with_output(s)});
    };
    WindowShape s = shape({5, 7}, 3, 3, {3, 3});
    s.stride = {2, 2};
    s.padding = {1, 1, 1, 1};
    add("Overlapping", s);
    s.count_padding = false;
    add("OverlappingOfRealPixels", s);
    s = shape({5, 7}, 3, 3, {3, 3});
    s.padding = {1, 1, 1, 1};
    add("Stride1", s);
    s = shape({6, 8}, 83, 83, {2, 2});
    s.stride = {2, 2};
    add("Halves", s);
    s = shape({7, 5}, 64, 64, {7, 5});
    add("Global", s);
    s = shape({17, 18}, 2, 2, {16, 16});
    s.padding = {1, 0, 0, 1};
    add("MoreThan255Places", s);
    s = shape({7, 7}, 18, 18, {2, 1});
    s.stride = {3, 2};
    add("WithGaps", s);
    return all;
}

class EveryPool : public ::testing::TestWithParam<Case> {
  protected:
    Tensor made(DType type, std::int64_t rows, std::uint64_t stream) {
        Tensor tensor = arena_.allocate(type, rows, GetParam().shape.channels, MemoryKind::Stash);
        cpu_kernels().upload(random_numbers(static_cast<std::size_t>(tensor.size()), stream),
                             tensor);
        return tensor;
    }
    static Numbers sum(Numbers a, const Numbers& b) {
        std::ranges::transform(a, b, a.begin(), std::plus<>());
        return a;
    }

    Arena arena_;
    const WindowShape& shape_ = GetParam().shape;
    std::int64_t in_ = shape_.in_rows(GetParam().samples);
    std::int64_t out_ = shape_.out_rows(GetParam().samples);
};
INSTANTIATE_TEST_SUITE_P(Windows, EveryPool, ::testing::ValuesIn(pools()), [](const auto& chosen) {
    return chosen.param.name;
});

TEST_P(EveryPool, FindsTheLargestNumberOfEachWindowAndItsPlace) {
    for (const DType type : {DType::F64, DType::F32, DType::BF16}) {
        const Tensor x = made(type, in_, 1);
        const Tensor dy = made(type, out_, 2);
        const Tensor skip = made(type, out_, 3);
        const Tensor skip_x = made(type, in_, 4);
        Tensor y = made(type, out_, 5);
        Tensor dx = made(type, in_, 6);
        Tensor places =
            arena_.allocate(place_type(shape_), out_, shape_.channels, MemoryKind::Stash);
        EXPECT_EQ(places.bytes().count, y.size() * (shape_.places() > 255 ? 4 : 1));

        windows().max_pool_forward(shape_, x, {}, y, places);
        const testing::NaiveMaxima expected =
            testing::naive_max_pool(shape_, GetParam().samples, numbers_of(x));
        EXPECT_EQ(numbers_of(y), expected.values);
        EXPECT_EQ(numbers_of(places), Numbers(expected.places.begin(), expected.places.end()));
        windows().max_pool_forward(shape_, x, skip, y, places);
        EXPECT_TRUE(
            agree<double>(numbers_of(y), sum(expected.values, numbers_of(skip)), bound_of(type)));

        windows().max_pool_backward(shape_, places, dy, skip_x, dx);
        const Numbers gradient = testing::naive_max_pool_input(
            shape_, GetParam().samples, expected.places, numbers_of(dy));
        EXPECT_TRUE(
            agree<double>(numbers_of(dx), sum(gradient, numbers_of(skip_x)), bound_of(type)));
    }
}

TEST_P(EveryPool, FindsTheMeanOfEachWindow) {
    for (const DType type : {DType::F64, DType::F32, DType::BF16}) {
        const Tensor x = made(type, in_, 1);
        const Tensor dy = made(type, out_, 2);
        const Tensor skip = made(type, out_, 3);
        const Tensor skip_x = made(type, in_, 4);
        Tensor y = made(type, out_, 5);
        Tensor dx = made(type, in_, 6);
        windows().average_pool_forward(shape_, x, skip, y);
        const Numbers mean = testing::naive_average_pool(shape_, GetParam().samples, numbers_of(x));
        EXPECT_TRUE(agree<double>(numbers_of(y), sum(mean, numbers_of(skip)), bound_of(type)));
        windows().average_pool_backward(shape_, dy, {}, dx);
        const Numbers gradient =
            testing::naive_average_pool_input(shape_, GetParam().samples, numbers_of(dy));
        EXPECT_TRUE(agree<double>(numbers_of(dx), gradient, bound_of(type)));
        windows().average_pool_backward(shape_, dy, skip_x, dx);
        EXPECT_TRUE(
            agree<double>(numbers_of(dx), sum(gradient, numbers_of(skip_x)), bound_of(type)));
    }
}

/// Runs a max pool of one channel forward and, with gradients 1, 2, ..., backward.
struct SmallMaxima {
    Numbers values;
    Numbers gradient;
};

SmallMaxima small_maxima(const WindowShape& s, const Numbers& numbers) {
    Arena arena;
    const std::int64_t out = s.out_rows(1);
    Tensor x = arena.allocate(DType::F32, s.in_rows(1), 1, MemoryKind::Stash);
    cpu_kernels().upload(numbers, x);
    Tensor y = arena.allocate(DType::F32, out, 1, MemoryKind::Stash);
    Tensor places = arena.allocate(DType::U8, out, 1, MemoryKind::Stash);
    windows().max_pool_forward(s, x, {}, y, places);
    SmallMaxima found{.values = numbers_of(y), .gradient = {}};
    Numbers dy;
    for (std::int64_t i = 1; i <= out; ++i) {
        dy.push_back(static_cast<double>(i));
    }
    cpu_kernels().upload(dy, y);
    windows().max_pool_backward(s, places, y, {}, x);
    found.gradient = numbers_of(x);
    return found;
}

TEST(MaxPool, GivesTheFirstOfEqualNumbersInRowOrderTheWholeGradient) {
    WindowShape s = shape({3, 3}, 1, 1, {2, 2});
    s = testing::with_output(s);
    const SmallMaxima found = small_maxima(s, {7, 7, 7, 7, 7, 7, 7, 7, 7});
    EXPECT_EQ(found.values, (Numbers{7, 7, 7, 7}));
    EXPECT_EQ(found.gradient, (Numbers{1, 2, 0, 3, 4, 0, 0, 0, 0}));
}

TEST(MaxPool, HandsOnWhatIsNotANumberAndKnowsMinusInfinity) {
    constexpr double infinity = std::numeric_limits<double>::infinity();
    const WindowShape s = testing::with_output(shape({1, 3}, 1, 1, {1, 2}));
    const SmallMaxima found = small_maxima(s, {-infinity, -infinity, std::nan("")});
    EXPECT_EQ(found.values[0], -infinity);
    EXPECT_TRUE(std::isnan(found.values[1]));
    EXPECT_EQ(found.gradient, (Numbers{1, 0, 2}));
}

class EveryUpsampling : public ::testing::TestWithParam<UpsampleShape> {};
INSTANTIATE_TEST_SUITE_P(Windows,
                         EveryUpsampling,
                         ::testing::Values(UpsampleShape{{5, 7}, 2, false},
                                           UpsampleShape{{5, 7}, 2, true},
                                           UpsampleShape{{3, 2}, 3, false},
                                           UpsampleShape{{3, 2}, 3, true},
                                           UpsampleShape{{1, 4}, 4, true},
                                           UpsampleShape{{2, 2}, 1, true}),
                         [](const auto& chosen) {
                             return fmt::format("{}x{}{}{}",
                                                chosen.param.in.height,
                                                chosen.param.in.width,
                                                chosen.param.bilinear ? "Bilinear" : "Nearest",
                                                chosen.param.factor);
                         });

TEST_P(EveryUpsampling, ComputesWhatItsDefinitionSays) {
    constexpr int samples = 2;
    const UpsampleShape& s = GetParam();
    for (const int channels : {3, 70}) {
        for (const DType type : {DType::F64, DType::F32, DType::BF16}) {
            Arena arena;
            const auto made = [&](bool large, std::uint64_t stream) {
                const std::int64_t pixels =
                    samples * s.pixels() * (large ? s.factor * s.factor : 1);
                Tensor tensor = arena.allocate(type, pixels, channels, MemoryKind::Stash);
                cpu_kernels().upload(
                    random_numbers(static_cast<std::size_t>(tensor.size()), stream), tensor);
                return tensor;
            };
            const Tensor x = made(false, 1);
            Tensor dx = made(false, 2);
            Tensor y = made(true, 3);
            const Tensor dy = made(true, 4);
            const Tensor skip = made(true, 5);
            windows().upsample_forward(s, x, {}, y);
            const Numbers expected = testing::naive_upsample(s, samples, channels, numbers_of(x));
            EXPECT_TRUE(agree<double>(numbers_of(y), expected, bound_of(type)));
            windows().upsample_forward(s, x, skip, y);
            Numbers added = expected;
            std::ranges::transform(added, numbers_of(skip), added.begin(), std::plus<>());
            EXPECT_TRUE(agree<double>(numbers_of(y), added, bound_of(type)));
            windows().upsample_backward(s, dy, {}, dx);
            EXPECT_TRUE(
                agree<double>(numbers_of(dx),
                              testing::naive_upsample_input(s, samples, channels, numbers_of(dy)),
                              bound_of(type)));
        }
    }
}

// torch.nn.Upsample(scale_factor=2, mode="bilinear") of ((1, 2), (3, 4)), from its documentation.
TEST(Upsample, KeepsTheCentresOfPixels) {
    Arena arena;
    Tensor x = arena.allocate(DType::F64, 4, 1, MemoryKind::Stash);
    cpu_kernels().upload(Numbers{1, 2, 3, 4}, x);
    Tensor y = arena.allocate(DType::F64, 16, 1, MemoryKind::Stash);
    windows().upsample_forward({.in = {2, 2}, .factor = 2, .bilinear = true}, x, {}, y);
    EXPECT_EQ(numbers_of(y),
              (Numbers{1,
                       1.25,
                       1.75,
                       2,  //
                       1.5,
                       1.75,
                       2.25,
                       2.5,  //
                       2.5,
                       2.75,
                       3.25,
                       3.5,  //
                       3,
                       3.25,
                       3.75,
                       4}));
}

TEST(Pad, PutsZerosAroundAnImageAndCutsItsEdgesOff) {
    Arena arena;
    Tensor x = arena.allocate(DType::F32, 12, 1, MemoryKind::Stash);  // two images of 2 x 3
    cpu_kernels().upload(Numbers{1, 2, 3, 4, 5, 6, 11, 12, 13, 14, 15, 16}, x);
    Tensor y = arena.allocate(DType::F32, 16, 1, MemoryKind::Stash);
    const Margins margins{.top = 1, .left = -2, .bottom = 1, .right = 1};
    windows().pad({2, 3}, margins, x, {}, y);
    EXPECT_EQ(numbers_of(y), (Numbers{0, 0, 3, 0, 6, 0, 0, 0, 0, 0, 13, 0, 16, 0, 0, 0}));
    windows().pad({2, 3}, margins, x, y, y);
    EXPECT_EQ(numbers_of(y), (Numbers{0, 0, 6, 0, 12, 0, 0, 0, 0, 0, 26, 0, 32, 0, 0, 0}));
    // And back: what was cut off gets nothing.
    windows().pad({4, 2}, {.top = -1, .left = 2, .bottom = -1, .right = -1}, y, {}, x);
    EXPECT_EQ(numbers_of(x), (Numbers{0, 0, 6, 0, 0, 12, 0, 0, 26, 0, 0, 32}));
}

}  // namespace windows_test
}  // namespace pipetwin::exec
