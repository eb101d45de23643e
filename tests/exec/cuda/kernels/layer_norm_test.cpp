// SPDX-License-Identifier: Apache-2.0
#include <limits>
#include <utility>

#include "tests/exec/cuda/kernels/kernel_test.h"

namespace pipetwin::cuda {
namespace layer_norm_test {

using namespace test;  // NOLINT(google-build-using-namespace): the tests' own words

class CudaLayerNorm : public KernelTest {};
INSTANTIATE_TEST_SUITE_P(Ways, CudaLayerNorm, every_way(), ::testing::PrintToStringParamName());

struct LayerNormCase {
    Numbers x, gain, bias, dy, skip;
    Numbers y, statistics, dx, dx_without_skip, dgain, dbias;
};

/// With the CPU's results; gradients of weights begin as dgain, dbias = bias, gain.
LayerNormCase layer_norm_case(Real real, Shape shape) {
    const auto [n, width] = shape;
    LayerNormCase c;
    c.x = rounded(real, random_numbers(shape.size(), 1));
    c.gain = rounded(real, random_numbers(width, 2));
    c.bias = rounded(real, random_numbers(width, 3));
    c.dy = rounded(real, random_numbers(shape.size(), 4));
    c.skip = rounded(real, random_numbers(shape.size(), 5));
    c.y = c.dx = c.dx_without_skip = c.x;
    c.statistics = Numbers(index(2 * n));
    c.dgain = c.bias;
    c.dbias = c.gain;
    const exec::ConstView x = view(std::as_const(c.x), n, width);
    const exec::ConstView gain = view(std::as_const(c.gain), 1, width);
    const exec::ConstView dy = view(std::as_const(c.dy), n, width);
    const exec::View statistics = view(c.statistics, n, 2);
    cpu().row_norm_forward({}, x, gain, view(c.bias, 1, width), view(c.y, n, width), statistics);
    cpu().row_norm_backward_input(
        {}, x, gain, statistics, dy, view(c.skip, n, width), view(c.dx, n, width));
    cpu().row_norm_backward_input(
        {}, x, gain, statistics, dy, {}, view(c.dx_without_skip, n, width));
    cpu().row_norm_backward_weight(
        {}, x, statistics, dy, view(c.dgain, 1, width), view(c.dbias, 1, width));
    return c;
}

TEST_P(CudaLayerNorm, Forward) {
    for (const Shape& shape : row_shapes()) {
        SCOPED_TRACE(shape.text());
        const LayerNormCase c = layer_norm_case(real(), shape);
        const Numbers found = run([&] {
            const Operand x(way(), c.x);
            const Operand gain(way(), c.gain);
            const Operand bias(way(), c.bias);
            const Operand y(way(), shape.size());
            const DeviceArray<float> statistics(c.statistics.size());
            const RowNorm norm{shape.rows, shape.width, x.data(), gain.data()};
            expect_ok(
                row_norm_forward(real(), norm, bias.data(), y.data(), statistics.data(), nullptr));
            return joined({y.numbers(), statistics.elements()});
        });
        const std::vector<Numbers> parts = split(found, {shape.size(), 2 * shape.rows});
        EXPECT_TRUE(close(parts[0], c.y, way().bound()));
        EXPECT_TRUE(close(parts[1], c.statistics, 1e-5));
    }
}

TEST_P(CudaLayerNorm, BackwardOfTheInput) {
    for (const Shape& shape : row_shapes()) {
        SCOPED_TRACE(shape.text());
        const LayerNormCase c = layer_norm_case(real(), shape);
        const auto backward = [&](bool with_skip, bool in_place) {
            return run([&, with_skip, in_place] {
                const Operand x(way(), c.x);
                const Operand gain(way(), c.gain);
                const Operand dy(way(), c.dy);
                const Operand skip(way(), c.skip);
                const Operand dx(way(), shape.size());
                const DeviceArray<float> statistics(c.statistics);
                const RowNorm norm{shape.rows, shape.width, x.data(), gain.data()};
                expect_ok(row_norm_backward_input(real(),
                                                  norm,
                                                  statistics.data(),
                                                  dy.data(),
                                                  with_skip ? skip.data() : nullptr,
                                                  in_place ? x.data() : dx.data(),
                                                  nullptr));
                return in_place ? x.numbers() : dx.numbers();
            });
        };
        // Of one number the gradient is 0, and what is found is rounding error.
        if (shape.width > 1) {
            EXPECT_TRUE(close(backward(false, false), c.dx_without_skip, way().bound()));
        }
        EXPECT_TRUE(close(backward(true, false), c.dx, way().bound()));
        EXPECT_TRUE(close(backward(true, true), c.dx, way().bound()));
    }
}

TEST_P(CudaLayerNorm, BackwardOfTheWeights) {
    for (const Shape& shape : sum_shapes()) {
        SCOPED_TRACE(shape.text());
        const LayerNormCase c = layer_norm_case(real(), shape);
        const Numbers found = run([&] {
            const Operand x(way(), c.x);
            const Operand dy(way(), c.dy);
            const DeviceArray<float> statistics(c.statistics);
            const DeviceArray<float> dgain(c.bias);
            const DeviceArray<float> dbias(c.gain);
            const DeviceArray<float> scratch(
                index(2 * column_sums_scratch(shape.rows, shape.width)));
            const RowNorm norm{shape.rows, shape.width, x.data(), nullptr};
            expect_ok(row_norm_backward_weight(real(),
                                               norm,
                                               statistics.data(),
                                               dy.data(),
                                               {dgain.data(), dbias.data()},
                                               scratch.data(),
                                               nullptr));
            return joined({dgain.elements(), dbias.elements()});
        });
        const std::vector<Numbers> parts = split(found, {shape.width, shape.width});
        EXPECT_TRUE(close(parts[0], c.dgain, 1e-5));
        EXPECT_TRUE(close(parts[1], c.dbias, 1e-5));
    }
}

/// Rows that a warp or a block has in registers, in part or to the end, and such as neither has;
/// slices of rows, full and not.
const std::vector<Shape>& backward_shapes() {
    static const std::vector<Shape> shapes = {{1, 1},
                                              {33, 7},
                                              {37, 24},
                                              {9, 768},
                                              {18, 776},
                                              {3, 1024},
                                              {3, 1032},
                                              {3, 4096},
                                              {2, 8192},
                                              {2, 8200}};
    return shapes;
}

/// Where a backward writes dx.
enum class Place { Own, OfX, OfDy, OfSkip };

TEST_P(CudaLayerNorm, BackwardOfBothInOnePass) {
    for (const Shape& shape : backward_shapes()) {
        SCOPED_TRACE(shape.text());
        const LayerNormCase c = layer_norm_case(real(), shape);
        const auto backward = [&](bool with_skip, Place place) {
            return run([&, with_skip, place] {
                const Operand x(way(), c.x);
                const Operand gain(way(), c.gain);
                const Operand dy(way(), c.dy);
                const Operand skip(way(), c.skip);
                const Operand own(way(), shape.size());
                const Operand& dx = place == Place::Own    ? own
                                    : place == Place::OfX  ? x
                                    : place == Place::OfDy ? dy
                                                           : skip;
                const DeviceArray<float> statistics(c.statistics);
                const DeviceArray<float> dgain(c.bias);
                const DeviceArray<float> dbias(c.gain);
                const DeviceArray<float> scratch(
                    index(norm_backward_scratch(shape.rows, shape.width, 2)));
                const RowNorm norm{shape.rows, shape.width, x.data(), gain.data()};
                expect_ok(row_norm_backward(real(),
                                            norm,
                                            statistics.data(),
                                            dy.data(),
                                            with_skip ? skip.data() : nullptr,
                                            dx.data(),
                                            {dgain.data(), dbias.data()},
                                            scratch.data(),
                                            nullptr));
                return joined({dgain.elements(), dbias.elements(), dx.numbers()});
            });
        };
        const Numbers found = backward(true, Place::OfX);
        const std::vector<Numbers> parts = split(found, {shape.width, shape.width, shape.size()});
        EXPECT_TRUE(close(parts[0], c.dgain, 1e-5));
        EXPECT_TRUE(close(parts[1], c.dbias, 1e-5));
        EXPECT_TRUE(close(parts[2], c.dx, way().bound()));
        if (shape.size() > 4000) {
            continue;
        }
        for (const Place place : {Place::Own, Place::OfDy, Place::OfSkip}) {
            EXPECT_EQ(backward(true, place), found);
        }
        if (shape.width > 1) {
            const Numbers without = backward(false, Place::Own);
            EXPECT_TRUE(close(split(without, {2 * shape.width, shape.size()})[1],
                              c.dx_without_skip,
                              way().bound()));
        }
    }
}

// 4100 rows are 256 slices of 17 rows, of which the last ones are empty.
TEST_P(CudaLayerNorm, BackwardOfMoreRowsThanSlicesDivide) {
    const Shape shape{4100, 8};
    const LayerNormCase c = layer_norm_case(real(), shape);
    const Operand x(way(), c.x);
    const Operand gain(way(), c.gain);
    const Operand dy(way(), c.dy);
    const Operand skip(way(), c.skip);
    const DeviceArray<float> statistics(c.statistics);
    // The first micro-batch of a step writes the gradients, whatever was there.
    const auto sums_on = [&](float before, std::int64_t adds) {
        const Operand dx(way(), shape.size());
        const DeviceArray<float> of_gain(Numbers(index(shape.width), before));
        const DeviceArray<float> of_bias(Numbers(index(shape.width), before));
        const DeviceArray<float> slices(index(norm_backward_scratch(shape.rows, shape.width, 2)));
        expect_ok(row_norm_backward(real(),
                                    {shape.rows, shape.width, x.data(), gain.data()},
                                    statistics.data(),
                                    dy.data(),
                                    nullptr,
                                    dx.data(),
                                    {of_gain.data(), of_bias.data(), adds},
                                    slices.data(),
                                    nullptr));
        return joined({of_gain.elements(), of_bias.elements()});
    };
    EXPECT_EQ(sums_on(std::numeric_limits<float>::quiet_NaN(), 0), sums_on(0, 1));
    const DeviceArray<float> dgain(c.bias);
    const DeviceArray<float> dbias(c.gain);
    const DeviceArray<float> scratch(index(norm_backward_scratch(shape.rows, shape.width, 2)));
    expect_ok(row_norm_backward(real(),
                                {shape.rows, shape.width, x.data(), gain.data()},
                                statistics.data(),
                                dy.data(),
                                skip.data(),
                                x.data(),
                                {dgain.data(), dbias.data()},
                                scratch.data(),
                                nullptr));
    EXPECT_TRUE(close(dgain.elements(), c.dgain, 1e-5));
    EXPECT_TRUE(close(dbias.elements(), c.dbias, 1e-5));
    EXPECT_TRUE(close(x.numbers(), c.dx, way().bound()));
}

class CudaRmsNorm : public KernelTest {};
INSTANTIATE_TEST_SUITE_P(Ways, CudaRmsNorm, every_way(), ::testing::PrintToStringParamName());

constexpr exec::RowNormRule rms_rule{.centred = false, .epsilon = 1e-3};  // not a layer norm's

RowNorm rms_norm(Shape shape, const void* x, const void* gain) {
    return {.rows = shape.rows,
            .width = shape.width,
            .x = x,
            .gain = gain,
            .centred = 0,
            .epsilon = rms_rule.epsilon};
}

struct RmsNormCase {
    Numbers x, gain, dy, skip, before;
    Numbers y, roots, dx, dx_without_skip, dgain;
};

/// With the CPU's results; the gradient of the gain begins as `before`.
RmsNormCase rms_norm_case(Real real, Shape shape) {
    const auto [n, width] = shape;
    RmsNormCase c;
    c.x = rounded(real, random_numbers(shape.size(), 1));
    c.gain = rounded(real, random_numbers(width, 2));
    c.dy = rounded(real, random_numbers(shape.size(), 3));
    c.skip = rounded(real, random_numbers(shape.size(), 4));
    c.dgain = c.before = random_numbers(width, 5);
    c.y = c.dx = c.dx_without_skip = c.x;
    c.roots = Numbers(index(n));
    const exec::ConstView x = view(std::as_const(c.x), n, width);
    const exec::ConstView gain = view(std::as_const(c.gain), 1, width);
    const exec::ConstView dy = view(std::as_const(c.dy), n, width);
    const exec::View roots = view(c.roots, n, 1);
    cpu().row_norm_forward(rms_rule, x, gain, {}, view(c.y, n, width), roots);
    cpu().row_norm_backward_input(
        rms_rule, x, gain, roots, dy, view(c.skip, n, width), view(c.dx, n, width));
    cpu().row_norm_backward_input(
        rms_rule, x, gain, roots, dy, {}, view(c.dx_without_skip, n, width));
    cpu().row_norm_backward_weight(rms_rule, x, roots, dy, view(c.dgain, 1, width), {});
    return c;
}

TEST_P(CudaRmsNorm, Forward) {
    for (const Shape& shape : row_shapes()) {
        SCOPED_TRACE(shape.text());
        const RmsNormCase c = rms_norm_case(real(), shape);
        const Numbers found = run([&] {
            const Operand x(way(), c.x);
            const Operand gain(way(), c.gain);
            const Operand y(way(), shape.size());
            const DeviceArray<float> roots(c.roots.size());
            const RowNorm norm = rms_norm(shape, x.data(), gain.data());
            expect_ok(row_norm_forward(real(), norm, nullptr, y.data(), roots.data(), nullptr));
            return joined({y.numbers(), roots.elements()});
        });
        const std::vector<Numbers> parts = split(found, {shape.size(), shape.rows});
        EXPECT_TRUE(close(parts[0], c.y, way().bound()));
        EXPECT_TRUE(close(parts[1], c.roots, 1e-5));
    }
}

TEST_P(CudaRmsNorm, BackwardOfTheInput) {
    for (const Shape& shape : row_shapes()) {
        SCOPED_TRACE(shape.text());
        const RmsNormCase c = rms_norm_case(real(), shape);
        const auto backward = [&](bool with_skip, bool in_place) {
            return run([&, with_skip, in_place] {
                const Operand x(way(), c.x);
                const Operand gain(way(), c.gain);
                const Operand dy(way(), c.dy);
                const Operand skip(way(), c.skip);
                const Operand dx(way(), shape.size());
                const DeviceArray<float> roots(c.roots);
                const RowNorm norm = rms_norm(shape, x.data(), gain.data());
                expect_ok(row_norm_backward_input(real(),
                                                  norm,
                                                  roots.data(),
                                                  dy.data(),
                                                  with_skip ? skip.data() : nullptr,
                                                  in_place ? x.data() : dx.data(),
                                                  nullptr));
                return in_place ? x.numbers() : dx.numbers();
            });
        };
        // A row of one number has z of nearly 1 or -1, whatever x is: dx is rounding error alone.
        if (shape.width > 1) {
            EXPECT_TRUE(close(backward(false, false), c.dx_without_skip, way().bound()));
        }
        EXPECT_TRUE(close(backward(true, false), c.dx, way().bound()));
        EXPECT_TRUE(close(backward(true, true), c.dx, way().bound()));
    }
}

TEST_P(CudaRmsNorm, BackwardOfTheGain) {
    for (const Shape& shape : sum_shapes()) {
        SCOPED_TRACE(shape.text());
        const RmsNormCase c = rms_norm_case(real(), shape);
        const Numbers found = run([&] {
            const Operand x(way(), c.x);
            const Operand dy(way(), c.dy);
            const DeviceArray<float> roots(c.roots);
            const DeviceArray<float> dgain(c.before);
            const DeviceArray<float> scratch(index(column_sums_scratch(shape.rows, shape.width)));
            const RowNorm norm = rms_norm(shape, x.data(), nullptr);
            expect_ok(row_norm_backward_weight(
                real(), norm, roots.data(), dy.data(), {dgain.data()}, scratch.data(), nullptr));
            return dgain.elements();
        });
        EXPECT_TRUE(close(found, c.dgain, 1e-5));
    }
}

TEST_P(CudaRmsNorm, BackwardOfBothInOnePass) {
    for (const Shape& shape : backward_shapes()) {
        SCOPED_TRACE(shape.text());
        const RmsNormCase c = rms_norm_case(real(), shape);
        for (const bool with_skip : {true, false}) {
            const Numbers found = run([&] {
                const Operand x(way(), c.x);
                const Operand gain(way(), c.gain);
                const Operand dy(way(), c.dy);
                const Operand skip(way(), c.skip);
                const DeviceArray<float> roots(c.roots);
                const DeviceArray<float> dgain(c.before);
                const DeviceArray<float> scratch(
                    index(norm_backward_scratch(shape.rows, shape.width, 1)));
                const RowNorm norm = rms_norm(shape, x.data(), gain.data());
                expect_ok(row_norm_backward(real(),
                                            norm,
                                            roots.data(),
                                            dy.data(),
                                            with_skip ? skip.data() : nullptr,
                                            x.data(),
                                            {dgain.data()},
                                            scratch.data(),
                                            nullptr));
                return joined({dgain.elements(), x.numbers()});
            });
            const std::vector<Numbers> parts = split(found, {shape.width, shape.size()});
            EXPECT_TRUE(close(parts[0], c.dgain, 1e-5));
            if (with_skip || shape.width > 1) {
                EXPECT_TRUE(close(parts[1], with_skip ? c.dx : c.dx_without_skip, way().bound()));
            }
        }
    }
}

// The first micro-batch of a step writes the gradients, whatever was there.
TEST_P(CudaRmsNorm, GradientsOfWeightsThatAreWrittenAreThoseThatAreAddedToZero) {
    for (const Shape& shape : sum_shapes()) {
        SCOPED_TRACE(shape.text());
        const Numbers x = random(shape.size(), 1);
        const Numbers dy = random(shape.size(), 2);
        const Numbers statistics = random_numbers(2 * shape.rows, 3);
        const auto sums_on = [&](float before, std::int64_t adds) {
            return run([&] {
                const Operand of_x(way(), x);
                const Operand of_dy(way(), dy);
                const DeviceArray<float> of_rows(statistics);
                const DeviceArray<float> dgain(Numbers(index(shape.width), before));
                const DeviceArray<float> dbias(Numbers(index(shape.width), before));
                const DeviceArray<float> of_rms(Numbers(index(shape.width), before));
                const DeviceArray<float> scratch(
                    index(2 * column_sums_scratch(shape.rows, shape.width)));
                expect_ok(row_norm_backward_weight(
                    real(),
                    {shape.rows, shape.width, of_x.data(), nullptr},
                    of_rows.data(),
                    of_dy.data(),
                    {.first = dgain.data(), .second = dbias.data(), .adds = adds},
                    scratch.data(),
                    nullptr));
                expect_ok(row_norm_backward_weight(real(),
                                                   rms_norm(shape, of_x.data(), nullptr),
                                                   of_rows.data(),
                                                   of_dy.data(),
                                                   {.first = of_rms.data(), .adds = adds},
                                                   scratch.data(),
                                                   nullptr));
                return joined({dgain.elements(), dbias.elements(), of_rms.elements()});
            });
        };
        EXPECT_EQ(sums_on(std::numeric_limits<float>::quiet_NaN(), 0), sums_on(0, 1));
    }
}

TEST(CudaRmsNormOfNothing, DoesNothing) {
    const RowNorm nothing = rms_norm({0, 5}, nullptr, nullptr);
    EXPECT_EQ(norm_backward_scratch(0, 5, 1), 0);
    EXPECT_EQ(row_norm_backward(
                  Real::F32, nothing, nullptr, nullptr, nullptr, nullptr, {}, nullptr, nullptr),
              cudaSuccess);
    EXPECT_EQ(row_norm_forward(Real::F32, nothing, nullptr, nullptr, nullptr, nullptr),
              cudaSuccess);
    EXPECT_EQ(
        row_norm_backward_input(Real::F32, nothing, nullptr, nullptr, nullptr, nullptr, nullptr),
        cudaSuccess);
    EXPECT_EQ(row_norm_backward_weight(Real::F32, nothing, nullptr, nullptr, {}, nullptr, nullptr),
              cudaSuccess);
}

TEST(CudaLayerNormOfNothing, DoesNothing) {
    EXPECT_EQ(row_norm_forward(Real::F32, {0, 5}, nullptr, nullptr, nullptr, nullptr), cudaSuccess);
    EXPECT_EQ(
        row_norm_backward_input(Real::F32, {0, 5}, nullptr, nullptr, nullptr, nullptr, nullptr),
        cudaSuccess);
    EXPECT_EQ(column_sums_scratch(0, 5), 0);
    EXPECT_EQ(norm_backward_scratch(0, 5, 2), 0);
    EXPECT_EQ(row_norm_backward(
                  Real::F32, {0, 5}, nullptr, nullptr, nullptr, nullptr, {}, nullptr, nullptr),
              cudaSuccess);
    EXPECT_EQ(row_norm_backward_weight(Real::F32, {0, 5}, nullptr, nullptr, {}, nullptr, nullptr),
              cudaSuccess);
}

}  // namespace layer_norm_test
}  // namespace pipetwin::cuda
