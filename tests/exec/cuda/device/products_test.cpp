// SPDX-License-Identifier: Apache-2.0
#include "exec/cuda/device/products.h"

#include <cmath>
#include <functional>
#include <limits>
#include <numbers>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "tests/exec/cuda/kernels/kernel_test.h"

namespace pipetwin::cuda {
namespace products_test {

using namespace test;  // NOLINT(google-build-using-namespace): the tests' own words

/// Whether a product is added to what is there.
enum class Adds { No, Yes };

/// A product with its operands on the device, from random numbers that repeat.
class Problem {
  public:
    Problem(const Product& product, Adds adds)
        : product_(product),
          adds_(adds == Adds::Yes),
          a_({product.factors}, std::int64_t{product.m} * product.k),
          b_({product.factors}, std::int64_t{product.k} * product.n),
          bias_({product.result}, product.n),
          d_({product.result}, std::int64_t{product.m} * product.n),
          aux_({product.result}, std::int64_t{product.m} * product.n),
          numbers_of_a_(rounded(product.factors, random_numbers(10'007, 1))),
          numbers_of_b_(rounded(product.factors, random_numbers(10'009, 2))),
          numbers_of_c_(rounded(product.result, random_numbers(10'037, 3))),
          numbers_of_bias_(rounded(product.result, random_numbers(product.n, 4))) {
        a_.repeat(numbers_of_a_);
        b_.repeat(numbers_of_b_);
        bias_.repeat(numbers_of_bias_);
    }

    /// In place: c is d, which holds numbers before. Those must not matter where nothing is added.
    void multiply(Products& products, int number) {
        d_.repeat(adds_ ? numbers_of_c_ : Numbers{std::numeric_limits<float>::quiet_NaN()});
        if (product_.epilogue == Product::Epilogue::GeluGradient) {
            aux_.repeat(numbers_of_c_);
        }
        const Products::Operands operands{.a = a_.data(),
                                          .b = b_.data(),
                                          .c = adds_ ? d_.data() : nullptr,
                                          .bias = product_.has_bias ? bias_.data() : nullptr,
                                          .d = d_.data(),
                                          .aux_out = aux_.data(),
                                          .aux_in = aux_.data()};
        EXPECT_EQ(products.multiply(number, operands, nullptr), cudaSuccess);
    }

    Numbers d() const { return d_.numbers(); }

    void expect_right() const {
        // Tensor cores cut off what others round, thousands of times in a sum.
        const double bound = product_.result == Real::BF16    ? 1e-2
                             : product_.factors == Real::BF16 ? 1e-4
                                                              : 1e-5;
        const Numbers found = d();
        const bool makes_aux = product_.epilogue == Product::Epilogue::Gelu;
        const Numbers of_aux = makes_aux ? aux_.numbers() : Numbers{};
        Numbers sampled;
        Numbers expected;
        Numbers sampled_aux;
        Numbers expected_aux;
        const std::int64_t stride = std::max<std::int64_t>(1, product_.n * product_.m / 1000);
        for (std::int64_t at = 0; at < std::int64_t{product_.m} * product_.n; at += stride) {
            sampled.push_back(found[index(at)]);
            const double sum = exact(at / product_.n, at % product_.n);
            expected.push_back(static_cast<float>(at_end(sum, at)));
            if (makes_aux) {
                sampled_aux.push_back(of_aux[index(at)]);
                expected_aux.push_back(static_cast<float>(sum));
            }
        }
        EXPECT_TRUE(close(sampled, expected, bound));
        EXPECT_TRUE(close(sampled_aux, expected_aux, bound));
    }

  private:
    static double at(const Numbers& numbers, std::int64_t i) {
        return static_cast<double>(numbers[index(i) % numbers.size()]);
    }
    double b(std::int64_t k, std::int64_t j) const {
        return at(numbers_of_b_, product_.b_transposed ? j * product_.k + k : k * product_.n + j);
    }
    /// What the epilogue makes of number `i` of the sums.
    double at_end(double sum, std::int64_t i) const {
        // GELU is x F(x), F(x) = (1 + tanh(root (x + 0.044715 x^3))) / 2.
        const double root = std::sqrt(2 / std::numbers::pi);
        const auto tanh_of = [root](double x) {
            return std::tanh(root * (x + 0.044715 * x * x * x));
        };
        if (product_.epilogue == Product::Epilogue::Gelu) {
            return 0.5 * sum * (1 + tanh_of(sum));
        }
        if (product_.epilogue == Product::Epilogue::GeluGradient) {
            const double x = at(numbers_of_c_, i);
            const double odd = tanh_of(x);
            return sum * 0.5 * (1 + odd + x * root * (1 + 3 * 0.044715 * x * x) * (1 - odd * odd));
        }
        return sum;
    }
    double exact(std::int64_t i, std::int64_t j) const {
        double sum = product_.has_bias ? at(numbers_of_bias_, j) : 0;
        sum += adds_ ? at(numbers_of_c_, i * product_.n + j) : 0;
        for (std::int64_t k = 0; k < product_.k; ++k) {
            sum += b(k, j) * at(numbers_of_a_,
                                product_.a_transposed ? k * product_.m + i : i * product_.k + k);
        }
        return sum;
    }

    Product product_;
    bool adds_;
    Operand a_, b_, bias_, d_, aux_;
    Numbers numbers_of_a_, numbers_of_b_, numbers_of_c_, numbers_of_bias_;
};

/// What a linear layer of so many inputs and outputs asks for over so many rows.
std::vector<std::pair<Product, Adds>> products_of_linear(Real real,
                                                         int rows,
                                                         int inputs,
                                                         int outputs) {
    const Product forward{.m = rows, .n = outputs, .k = inputs, .factors = real, .result = real};
    Product with_bias = forward;
    with_bias.has_bias = true;
    const Product input{.m = rows,
                        .n = inputs,
                        .k = outputs,
                        .b_transposed = true,
                        .factors = real,
                        .result = real};
    const Product weight{.m = inputs,
                         .n = outputs,
                         .k = rows,
                         .a_transposed = true,
                         .factors = real,
                         .result = Real::F32};
    return {{forward, Adds::No},
            {with_bias, Adds::No},
            {with_bias, Adds::Yes},
            {input, Adds::No},
            {input, Adds::Yes},
            {weight, Adds::No},
            {weight, Adds::Yes}};
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

void for_every_size(Real real, const std::function<void(const Product&, Adds)>& call) {
    for (const LinearSize& size : sizes()) {
        for (const auto& [product, adds] :
             products_of_linear(real, size.rows, size.inputs, size.outputs)) {
            SCOPED_TRACE(fmt::format("({}, {}) {} ({}, {}) {}{}{}",
                                     product.m,
                                     product.k,
                                     product.a_transposed ? "transposed, by" : "by",
                                     product.k,
                                     product.n,
                                     product.b_transposed ? "transposed" : "",
                                     product.has_bias ? " with bias" : "",
                                     adds == Adds::Yes ? " added" : ""));
            call(product, adds);
        }
    }
}

class CudaProductsWithGelu : public ::testing::Test {
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

class CudaProducts : public CudaProductsWithGelu, public ::testing::WithParamInterface<Real> {};
INSTANTIATE_TEST_SUITE_P(Reals,
                         CudaProducts,
                         ::testing::Values(Real::F32, Real::BF16),
                         [](const auto& of) { return of.param == Real::F32 ? "F32" : "BF16"; });

TEST_P(CudaProducts, AreThoseOfTheFormulaEveryTimeWithTheSameBits) {
    for_every_size(GetParam(), [&](const Product& product, Adds adds) {
        Problem problem(product, adds);
        const int number = products().number_of(product);
        EXPECT_EQ(products().number_of(product), number);
        problem.multiply(products(), number);
        problem.expect_right();
        const Numbers once = problem.d();
        problem.multiply(products(), number);
        EXPECT_EQ(problem.d(), once);
    });
}

// The products before and behind a GELU; cuBLASLt computes both with it where their outputs have a
// multiple of 8 columns.
TEST_F(CudaProductsWithGelu, AreThoseOfTheFormulaEveryTimeWithTheSameBits) {
    std::vector<LinearSize> sizes{{5, 3, 8}, {33, 24, 16}, {64, 40, 24}};
    if (is_fast()) {
        sizes.push_back({16384, 768, 3072});
    }
    for (const LinearSize& size : sizes) {
        const Product plain{.m = size.rows,
                            .n = size.outputs,
                            .k = size.inputs,
                            .factors = Real::BF16,
                            .result = Real::BF16,
                            .epilogue = Product::Epilogue::Gelu};
        Product with_bias = plain;
        with_bias.has_bias = true;
        Product gradient = plain;
        gradient.b_transposed = true;
        gradient.epilogue = Product::Epilogue::GeluGradient;
        for (const Product& product : {plain, with_bias, gradient}) {
            SCOPED_TRACE(fmt::format("{} rows, {} to {}, bias {}",
                                     size.rows,
                                     size.inputs,
                                     size.outputs,
                                     product.has_bias));
            const std::optional<int> number = products().number_if_known(product);
            ASSERT_TRUE(number.has_value());
            EXPECT_EQ(products().number_if_known(product), number);
            Problem problem(product, Adds::No);
            problem.multiply(products(), *number);
            problem.expect_right();
            const Numbers once = problem.d();
            problem.multiply(products(), *number);
            EXPECT_EQ(problem.d(), once);
        }
    }
}

}  // namespace products_test
}  // namespace pipetwin::cuda
