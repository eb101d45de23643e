#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "tests/exec/cuda/kernels/kernel_test.h"

namespace pipetwin::cuda {
namespace cross_entropy_test {

using namespace test;  // NOLINT(google-build-using-namespace): the tests' own words

class CudaCrossEntropy : public KernelTest {};
INSTANTIATE_TEST_SUITE_P(Ways, CudaCrossEntropy, every_way(), ::testing::PrintToStringParamName());

TEST_P(CudaCrossEntropy, AndItsGradient) {
    std::vector<Shape> all(row_shapes().begin(), row_shapes().end());
    all.push_back({1100, 3});  // more losses than the block that adds them up has threads
    for (const Shape& shape : all) {
        SCOPED_TRACE(shape.text());
        const auto [n, width] = shape;
        Numbers x = random(shape.size(), 1);
        std::for_each(x.begin(), x.end(), [](float& value) { value = 8 * value + 8; });
        x = rounded(real(), x);
        const std::vector<std::int32_t> targets = random_ids(n, width, 2);
        Numbers log_sums(index(n));
        Numbers dx(index(shape.size()));
        double sum = 0;
        cpu().cross_entropy_forward(
            view(std::as_const(x), n, width), view(targets), view(log_sums, n, 1), &sum);
        constexpr float scale = 0.25F;
        cpu().cross_entropy_backward(view(std::as_const(x), n, width),
                                     view(targets),
                                     view(std::as_const(log_sums), n, 1),
                                     scale,
                                     view(dx, n, width));
        double found_sum = 0;
        const auto both = [&](bool in_place) {
            return run([&, in_place] {
                const Operand of_x(way(), x);
                const Operand of_dx(way(), shape.size());
                const DeviceArray<std::int32_t> of_targets(targets);
                const DeviceArray<float> sums(index(n));
                const DeviceArray<double> row_losses(index(n));
                const DeviceArray<double> total(1);
                const CrossEntropy loss{n, width, of_x.data(), of_targets.data()};
                expect_ok(cross_entropy_forward(
                    real(), loss, sums.data(), row_losses.data(), total.data(), nullptr));
                expect_ok(cross_entropy_backward(real(),
                                                 loss,
                                                 sums.data(),
                                                 scale,
                                                 in_place ? of_x.data() : of_dx.data(),
                                                 nullptr));
                found_sum = total.elements()[0];
                return joined({sums.elements(), in_place ? of_x.numbers() : of_dx.numbers()});
            });
        };
        const Numbers found = both(true);
        EXPECT_EQ(found, both(false));
        EXPECT_NEAR(found_sum, sum, 1e-5 * 64 * static_cast<double>(n));
        const std::vector<Numbers> parts = split(found, {n, shape.size()});
        EXPECT_TRUE(close(parts[0], log_sums, 1e-5));
        // The gradient of a class that is certain is 0, and what is found is rounding error.
        if (width > 1) {
            EXPECT_TRUE(close(parts[1], dx, way().bound()));
        }
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
        const DeviceArray<double> row_losses(1);
        const DeviceArray<double> sum(1);
        const CrossEntropy loss{1, 9, of_x.data(), targets.data()};
        expect_ok(cross_entropy_forward(
            real(), loss, log_sums.data(), row_losses.data(), sum.data(), nullptr));
        EXPECT_NEAR(sum.elements()[0], std::log1p(std::exp(-16.0)) + 16, 1e-6);
    }
}

TEST(CudaCrossEntropyOfNothing, IsZero) {
    const DeviceArray<double> sum(1);
    EXPECT_EQ(cross_entropy_forward(Real::F32, {0, 5}, nullptr, nullptr, sum.data(), nullptr),
              cudaSuccess);
    EXPECT_EQ(sum.elements()[0], 0);
    EXPECT_EQ(cross_entropy_backward(Real::F32, {0, 5}, nullptr, 1, nullptr, nullptr), cudaSuccess);
}

}  // namespace cross_entropy_test
}  // namespace pipetwin::cuda
