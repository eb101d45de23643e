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
            expect_ok(column_sums(
                real(), shape.rows, shape.width, of_dy.data(), db.data(), scratch.data(), nullptr));
            return db.elements();
        });
        EXPECT_TRUE(close(found, expected, 1e-5));
    }
}

TEST(CudaColumnSumsOfNothing, DoNothing) {
    EXPECT_EQ(column_sums(Real::F32, 0, 5, nullptr, nullptr, nullptr, nullptr), cudaSuccess);
}

}  // namespace column_sums_test
}  // namespace pipetwin::cuda
