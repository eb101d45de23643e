// SPDX-License-Identifier: Apache-2.0
#include "exec/device/column_kernels.h"

#include <cmath>
#include <utility>

#include "exec/cuda/columns/columns.h"
#include "exec/cuda/kernels/real_of.h"
#include "tests/exec/cuda/kernels/kernel_test.h"

namespace pipetwin::cuda {
namespace column_kernels_test {

using namespace test;  // NOLINT(google-build-using-namespace): the tests' own words

class CudaColumns : public KernelTest {};
INSTANTIATE_TEST_SUITE_P(Ways, CudaColumns, every_way(), ::testing::PrintToStringParamName());

const exec::ColumnKernels& cpu_columns() {
    return cpu().columns();
}

/// A norm over blocks of rows and groups of columns.
struct Parts {
    std::int64_t blocks;
    std::int64_t rows;
    std::int64_t columns;
    std::int64_t groups;

    std::int64_t size() const { return blocks * rows * columns; }
    NormBlocks of() const {
        return {.blocks = blocks, .rows = rows, .columns = columns, .groups = groups};
    }
    exec::NormParts on_cpu() const { return {.blocks = blocks, .groups = groups}; }
    std::string text() const {
        return std::to_string(blocks) + " x " + std::to_string(rows) + " x " +
               std::to_string(columns) + " in " + std::to_string(groups);
    }
};

/// Tiles and slices, full and not, of a batch norm, an instance norm and group norms.
std::vector<Parts> parts() {
    return {{1, 2, 3, 3},
            {1, 150, 33, 33},
            {1, 1000, 5, 5},
            {3, 35, 7, 7},
            {2, 70, 40, 4},
            {2, 9, 6, 1}};
}

/// A norm's operands, and what the CPU makes of them. dgain and dbias begin as bias and gain.
struct NormCase {
    Numbers x, gain, bias, dy, skip;
    Numbers statistics, y, dx, dgain, dbias;
    std::vector<double> moments;
};

NormCase norm_case(Real real, const Parts& p, double mean) {
    NormCase c;
    c.x = random_numbers(p.size(), 1);
    for (float& x : c.x) {
        x += static_cast<float>(mean);
    }
    c.x = rounded(real, c.x);
    c.gain = rounded(real, random_numbers(p.columns, 2));
    c.bias = rounded(real, random_numbers(p.columns, 3));
    c.dy = rounded(real, random_numbers(p.size(), 4));
    c.skip = rounded(real, random_numbers(p.size(), 5));
    c.y = c.dx = c.x;
    c.statistics = Numbers(index(2 * p.blocks * p.groups));
    c.dgain = c.bias;
    c.dbias = c.gain;
    c.moments.resize(index(2 * p.columns));
    const std::int64_t rows = p.blocks * p.rows;
    const exec::ConstView x = view(std::as_const(c.x), rows, p.columns);
    const exec::View statistics = view(c.statistics, 2 * p.blocks, p.groups);
    cpu_columns().norm_statistics(
        p.on_cpu(), 1e-5, x, statistics, {c.moments.data(), exec::DType::F64, 2, p.columns});
    cpu_columns().normalise(p.on_cpu(),
                            x,
                            statistics,
                            view(c.gain, 1, p.columns),
                            view(c.bias, 1, p.columns),
                            view(c.skip, rows, p.columns),
                            view(c.y, rows, p.columns));
    std::vector<std::byte> scratch(static_cast<std::size_t>(exec::norm_scratch_bytes(p.columns)));
    cpu_columns().normalise_backward(p.on_cpu(),
                                     {.x = x,
                                      .statistics = statistics,
                                      .gain = view(c.gain, 1, p.columns),
                                      .dy = view(c.dy, rows, p.columns),
                                      .skip = view(c.skip, rows, p.columns),
                                      .dx = view(c.dx, rows, p.columns),
                                      .dgain = view(c.dgain, 1, p.columns),
                                      .dbias = view(c.dbias, 1, p.columns)},
                                     scratch.data());
    return c;
}

TEST_P(CudaColumns, StatisticsAndNormalisedNumbers) {
    for (const Parts& p : parts()) {
        SCOPED_TRACE(p.text());
        const NormCase c = norm_case(real(), p, 0);
        const Numbers found = run([&] {
            const Operand x(way(), c.x);
            const Operand gain(way(), c.gain);
            const Operand bias(way(), c.bias);
            const Operand skip(way(), c.skip);
            const Operand y(way(), p.size());
            const DeviceArray<float> statistics(c.statistics.size());
            const DeviceArray<double> scratch(index(norm_scratch(p.of())));
            expect_ok(norm_statistics(real(),
                                      p.of(),
                                      1e-5,
                                      x.data(),
                                      statistics.data(),
                                      nullptr,
                                      scratch.data(),
                                      nullptr));
            expect_ok(normalise_columns(real(),
                                        {.blocks = p.of(),
                                         .x = x.data(),
                                         .statistics = statistics.data(),
                                         .gain = gain.data(),
                                         .bias = bias.data(),
                                         .skip = skip.data()},
                                        y.data(),
                                        nullptr));
            return joined({y.numbers(), statistics.elements()});
        });
        const std::vector<Numbers> both = split(found, {p.size(), 2 * p.blocks * p.groups});
        EXPECT_TRUE(close(both[0], c.y, way().bound()));
        EXPECT_TRUE(close(both[1], c.statistics, 1e-6));
    }
}

TEST_P(CudaColumns, GradientsOfANorm) {
    for (const Parts& p : parts()) {
        SCOPED_TRACE(p.text());
        const NormCase c = norm_case(real(), p, 0);
        for (const bool in_place : {false, true}) {
            const Numbers found = run([&] {
                const Operand x(way(), c.x);
                const Operand gain(way(), c.gain);
                const Operand dy(way(), c.dy);
                const Operand skip(way(), c.skip);
                const Operand apart(way(), p.size());
                const Operand& dx = in_place ? x : apart;
                const DeviceArray<float> statistics(c.statistics);
                const DeviceArray<float> dgain(c.bias);
                const DeviceArray<float> dbias(c.gain);
                const DeviceArray<double> scratch(index(norm_scratch(p.of())));
                expect_ok(column_norm_backward(
                    real(),
                    {.blocks = p.of(),
                     .x = x.data(),
                     .statistics = statistics.data(),
                     .gain = gain.data(),
                     .dy = dy.data(),
                     .skip = skip.data()},
                    {.dx = dx.data(), .dgain = dgain.data(), .dbias = dbias.data()},
                    scratch.data(),
                    nullptr));
                return joined({dx.numbers(), dgain.elements(), dbias.elements()});
            });
            const std::vector<Numbers> all = split(found, {p.size(), p.columns, p.columns});
            EXPECT_TRUE(close(all[0], c.dx, way().bound()));
            EXPECT_TRUE(close(all[1], c.dgain, 1e-5));
            EXPECT_TRUE(close(all[2], c.dbias, 1e-5));
        }
    }
}

/// Means of 1000 take no digit from a variance.
TEST(CudaMoments, AreExactFarFromZeroAndMoveTheRunningValues) {
    const Parts p{1, 1000, 5, 5};
    const NormCase c = norm_case(Real::F32, p, 1000);
    constexpr double before = 300;
    std::vector<double> sums(index(2 * p.columns));
    for (std::size_t j = 0; j < sums.size(); ++j) {
        sums[j] = static_cast<double>(j);
    }
    std::vector<double> expected = sums;
    cpu_columns().add_moments(
        {.rows = p.rows, .values = {c.moments.data(), exec::DType::F64, 2, p.columns}},
        300,
        {expected.data(), exec::DType::F64, 2, p.columns});
    Numbers mean{1, 2, 3, 4, 5};
    Numbers variance{5, 4, 3, 2, 1};
    std::int32_t updates = 3;

    const Way way{Real::F32, 0};
    const Operand x(way, c.x);
    const DeviceArray<double> moments(c.moments.size());
    const DeviceArray<double> on_device(sums);
    const DeviceArray<double> scratch(index(norm_scratch(p.of())));
    const DeviceArray<float> statistics(c.statistics.size());
    const DeviceArray<float> running_mean(mean);
    const DeviceArray<float> running_variance(variance);
    const DeviceArray<std::int32_t> counter(std::vector<std::int32_t>{updates});
    EXPECT_EQ(norm_statistics(Real::F32,
                              p.of(),
                              1e-5,
                              x.data(),
                              statistics.data(),
                              moments.data(),
                              scratch.data(),
                              nullptr),
              cudaSuccess);
    EXPECT_EQ(add_moments(p.columns,
                          before,
                          static_cast<double>(p.rows),
                          moments.data(),
                          on_device.data(),
                          nullptr),
              cudaSuccess);
    for (const bool cumulative : {false, true}) {
        EXPECT_EQ(move_averages({.columns = p.columns,
                                 .rows = 1300,
                                 .momentum = 0.1,
                                 .cumulative = cumulative ? 1 : 0,
                                 .mean = running_mean.data(),
                                 .variance = running_variance.data(),
                                 .updates = counter.data()},
                                on_device.data(),
                                nullptr),
                  cudaSuccess);
        cpu_columns().move_averages(
            {.momentum = 0.1, .cumulative = cumulative},
            {.rows = 1300, .values = {expected.data(), exec::DType::F64, 2, p.columns}},
            {.mean = view(mean, 1, p.columns),
             .variance = view(variance, 1, p.columns),
             .updates = {&updates, exec::DType::I32, 1, 1}});
    }
    const std::vector<double> found = on_device.elements();
    for (std::size_t j = 0; j < found.size(); ++j) {
        EXPECT_NEAR(found[j], expected[j], 1e-9 * std::fabs(expected[j]));
    }
    EXPECT_TRUE(close(running_mean.elements(), mean, 1e-6));
    EXPECT_TRUE(close(running_variance.elements(), variance, 1e-6));
    EXPECT_EQ(counter.elements(), std::vector<std::int32_t>{5});
}

TEST_P(CudaColumns, RectifyAndDropWhatTheCpuDoes) {
    for (const double slope : {0.0, 0.01}) {
        constexpr std::int64_t rows = 36;
        constexpr std::int64_t columns = 37;
        Numbers x = random(rows * columns, 1);
        const Numbers dy = random(rows * columns, 2);
        Numbers y = x;
        Numbers dx = x;
        cpu_columns().rectify(slope,
                              view(std::as_const(x), rows, columns),
                              view(std::as_const(x), rows, columns),
                              view(y, rows, columns));
        cpu_columns().rectify(slope,
                              view(std::as_const(x), rows, columns),
                              view(dy, rows, columns),
                              view(dx, rows, columns));
        const Numbers found = run([&] {
            const Operand of_x(way(), x);
            const Operand of_dy(way(), dy);
            const Operand of_y(way(), rows * columns);
            const auto factor = static_cast<float>(slope);
            expect_ok(rectify(
                real(), rows * columns, factor, of_x.data(), of_x.data(), of_y.data(), nullptr));
            expect_ok(rectify(
                real(), rows * columns, factor, of_x.data(), of_dy.data(), of_x.data(), nullptr));
            return joined({of_y.numbers(), of_x.numbers()});
        });
        const std::vector<Numbers> both = split(found, {rows * columns, rows * columns});
        EXPECT_EQ(both[0], rounded(real(), y));
        EXPECT_EQ(both[1], rounded(real(), dx));

        for (const std::int64_t decisions : {columns, std::int64_t{1}}) {
            const exec::DropoutMask mask{
                .key = 77, .first_sample = 5, .numbers_per_sample = decisions, .probability = 0.4};
            Numbers dropped = x;
            cpu_columns().drop_columns(mask,
                                       4,
                                       view(std::as_const(x), rows, columns),
                                       view(dy, rows, columns),
                                       view(dropped, rows, columns));
            const Numbers on_device = run([&] {
                const Operand of_x(way(), x);
                const Operand skip(way(), dy);
                const Operand of_y(way(), rows * columns);
                const DeviceArray<DropoutStep> step(
                    std::vector<DropoutStep>{dropout_step_of(mask)});
                expect_ok(drop_columns(real(),
                                       {.dropout = {.step = step.data(),
                                                    .first_sample = mask.first_sample,
                                                    .samples = 4,
                                                    .numbers_per_sample = decisions},
                                        .rows = rows / 4,
                                        .columns = columns},
                                       of_x.data(),
                                       skip.data(),
                                       of_y.data(),
                                       nullptr));
                return of_y.numbers();
            });
            EXPECT_EQ(on_device, rounded(real(), dropped));
        }
    }
}

}  // namespace column_kernels_test
}  // namespace pipetwin::cuda
