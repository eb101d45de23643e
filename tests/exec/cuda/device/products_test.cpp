#include "exec/cuda/device/products.h"

#include <functional>
#include <utility>

#include <fmt/format.h>

#include "tests/exec/cuda/kernels/kernel_test.h"

namespace pipetwin::cuda {
namespace products_test {

using namespace test;  // NOLINT(google-build-using-namespace): the tests' own words

/// A product with its operands on the device, from random numbers that repeat.
class Problem {
  public:
    explicit Problem(const Product& product)
        : product_(product),
          a_({product.factors}, std::int64_t{product.m} * product.k),
          b_({product.factors}, std::int64_t{product.k} * product.n),
          bias_({product.result}, product.n),
          d_({product.result}, std::int64_t{product.m} * product.n),
          numbers_of_a_(rounded(product.factors, random_numbers(10'007, 1))),
          numbers_of_b_(rounded(product.factors, random_numbers(10'009, 2))),
          numbers_of_c_(rounded(product.result, random_numbers(10'037, 3))),
          numbers_of_bias_(rounded(product.result, random_numbers(product.n, 4))) {
        a_.repeat(numbers_of_a_);
        b_.repeat(numbers_of_b_);
        bias_.repeat(numbers_of_bias_);
    }

    /// In place: c is d, which holds numbers before.
    void multiply(Products& products, int number) {
        d_.repeat(numbers_of_c_);
        const Products::Operands operands{.a = a_.data(),
                                          .b = b_.data(),
                                          .c = product_.adds ? d_.data() : nullptr,
                                          .bias = product_.has_bias ? bias_.data() : nullptr,
                                          .d = d_.data()};
        EXPECT_EQ(products.multiply(number, operands, nullptr), cudaSuccess);
    }

    Numbers d() const { return d_.numbers(); }

    void expect_right() const {
        // Tensor cores cut off what others round, thousands of times in a sum.
        const double bound = product_.result == Real::BF16    ? 1e-2
                             : product_.factors == Real::BF16 ? 1e-4
                                                              : 1e-5;
        const Numbers found = d();
        Numbers sampled;
        Numbers expected;
        const std::int64_t stride = std::max<std::int64_t>(1, product_.n * product_.m / 1000);
        for (std::int64_t at = 0; at < std::int64_t{product_.m} * product_.n; at += stride) {
            sampled.push_back(found[index(at)]);
            expected.push_back(exact(at / product_.n, at % product_.n));
        }
        EXPECT_TRUE(close(sampled, expected, bound));
    }

  private:
    static double at(const Numbers& numbers, std::int64_t i) {
        return static_cast<double>(numbers[index(i) % numbers.size()]);
    }
    double b(std::int64_t k, std::int64_t j) const {
        return at(numbers_of_b_, product_.b_transposed ? j * product_.k + k : k * product_.n + j);
    }
    float exact(std::int64_t i, std::int64_t j) const {
        double sum = product_.has_bias ? at(numbers_of_bias_, j) : 0;
        sum += product_.adds ? at(numbers_of_c_, i * product_.n + j) : 0;
        for (std::int64_t k = 0; k < product_.k; ++k) {
            sum += b(k, j) * at(numbers_of_a_,
                                product_.a_transposed ? k * product_.m + i : i * product_.k + k);
        }
        return static_cast<float>(sum);
    }

    Product product_;
    Operand a_, b_, bias_, d_;
    Numbers numbers_of_a_, numbers_of_b_, numbers_of_c_, numbers_of_bias_;
};

/// What a linear layer of so many inputs and outputs asks for over so many rows.
std::vector<Product> products_of_linear(Real real, int rows, int inputs, int outputs) {
    const Product forward{.m = rows, .n = outputs, .k = inputs, .factors = real, .result = real};
    Product with_bias = forward;
    with_bias.has_bias = true;
    Product all = with_bias;
    all.adds = true;
    const Product input{.m = rows,
                        .n = inputs,
                        .k = outputs,
                        .b_transposed = true,
                        .factors = real,
                        .result = real};
    Product with_skip = input;
    with_skip.adds = true;
    const Product weight{.m = inputs,
                         .n = outputs,
                         .k = rows,
                         .a_transposed = true,
                         .factors = real,
                         .result = Real::F32,
                         .adds = true};
    return {forward, with_bias, all, input, with_skip, weight};
}

struct LinearSize {
    int rows, inputs, outputs;
};

/// GPT-2's where that is quick: qkv, out, up and down of 16 x 1024 positions, and the head of one.
std::vector<LinearSize> sizes() {
    std::vector<LinearSize> all = {{5, 3, 7}, {1, 1, 1}, {33, 24, 8}, {64, 40, 16}};
    if (is_fast()) {
        all.insert(all.end(),
                   {{16384, 768, 2304},
                    {16384, 768, 768},
                    {16384, 768, 3072},
                    {16384, 3072, 768},
                    {1024, 768, 50304}});
    }
    return all;
}

void for_every_size(Real real, const std::function<void(const Product&)>& call) {
    for (const LinearSize& size : sizes()) {
        for (const Product& product :
             products_of_linear(real, size.rows, size.inputs, size.outputs)) {
            SCOPED_TRACE(fmt::format("({}, {}) {} ({}, {}) {}{}{}",
                                     product.m,
                                     product.k,
                                     product.a_transposed ? "transposed, by" : "by",
                                     product.k,
                                     product.n,
                                     product.b_transposed ? "transposed" : "",
                                     product.has_bias ? " with bias" : "",
                                     product.adds ? " added" : ""));
            call(product);
        }
    }
}

class CudaProducts : public ::testing::TestWithParam<Real> {
  protected:
    void SetUp() override {  // not before: there may be no device
        workspace_.emplace(Products::workspace_bytes);
        products_.emplace(workspace_->data(), 132);
    }
    Products& products() { return *products_; }

  private:
    std::optional<DeviceArray<std::byte>> workspace_;
    std::optional<Products> products_;
};
INSTANTIATE_TEST_SUITE_P(Reals,
                         CudaProducts,
                         ::testing::Values(Real::F32, Real::BF16),
                         [](const auto& of) { return of.param == Real::F32 ? "F32" : "BF16"; });

TEST_P(CudaProducts, AreThoseOfTheFormulaEveryTimeWithTheSameBits) {
    for_every_size(GetParam(), [&](const Product& product) {
        Problem problem(product);
        const int number = products().number_of(product);
        EXPECT_EQ(products().number_of(product), number);
        problem.multiply(products(), number);
        problem.expect_right();
        const Numbers once = problem.d();
        problem.multiply(products(), number);
        EXPECT_EQ(problem.d(), once);
    });
}

}  // namespace products_test
}  // namespace pipetwin::cuda
