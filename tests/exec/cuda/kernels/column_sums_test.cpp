// SPDX-License-Identifier: Apache-2.0
#include <limits>

#include "tests/exec/cuda/kernels/kernel_test.h"

namespace pipetwin::cuda {
namespace column_sums_test {

using namespace test;  // NOLINT(google-build-using-namespace): the tests' own words

class CudaColumnSums : public KernelTest {};
INSTANTIATE_TEST_SUITE_P(Ways, CudaColumnSums, every_way(), ::testing::PrintToStringParamName());

TEST_P(CudaColumnSums, AreAddedToTheBiasGradient) {
    for (const Shape& shape : sum_shapes()) {
        SCOPED_TRACE(shape.text());
        const Numbers dy = random(shape.size(), 1);
        const Numbers before = random_numbers(shape.width, 2);
        Numbers expected = before;
        for (std::int64_t i = 0; i < shape.size(); ++i) {
            expected[index(i % shape.width)] += dy[index(i)];
        }
        const Numbers found = run([&] {
            const Operand of_dy(way(), dy);
            const DeviceArray<float> db(before);
            const DeviceArray<float> scratch(index(column_sums_scratch(shape.rows, shape.width)));
            expect_ok(column_sums(real(),
                                  shape.rows,
                                  shape.width,
                                  of_dy.data(),
                                  {db.data()},
                                  scratch.data(),
                                  nullptr));
            return db.elements();
        });
        EXPECT_TRUE(close(found, expected, 1e-5));
    }
}

// The first micro-batch of a step writes the gradient, whatever was there.
TEST_P(CudaColumnSums, ThatAreWrittenAreThoseThatAreAddedToZero) {
    for (const Shape& shape : sum_shapes()) {
        SCOPED_TRACE(shape.text());
        const Numbers dy = random(shape.size(), 1);
        const auto sums_on = [&](float before, std::int64_t adds) {
            return run([&] {
                const Operand of_dy(way(), dy);
                const DeviceArray<float> db(Numbers(index(shape.width), before));
                const DeviceArray<float> scratch(
                    index(column_sums_scratch(shape.rows, shape.width)));
                expect_ok(column_sums(real(),
                                      shape.rows,
                                      shape.width,
                                      of_dy.data(),
                                      {.first = db.data(), .adds = adds},
                                      scratch.data(),
                                      nullptr));
                return db.elements();
            });
        };
        EXPECT_EQ(sums_on(std::numeric_limits<float>::quiet_NaN(), 0), sums_on(0, 1));
    }
}

TEST(CudaColumnSumsOfNothing, DoNothing) {
    EXPECT_EQ(column_sums(Real::F32, 0, 5, nullptr, {}, nullptr, nullptr), cudaSuccess);
}

}  // namespace column_sums_test
}  // namespace pipetwin::cuda
