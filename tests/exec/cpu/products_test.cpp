// SPDX-License-Identifier: Apache-2.0
#include "exec/cpu/products/products.h"

#include <cmath>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include "exec/cpu/products/bfloat16.h"
#include "exec/cpu/products/onednn_products.h"
#include "exec/device/arena.h"
#include "exec/device/kernels.h"
#include "tests/exec/layers/layer_run.h"
#include "tests/support/compare_tensors.h"

namespace pipetwin::exec {
namespace products_test {

using testing::agree;
using testing::Numbers;
using testing::numbers_of;
using testing::random_numbers;

struct Sizes {
    std::int64_t m = 0;
    std::int64_t n = 0;
    std::int64_t k = 0;
};

/// A product with its operands, and what it must be.
class Case {
  public:
    Case(const Sizes& sizes, DType type, Transposed a, Transposed b, bool added)
        : sizes_(sizes), type_(type), a_turned_(a), b_turned_(b), added_(added) {
        a_ = made(a == Transposed::No ? sizes.m : sizes.k, a == Transposed::No ? sizes.k : sizes.m);
        b_ = made(b == Transposed::No ? sizes.k : sizes.n, b == Transposed::No ? sizes.n : sizes.k);
        skip_ = made(sizes.m, sizes.n);
        bias_ = made(1, sizes.n);
        c_ = made(sizes.m, sizes.n);
    }

    Product product() {
        return {.m = sizes_.m,
                .n = sizes_.n,
                .k = sizes_.k,
                .a = factor(a_, a_turned_),
                .b = factor(b_, b_turned_),
                .c = c_.data(),
                .c_type = c_.dtype(),
                .c_stride = c_.columns(),
                .skip = added_ ? skip_.data() : nullptr,
                .bias = added_ ? bias_.data() : nullptr};
    }

    Numbers expected() const {
        const Numbers a = numbers_of(a_);
        const Numbers b = numbers_of(b_);
        const Numbers skip = numbers_of(skip_);
        const Numbers bias = numbers_of(bias_);
        const auto at = [](const Numbers& x, std::int64_t i, std::int64_t j, std::int64_t stride) {
            return x[static_cast<std::size_t>(i * stride + j)];
        };
        Numbers c;
        for (std::int64_t i = 0; i < sizes_.m; ++i) {
            for (std::int64_t j = 0; j < sizes_.n; ++j) {
                double sum = added_ ? at(skip, i, j, sizes_.n) + at(bias, 0, j, 0) : 0;
                for (std::int64_t p = 0; p < sizes_.k; ++p) {
                    const double x =
                        a_turned_ == Transposed::No ? at(a, i, p, sizes_.k) : at(a, p, i, sizes_.m);
                    const double y =
                        b_turned_ == Transposed::No ? at(b, p, j, sizes_.n) : at(b, j, p, sizes_.k);
                    sum += x * y;
                }
                c.push_back(sum);
            }
        }
        return c;
    }

    Numbers found() const { return numbers_of(c_); }
    Tensor& a() { return a_; }
    Tensor& skip() { return skip_; }

  private:
    Tensor made(std::int64_t rows, std::int64_t columns) {
        Tensor tensor = arena_.allocate(type_, rows, columns, MemoryKind::Stash);
        cpu_kernels().upload(random_numbers(static_cast<std::size_t>(tensor.size()), ++made_),
                             tensor);
        return tensor;
    }
    static Factor factor(const Tensor& tensor, Transposed turned) {
        return {.data = tensor.data(),
                .type = tensor.dtype(),
                .stride = tensor.columns(),
                .transposed = turned};
    }

