// SPDX-License-Identifier: Apache-2.0
#include "core/model/rotary.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "exec/cuda/kernels/attention/attention.h"
#include "tests/exec/cuda/kernels/kernel_test.h"

namespace pipetwin::cuda {
namespace rotary_test {

using namespace test;  // NOLINT(google-build-using-namespace): the tests' own words

class CudaRotary : public KernelTest {};
INSTANTIATE_TEST_SUITE_P(Ways, CudaRotary, every_way(), ::testing::PrintToStringParamName());

Rotation rotation_of(const exec::AttentionShape& shape, const Rotary& rotary, double sign) {
    Rotation rotation{.rows = std::int64_t{shape.samples} * shape.positions,
                      .stride = shape.qkv_width(),
                      .positions = shape.positions,
                      .heads = shape.heads + shape.key_value_heads,
                      .pairs = shape.head_size / 2};
    for (int pair = 0; pair < rotation.pairs; ++pair) {
        rotation.frequencies[pair] = sign * rotary_frequency(rotary, pair, shape.head_size);
    }
    return rotation;
}

// More heads than a thread turns, pairs that fill no pack, values that stay as they are.
TEST_P(CudaRotary, TurnsQueriesAndKeysAsTheCpuDoes) {
    const Rotary plain{.base = 10000};
    const Rotary scaled{.base = 500000, .factor = 8, .context = 8192};
    for (const auto& [shape, rotary] : {std::pair{exec::AttentionShape{1, 1, 1, 1, 2}, plain},
                                        {exec::AttentionShape{2, 7, 3, 3, 6}, plain},
                                        {exec::AttentionShape{2, 33, 4, 2, 16}, scaled},
                                        {exec::AttentionShape{1, 70, 12, 3, 64}, scaled},
                                        {exec::AttentionShape{3, 20, 8, 1, 128}, plain},
                                        {exec::AttentionShape{1, 5, 2, 1, 256}, plain}}) {
        SCOPED_TRACE(::testing::Message() << shape.heads << " heads of " << shape.head_size);
        const std::int64_t rows = std::int64_t{shape.samples} * shape.positions;
        const std::int64_t size = rows * shape.qkv_width();
        const Numbers qkv = random(size, 1);
        for (const auto& [turn, sign] :
             {std::pair{exec::Turn::Forward, 1.0}, {exec::Turn::Back, -1.0}}) {
            Numbers expected = qkv;
            cpu().rotate(shape, rotary, turn, view(expected, rows, shape.qkv_width()));
            const Numbers found = run([&, &shape = shape, &rotary = rotary, &sign = sign] {
                const Operand turned(way(), qkv);
                expect_ok(rotate(real(), rotation_of(shape, rotary, sign), turned.data(), nullptr));
                return turned.numbers();
            });
            EXPECT_TRUE(close(found, expected, way().bound()));
            for (std::int64_t row = 0; row < rows; ++row) {
                const auto begin =
                    row * shape.qkv_width() + shape.query_width() + shape.key_width();
                for (std::int64_t i = begin; i < begin + shape.key_width(); ++i) {
                    ASSERT_EQ(found[index(i)], qkv[index(i)]) << "a value";
                }
            }
        }
    }
}

// Pairs (1, 0) become cosine and sine. In fp32 an angle of 131071 is off by 4e-3, and so would both
// be.
TEST(CudaRotaryAngles, KeepTheirDigitsAtLargePositions) {
    constexpr int positions = 131072;
    Rotation rotation{
        .rows = positions, .stride = 8, .positions = positions, .heads = 1, .pairs = 4};
    for (int pair = 0; pair < 4; ++pair) {
        rotation.frequencies[pair] = rotary_frequency({.base = 10000}, pair, 8);
    }
    Numbers ones(std::size_t{8} * positions);
    for (std::size_t i = 0; i < ones.size(); ++i) {
        ones[i] = i % 8 < 4 ? 1.0F : 0.0F;
    }
    const Operand turned(Way{Real::F32, 0}, ones);
    ASSERT_EQ(rotate(Real::F32, rotation, turned.data(), nullptr), cudaSuccess);
    const Numbers found = turned.numbers();
    double largest = 0;
    for (std::size_t t = 0; t < positions; ++t) {
        for (std::size_t pair = 0; pair < 4; ++pair) {
            const double angle = static_cast<double>(t) * std::pow(10000.0, -0.25 * double(pair));
            const auto off = [&](std::size_t place, double exact) {
                return std::abs(static_cast<double>(found[8 * t + place]) - exact);
            };
            largest =
                std::max({largest, off(pair, std::cos(angle)), off(pair + 4, std::sin(angle))});
        }
    }
    EXPECT_LT(largest, 1e-6);
}

TEST(CudaRotaryRefusal, NamesAnInvalidValue) {
    EXPECT_EQ(rotate(Real::F32, {.rows = 1, .heads = 1, .pairs = 129}, nullptr, nullptr),
              cudaErrorInvalidValue);
}

TEST(CudaRotaryOfNothing, DoesNothing) {
    EXPECT_EQ(rotate(Real::F32, {.rows = 0, .heads = 1, .pairs = 4}, nullptr, nullptr),
              cudaSuccess);
}

}  // namespace rotary_test
}  // namespace pipetwin::cuda