    Sizes sizes_;
    DType type_;
    Transposed a_turned_;
    Transposed b_turned_;
    bool added_;
    std::uint64_t made_ = 0;
    Arena arena_;
    Tensor a_;
    Tensor b_;
    Tensor skip_;
    Tensor bias_;
    Tensor c_;
};

/// Every kernel that this machine can run.
std::vector<std::string> kernels() {
    std::vector<std::string> names;
    for (const std::string_view name : product_kernels()) {
        names.emplace_back(name);
    }
    return names;
}

double bound_of(DType type) {
    switch (type) {
        case DType::F64:
            return 1e-14;
        case DType::BF16:
            return 3e-3;  // the result is rounded, once
        default:
            return 1e-6;
    }
}

class EveryKernel : public ::testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Products,
                         EveryKernel,
                         ::testing::ValuesIn(kernels()),
                         [](const auto& chosen) { return chosen.param; });

TEST_P(EveryKernel, ComputesWhatPlainLoopsDo) {
    // Less than a tile, whole tiles, parts of tiles, several blocks of rows and of the depth.
    for (const Sizes& sizes : {Sizes{1, 1, 1},
                               Sizes{5, 3, 2},
                               Sizes{12, 64, 8},
                               Sizes{13, 37, 401},
                               Sizes{150, 33, 7},
                               Sizes{7, 70, 1000}}) {
        for (const DType type : {DType::F32, DType::F64, DType::BF16}) {
            for (const Transposed a : {Transposed::No, Transposed::Yes}) {
                for (const Transposed b : {Transposed::No, Transposed::Yes}) {
                    for (const bool added : {false, true}) {
                        Case c(sizes, type, a, b, added);
                        compute_with(GetParam(), c.product());
                        EXPECT_TRUE(agree<double>(c.found(), c.expected(), bound_of(type)))
                            << to_string(type) << " " << sizes.m << " x " << sizes.n << " x "
                            << sizes.k << (a == Transposed::Yes ? ", a transposed" : "")
                            << (b == Transposed::Yes ? ", b transposed" : "")
                            << (added ? ", added" : "");
                    }
                }
            }
        }
    }
}

TEST_P(EveryKernel, AddsToWhatTheResultHolds) {
    Case apart({20, 40, 500}, DType::F32, Transposed::Yes, Transposed::No, true);
    compute_with(GetParam(), apart.product());
    Case inside({20, 40, 500}, DType::F32, Transposed::Yes, Transposed::No, true);
    Product product = inside.product();
    product.c = inside.skip().data();
    compute_with(GetParam(), product);
    EXPECT_EQ(numbers_of(inside.skip()), apart.found());
}

TEST_P(EveryKernel, ARowHasTheSameBitsHoweverManyRowsAreComputedWithIt) {
    for (const DType type : {DType::F32, DType::BF16}) {
        Case c({29, 40, 500}, type, Transposed::No, Transposed::Yes, true);
        compute_with(GetParam(), c.product());
        const Numbers whole = c.found();
        for (std::int64_t row = 0; row < 29; ++row) {
            Product one = c.product();
            const auto offset = [&](const void* from, std::int64_t numbers) {
                return static_cast<const std::byte*>(from) +
                       numbers * static_cast<std::int64_t>(size_of(type));
            };
            one.m = 1;
            one.a.data = offset(one.a.data, row * 500);
            one.skip = offset(one.skip, row * 40);
            compute_with(GetParam(), one);  // into the first row
            const Numbers found = c.found();
            for (std::size_t j = 0; j < 40; ++j) {
                EXPECT_EQ(found[j], whole[static_cast<std::size_t>(row) * 40 + j]) << row;
            }
        }
    }
}

TEST_P(EveryKernel, CausalProductsAreThoseOfTheTriangle) {
    constexpr std::int64_t positions = 401;  // several blocks of rows and of the depth
    const auto left_of_diagonal = [](Tensor& tensor, double beyond) {
        Numbers numbers = numbers_of(tensor);
        for (std::int64_t i = 0; i < positions; ++i) {
            for (std::int64_t j = i + 1; j < positions; ++j) {
                numbers[static_cast<std::size_t>(i * positions + j)] =
                    j <= i + causal_margin ? 0 : beyond;
            }
        }
        cpu_kernels().upload(numbers, tensor);
    };
    for (const Transposed turned : {Transposed::No, Transposed::Yes}) {
        Case c({positions, 24, positions}, DType::F32, turned, Transposed::No, false);
        left_of_diagonal(c.a(), 0);
        const Numbers expected = c.expected();
        left_of_diagonal(c.a(), std::nan(""));  // nobody looks there
        Product product = c.product();
        product.causal = turned == Transposed::No ? Causal::A : Causal::ATransposed;
        compute_with(GetParam(), product);
        EXPECT_TRUE(agree<double>(c.found(), expected, 1e-6));
    }
    Case c({positions, positions, 24}, DType::F32, Transposed::No, Transposed::Yes, false);
    Product product = c.product();
    product.causal = Causal::Result;
    compute_with(GetParam(), product);
    const Numbers found = c.found();
    const Numbers expected = c.expected();
    for (std::size_t i = 0; i < positions; ++i) {
        const std::size_t row = i * positions;
        EXPECT_TRUE(agree<double>(
            std::span(found).subspan(row, i + 1), std::span(expected).subspan(row, i + 1), 1e-6))
            << i;
    }
}

// So that a training goes on with the same bits on another machine.
TEST(Products, HaveTheSameBitsByEveryKernelWithFusedMultiplyAdd) {
    for (const DType type : {DType::F32, DType::F64, DType::BF16}) {
        std::vector<Numbers> results;
        for (const std::string& kernel : kernels()) {
            if (kernel != "baseline") {
                Case c({29, 70, 500}, type, Transposed::No, Transposed::No, true);
                compute_with(kernel, c.product());
                results.push_back(c.found());
            }
        }
        for (const Numbers& result : results) {
            EXPECT_EQ(result, results.front());
        }
    }
}

class Pairs : public ::testing::Test {
  protected:
    void SetUp() override {
        if (!multiplies_bf16()) {
            GTEST_SKIP() << "this processor has no instructions for bf16";
        }
    }
};

TEST_F(Pairs, ComputeWhatPlainLoopsDo) {
    // Odd depths end in half a pair; 33 lines are a vector and one; 4101 is several blocks deep.
    for (const Sizes& sizes : {Sizes{1, 1, 1},
                               Sizes{5, 3, 2},
                               Sizes{12, 32, 33},
                               Sizes{13, 37, 401},
                               Sizes{150, 33, 7},
                               Sizes{25, 70, 4101}}) {
        for (const Transposed a : {Transposed::No, Transposed::Yes}) {
            for (const Transposed b : {Transposed::No, Transposed::Yes}) {
                for (const bool added : {false, true}) {
                    Case c(sizes, DType::BF16, a, b, added);
                    compute_by_pairs(c.product());
                    EXPECT_TRUE(agree<double>(c.found(), c.expected(), bound_of(DType::BF16)))
                        << sizes.m << " x " << sizes.n << " x " << sizes.k
                        << (a == Transposed::Yes ? ", a transposed" : "")
                        << (b == Transposed::Yes ? ", b transposed" : "")
                        << (added ? ", added" : "");
                }
            }
        }
    }
}

TEST_F(Pairs, SumInFp32) {
    // Products of bf16 are exact in fp32; sums that were rounded to bf16 would be off by 1e-3.
    Case c({20, 40, 2000}, DType::BF16, Transposed::Yes, Transposed::No, false);
    Arena arena;
    Tensor result = arena.allocate(DType::F32, 20, 40, MemoryKind::Stash);
    cpu_kernels().fill_zero(result);
    Product product = c.product();
    product.c = result.data();
    product.c_type = DType::F32;
    product.skip = result.data();
    compute_by_pairs(product);
    EXPECT_TRUE(agree<double>(numbers_of(result), c.expected(), 1e-6));
}

TEST_F(Pairs, ARowHasTheSameBitsHoweverManyRowsAndColumnsAreComputedWithIt) {
    Case c({29, 40, 4101}, DType::BF16, Transposed::No, Transposed::Yes, false);
    compute_by_pairs(c.product());
    const Numbers whole = c.found();
    for (std::int64_t row = 0; row < 29; ++row) {
        Product one = c.product();
        one.m = 1;
        one.n = 7;
        one.a.data = static_cast<const BFloat16*>(one.a.data) + row * 4101;
        compute_by_pairs(one);  // into the first row
        const Numbers found = c.found();
        for (std::size_t j = 0; j < 7; ++j) {
            EXPECT_EQ(found[j], whole[static_cast<std::size_t>(row) * 40 + j]) << row;
        }
    }
}

TEST_F(Pairs, CausalProductsAreThoseOfTheTriangle) {
    constexpr std::int64_t positions = 401;
    const auto left_of_diagonal = [](Tensor& tensor, double beyond) {
        Numbers numbers = numbers_of(tensor);
        for (std::int64_t i = 0; i < positions; ++i) {
            for (std::int64_t j = i + 1; j < positions; ++j) {
                numbers[static_cast<std::size_t>(i * positions + j)] =
                    j <= i + causal_margin ? 0 : beyond;
            }
        }
        cpu_kernels().upload(numbers, tensor);
    };
    for (const Transposed turned : {Transposed::No, Transposed::Yes}) {
        Case c({positions, 24, positions}, DType::BF16, turned, Transposed::No, false);
        left_of_diagonal(c.a(), 0);
        const Numbers expected = c.expected();
        left_of_diagonal(c.a(), std::nan(""));  // no product reads it
        Product product = c.product();
        product.causal = turned == Transposed::No ? Causal::A : Causal::ATransposed;
        compute_by_pairs(product);
        EXPECT_TRUE(agree<double>(c.found(), expected, bound_of(DType::BF16)));
    }
    Case c({positions, positions, 24}, DType::BF16, Transposed::No, Transposed::Yes, false);
    Product product = c.product();
    product.causal = Causal::Result;
    compute_by_pairs(product);
    const Numbers found = c.found();
    const Numbers expected = c.expected();
    for (std::size_t i = 0; i < positions; ++i) {
        const std::size_t row = i * positions;
        EXPECT_TRUE(agree<double>(std::span(found).subspan(row, i + 1),
                                  std::span(expected).subspan(row, i + 1),
                                  bound_of(DType::BF16)))
            << i;
    }
}

class OneDnn : public ::testing::TestWithParam<DType> {
  protected:
    void SetUp() override {
        if (!has_onednn()) {
            GTEST_SKIP() << "this build has no oneDNN";
        }
        if (GetParam() == DType::BF16 && !onednn_has_bf16()) {
            GTEST_SKIP() << "this processor has no instructions for bf16";
        }
    }
};
INSTANTIATE_TEST_SUITE_P(Products,
                         OneDnn,
                         ::testing::Values(DType::F32, DType::BF16),
                         [](const auto& type) { return std::string(to_string(type.param)); });

TEST_P(OneDnn, ComputesWhatPlainLoopsDo) {
    for (const Sizes& sizes : {Sizes{1, 1, 1}, Sizes{13, 37, 401}, Sizes{70, 33, 64}}) {
        for (const Transposed a : {Transposed::No, Transposed::Yes}) {
            for (const Transposed b : {Transposed::No, Transposed::Yes}) {
                for (const bool added : {false, true}) {
                    Case c(sizes, GetParam(), a, b, added);
                    for (int again = 0; again < 2; ++again) {  // made, and found
                        compute_by_onednn(c.product());
                        EXPECT_TRUE(agree<double>(c.found(), c.expected(), bound_of(GetParam())));
                    }
                }
            }
        }
    }
}

TEST_P(OneDnn, AddsToWhatTheResultHolds) {
    Case apart({20, 40, 500}, GetParam(), Transposed::Yes, Transposed::No, true);
    compute_by_onednn(apart.product());
    Case inside({20, 40, 500}, GetParam(), Transposed::Yes, Transposed::No, true);
    Product product = inside.product();
    product.c = inside.skip().data();
    compute_by_onednn(product);
    EXPECT_EQ(numbers_of(inside.skip()), apart.found());
}

TEST(OneDnnAlone, LeavesToOthersWhatIsPartlyUndefinedOrDouble) {
    Case c({8, 8, 8}, DType::F32, Transposed::No, Transposed::No, false);
    Product product = c.product();
    product.causal = Causal::A;
    EXPECT_FALSE(can_compute_by_onednn(product));
    Case exact({8, 8, 8}, DType::F64, Transposed::No, Transposed::No, false);
    EXPECT_FALSE(can_compute_by_onednn(exact.product()));
}

TEST(Products, RefuseToMixDoubleWithOthers) {
    Case c({4, 4, 4}, DType::F32, Transposed::No, Transposed::No, false);
    Product product = c.product();
    product.b.type = DType::F64;
    EXPECT_THROW(compute(product), InternalError);
}

TEST(BFloat16, RoundsToTheNearestWithTiesToEven) {
    const auto rounded = [](double number) {
        Arena arena;
        Tensor tensor = arena.allocate(DType::BF16, 1, 1, MemoryKind::Stash);
        cpu_kernels().upload(Numbers{number}, tensor);
        return numbers_of(tensor).front();
    };
    constexpr double unit = 1.0 / 128;  // between neighbours from 1 to 2
    EXPECT_EQ(rounded(1 + 0.49 * unit), 1);
    EXPECT_EQ(rounded(1 + 0.51 * unit), 1 + unit);
    EXPECT_EQ(rounded(1 + 0.5 * unit), 1);
    EXPECT_EQ(rounded(1 + 1.5 * unit), 1 + 2 * unit);
    EXPECT_EQ(rounded(-1 - 1.5 * unit), -1 - 2 * unit);
    EXPECT_EQ(rounded(3.4e38), INFINITY);
    EXPECT_EQ(rounded(-INFINITY), -INFINITY);
    EXPECT_TRUE(std::isnan(rounded(std::nan(""))));
}

}  // namespace products_test
}  // namespace pipetwin::exec
