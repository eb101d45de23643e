// SPDX-License-Identifier: Apache-2.0
#include "exec/cuda/kernels/attention/attention.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <utility>
#include <vector>

#include <cuda_bf16.h>
#include <gtest/gtest.h>

#include "tests/exec/cuda/kernels/attention_oracle.h"
#include "tests/exec/cuda/kernels/device_array.h"

// Attention's CUDA kernels against the formulas in plain loops and double precision.
namespace pipetwin::cuda {
namespace attention_test {

using namespace test;  // NOLINT(google-build-using-namespace): the tests' own words

using Bf16 = __nv_bfloat16;

// Sums of up to 256 terms and exponentials of scores up to 10, rounded by 6e-8 at each step.
constexpr double fp32_tolerance = 1e-5;
// P, dS, context and the results are rounded by up to 4e-3 each.
constexpr double bf16_tolerance = 1e-2;

double to_double(float x) {
    return static_cast<double>(x);
}
double to_double(Bf16 x) {
    return static_cast<double>(__bfloat162float(x));
}

template <class T>
T rounded(double x);
template <>
float rounded(double x) {
    return static_cast<float>(x);
}
template <>
Bf16 rounded(double x) {
    return __float2bfloat16(static_cast<float>(x));
}

template <class T>
constexpr Real real_of = std::is_same_v<T, float> ? Real::F32 : Real::BF16;

/// A matrix on the device, at a multiple of 16 bytes.
template <class T>
class Buffer : public DeviceArray<T> {
  public:
    using DeviceArray<T>::DeviceArray;

    void fill(double largest, unsigned seed) {
        std::mt19937 random(seed);
        std::uniform_real_distribution<double> number(-largest, largest);
        std::vector<T> values(this->size());
        std::generate(values.begin(), values.end(), [&] { return rounded<T>(number(random)); });
        this->put(0, values);
    }

    Doubles numbers() const {
        const std::vector<T> values = this->elements();
        Doubles all(values.size());
        std::transform(values.begin(), values.end(), all.begin(), [](T x) { return to_double(x); });
        return all;
    }

    void append_to(std::vector<std::byte>& bytes) const {
        const std::vector<T> values = this->elements();
        const auto* const begin = reinterpret_cast<const std::byte*>(values.data());
        bytes.insert(bytes.end(), begin, begin + values.size() * sizeof(T));
    }
};

template <class T>
struct Problem {
    /// Causal without lengths; with these, each query sees that many keys of its sample.
    explicit Problem(const Sizes& of, double largest = 2, std::vector<std::int32_t> keys_seen = {})
        : sizes(of),
          lengths(std::move(keys_seen)),
          lengths_on_device(lengths),
          qkv(of.rows() * of.qkv_width()),
          dcontext(of.rows() * of.width()),
          context(of.rows() * of.width()),
          log_sums(of.rows() * std::size_t(of.heads)),
          scratch(std::size_t(attention_backward_scratch(of.shape()))),
          dqkv(of.rows() * of.qkv_width()) {
        qkv.fill(largest, 1);
        dcontext.fill(1, 2);
    }

    AttentionShape shape() const {
        AttentionShape made = sizes.shape();
        made.padded_keys = lengths.empty() ? 0 : sizes.positions;
        return made;
    }

    AttentionInputs inputs() const {
        AttentionInputs made = inputs_in_one(real_of<T>, shape(), qkv.data());
        made.lengths = lengths.empty() ? nullptr : lengths_on_device.data();
        return made;
    }

    void forward() {
        ASSERT_EQ(attention_forward(
                      real_of<T>, shape(), inputs(), context.data(), log_sums.data(), nullptr),
                  cudaSuccess);
        context.expect_guarded();
        log_sums.expect_guarded();
    }

    void backward() {
        ASSERT_EQ(attention_backward(real_of<T>,
                                     shape(),
                                     inputs(),
                                     context.data(),
                                     log_sums.data(),
                                     dcontext.data(),
                                     gradients_in_one(real_of<T>, shape(), dqkv.data()),
                                     scratch.data(),
                                     nullptr),
                  cudaSuccess);
        dqkv.expect_guarded();
        scratch.expect_guarded();
    }

    /// Everything that was written.
    std::vector<std::byte> bytes() const {
        std::vector<std::byte> all;
        context.append_to(all);
        log_sums.append_to(all);
        scratch.append_to(all);
        dqkv.append_to(all);
        return all;
    }

    Sizes sizes;
    std::vector<std::int32_t> lengths;
    DeviceArray<std::int32_t> lengths_on_device;
    Buffer<T> qkv;
    Buffer<T> dcontext;
    Buffer<T> context;
    Buffer<float> log_sums;
    Buffer<float> scratch;
    Buffer<T> dqkv;
};

template <class T>
Problem<T> both_ways(const Sizes& sizes,
                     double largest = 2,
                     std::vector<std::int32_t> lengths = {}) {
    Problem<T> run(sizes, largest, std::move(lengths));
    run.forward();
    run.backward();
    return run;
}

template <class T>
void expect_exact(const Problem<T>& run, double tolerance) {
    const Exact expected = exact(run.sizes, run.qkv.numbers(), run.dcontext.numbers(), run.lengths);
    EXPECT_LE(relative_error(run.context.numbers(), expected.context), tolerance);
    EXPECT_LE(relative_error(run.log_sums.numbers(), expected.log_sums), fp32_tolerance);
    EXPECT_LE(relative_error(run.dqkv.numbers(), expected.dqkv), tolerance);
    if (run.sizes.positions > 1) {  // dQ and dK of a single position are 0
        for (std::size_t part = 0; part < 3; ++part) {
            EXPECT_LE(relative_error(part_of(run.dqkv.numbers(), run.sizes, part),
                                     part_of(expected.dqkv, run.sizes, part)),
                      tolerance)
                << "part " << part;
        }
    }
}

TEST(AttentionOracle, GradientsAreTheSlopesOfTheForward) {
    const Sizes sizes{2, 4, 2, 2, 3};
    const Doubles qkv = Problem<float>(sizes).qkv.numbers();
    const Doubles dcontext = Problem<float>(sizes).dcontext.numbers();
    const Doubles dqkv = exact(sizes, qkv, dcontext).dqkv;
    const auto loss = [&](std::size_t i, double step) {
        Doubles moved = qkv;
        moved[i] += step;
        const Doubles context = exact(sizes, moved, dcontext).context;
        return dot(context.data(), dcontext.data(), static_cast<int>(context.size()));
    };
    for (std::size_t i = 0; i < qkv.size(); ++i) {
        EXPECT_NEAR(dqkv[i], (loss(i, 1e-5) - loss(i, -1e-5)) / 2e-5, 1e-8);
    }
}

// ------------------------------------------------------------------------------------------------
// The kernels
// ------------------------------------------------------------------------------------------------

class CudaAttention : public ::testing::TestWithParam<Sizes> {
  protected:
    void SetUp() override { set_order(order_count() - 1); }
    void TearDown() override { set_order(0); }
};

TEST_P(CudaAttention, InFp32AgreesWithTheFormulas) {
    expect_exact(both_ways<float>(GetParam()), fp32_tolerance);
}

TEST_P(CudaAttention, InBf16AgreesWithTheFormulas) {
    expect_exact(both_ways<Bf16>(GetParam()), bf16_tolerance);
}

// Every size with every edge of the tiles of 16, 32, 64 and 128.
INSTANTIATE_TEST_SUITE_P(Shapes,
                         CudaAttention,
                         ::testing::Values(Sizes{2, 1, 3, 3, 8},
                                           Sizes{1, 7, 2, 2, 8},
                                           Sizes{1, 16, 3, 3, 8},
                                           Sizes{2, 33, 1, 1, 8},
                                           Sizes{1, 64, 1, 1, 8},
                                           Sizes{1, 100, 2, 2, 8},
                                           Sizes{1, 129, 1, 1, 8},
                                           Sizes{1, 1, 2, 2, 16},
                                           Sizes{2, 7, 3, 3, 16},
                                           Sizes{1, 16, 1, 1, 16},
                                           Sizes{1, 33, 2, 2, 16},
                                           Sizes{1, 64, 1, 1, 16},
                                           Sizes{1, 100, 1, 1, 16},
                                           Sizes{1, 129, 1, 1, 16},
                                           Sizes{1, 1, 1, 1, 64},
                                           Sizes{1, 7, 1, 1, 64},
                                           Sizes{1, 16, 2, 2, 64},
                                           Sizes{2, 33, 1, 1, 64},
                                           Sizes{1, 64, 1, 1, 64},
                                           Sizes{1, 100, 1, 1, 64},
                                           Sizes{1, 129, 2, 2, 64},
                                           Sizes{2, 1, 1, 1, 128},
                                           Sizes{1, 7, 2, 2, 128},
                                           Sizes{1, 16, 1, 1, 128},
                                           Sizes{1, 33, 3, 3, 128},
                                           Sizes{1, 64, 1, 1, 128},
                                           Sizes{1, 100, 1, 1, 128},
                                           Sizes{1, 129, 1, 1, 128},
                                           Sizes{1, 200, 1, 1, 32},
                                           Sizes{1, 40, 1, 1, 96},
                                           Sizes{1, 70, 1, 1, 80},
                                           Sizes{1, 20, 1, 1, 200},
                                           Sizes{1, 70, 1, 1, 256}));

// Groups of 2 and of 4 heads, and one of all, on both paths and with tiles that are not full.
INSTANTIATE_TEST_SUITE_P(Groups,
                         CudaAttention,
                         ::testing::Values(Sizes{2, 33, 4, 2, 8},
                                           Sizes{1, 100, 4, 1, 8},
                                           Sizes{2, 7, 4, 2, 16},
                                           Sizes{2, 129, 4, 1, 16},
                                           Sizes{1, 1, 4, 2, 64},
                                           Sizes{2, 33, 4, 2, 64},
                                           Sizes{1, 129, 4, 1, 64},
                                           Sizes{1, 100, 2, 1, 128},
                                           Sizes{1, 33, 8, 2, 128},
                                           Sizes{1, 70, 3, 1, 80},
                                           Sizes{1, 70, 2, 1, 256}));

/// Each sample sees as many keys as its sequence has, or fewer: 1, a part of a tile, whole tiles.
TEST(CudaAttentionLengths, SayWhichKeysAreSeen) {
    struct Case {
        Sizes sizes;
        std::vector<std::int32_t> lengths;
    };
    for (const auto& [sizes, lengths] : {Case{{3, 7, 2, 2, 8}, {1, 3, 7}},
                                         Case{{2, 130, 2, 2, 16}, {65, 128}},
                                         Case{{2, 70, 4, 2, 64}, {70, 33}},
                                         Case{{1, 200, 2, 1, 32}, {64}},
                                         Case{{1, 100, 2, 1, 128}, {90}},
                                         Case{{1, 70, 3, 1, 80}, {41}},
                                         Case{{1, 40, 1, 1, 256}, {9}}}) {
        SCOPED_TRACE(::testing::Message() << sizes);
        expect_exact(both_ways<float>(sizes, 2, lengths), fp32_tolerance);
        expect_exact(both_ways<Bf16>(sizes, 2, lengths), bf16_tolerance);
    }
}

/// Bit by bit, of matrices as numbers.
bool same_columns(const Doubles& a, const Sizes& of_a, const Doubles& b, const Sizes& of_b) {
    return part_of(a, of_a, 0) == part_of(b, of_b, 0);
}

template <class T>
void expect_bits_of_repeated_keys(const Sizes& sizes) {
    const Problem<T> grouped = both_ways<T>(sizes);
    Sizes own = sizes;
    own.key_value_heads = own.heads;
    Problem<T> repeated(own);
    const std::vector<T> from = grouped.qkv.elements();
    std::vector<T> to;
    const auto size = static_cast<std::ptrdiff_t>(sizes.head_size);
    for (std::size_t row = 0; row < sizes.rows(); ++row) {
        const auto begin = from.begin() + static_cast<std::ptrdiff_t>(row * sizes.qkv_width());
        to.insert(to.end(), begin, begin + sizes.heads * size);
        for (const int part : {0, 1}) {
            for (int head = 0; head < sizes.heads; ++head) {
                const int of_keys = head / (sizes.heads / sizes.key_value_heads);
                const auto key =
                    begin + (sizes.heads + part * sizes.key_value_heads + of_keys) * size;
                to.insert(to.end(), key, key + size);
            }
        }
    }
    repeated.qkv.put(0, to);
    repeated.forward();
    repeated.backward();
    EXPECT_EQ(repeated.context.numbers(), grouped.context.numbers());
    EXPECT_EQ(repeated.log_sums.numbers(), grouped.log_sums.numbers());
    EXPECT_TRUE(same_columns(repeated.dqkv.numbers(), own, grouped.dqkv.numbers(), sizes)) << "dQ";
}

TEST(CudaAttentionGroups, ReadTheirKeysAsIfEachHeadHadThem) {
    for (const Sizes& sizes :
         {Sizes{2, 40, 4, 2, 8}, Sizes{2, 70, 4, 2, 64}, Sizes{1, 40, 3, 1, 128}}) {
        expect_bits_of_repeated_keys<float>(sizes);
        expect_bits_of_repeated_keys<Bf16>(sizes);
    }
}

class CudaAttentionOrders : public ::testing::TestWithParam<Sizes> {};

TEST_P(CudaAttentionOrders, DoNotShow) {
    in_every_order([] { return both_ways<float>(GetParam()).bytes(); });
    in_every_order([] { return both_ways<Bf16>(GetParam()).bytes(); });
}

// Tiles of columns come into each of the two stages of shared memory again and again.
INSTANTIATE_TEST_SUITE_P(Shapes,
                         CudaAttentionOrders,
                         ::testing::Values(Sizes{2, 33, 2, 2, 8},
                                           Sizes{1, 200, 1, 1, 16},
                                           Sizes{1, 129, 1, 1, 64},
                                           Sizes{1, 100, 1, 1, 128},
                                           Sizes{1, 65, 1, 1, 200},
                                           Sizes{1, 70, 4, 2, 8},
                                           Sizes{1, 129, 4, 2, 16},
                                           Sizes{1, 129, 2, 1, 64},
                                           Sizes{1, 100, 4, 1, 128}));

// 20 times the input is 400 times the score: up to 1500 here, where exp without its largest
// subtracted is infinite. An error of 1500 * 6e-8 in a score is one of 1e-4 in its exponential.
TEST(CudaAttentionScores, MayBeLarge) {
    expect_exact(both_ways<float>({1, 70, 1, 1, 32}, 20), 1e-3);
    const Problem<Bf16> run = both_ways<Bf16>({1, 70, 1, 1, 32}, 20);
    const Exact expected = exact(run.sizes, run.qkv.numbers(), run.dcontext.numbers());
    EXPECT_LE(relative_error(run.context.numbers(), expected.context), bf16_tolerance);
}

TEST(CudaAttentionAlignment, DecidesThePathNotTheResult) {
    const Sizes sizes{1, 33, 1, 1, 64};
    const Problem<Bf16> aligned = both_ways<Bf16>(sizes);
    Problem<Bf16> moved(sizes);
    Buffer<Bf16> qkv(moved.qkv.size() + 1);
    Buffer<Bf16> dqkv(moved.qkv.size() + 1);
    qkv.put(1, aligned.qkv.elements());
    const AttentionShape shape = sizes.shape();
    const AttentionInputs inputs = inputs_in_one(Real::BF16, shape, qkv.data() + 1);
    ASSERT_EQ(attention_forward(
                  Real::BF16, shape, inputs, moved.context.data(), moved.log_sums.data(), nullptr),
              cudaSuccess);
    ASSERT_EQ(attention_backward(Real::BF16,
                                 shape,
                                 inputs,
                                 moved.context.data(),
                                 moved.log_sums.data(),
                                 moved.dcontext.data(),
                                 gradients_in_one(Real::BF16, shape, dqkv.data() + 1),
                                 moved.scratch.data(),
                                 nullptr),
              cudaSuccess);
    moved.dqkv.put(0, dqkv.elements(1, moved.dqkv.size()));
    expect_exact(moved, bf16_tolerance);
}

// ------------------------------------------------------------------------------------------------
// Causality
// ------------------------------------------------------------------------------------------------

constexpr std::size_t changed_position = 70;

/// Adds 1 to a position's columns of the only sample.
template <class T>
void change(Buffer<T>& matrix, std::size_t columns) {
    std::vector<T> row = matrix.elements(changed_position * columns, columns);
    std::transform(
        row.begin(), row.end(), row.begin(), [](T x) { return rounded<T>(to_double(x) + 1); });
    matrix.put(changed_position * columns, row);
}

/// Rows and columns of a matrix, each from a first one up to a last one that is left out.
struct Region {
    std::size_t matrix_columns;
    std::size_t begin_row;
    std::size_t end_row;
    std::size_t begin_column;
    std::size_t end_column;
};

/// Bit by bit.
template <class T>
bool same(const Buffer<T>& first, const Buffer<T>& second, const Region& region) {
    const std::vector<T> a = first.elements();
    const std::vector<T> b = second.elements();
    const std::size_t bytes = (region.end_column - region.begin_column) * sizeof(T);
    for (std::size_t row = region.begin_row; row < region.end_row; ++row) {
        const std::size_t at = row * region.matrix_columns + region.begin_column;
        if (std::memcmp(a.data() + at, b.data() + at, bytes) != 0) {
            return false;
        }
    }
    return true;
}

template <class T>
class CudaAttentionCausality : public ::testing::Test {};
using RealTypes = ::testing::Types<float, Bf16>;
TYPED_TEST_SUITE(CudaAttentionCausality, RealTypes);

TYPED_TEST(CudaAttentionCausality, LaterPositionsChangeNoBitOfEarlierRows) {
    const Sizes sizes{1, 100, 1, 1, 64};
    const std::size_t width = sizes.width();
    const Problem<TypeParam> before = both_ways<TypeParam>(sizes);
    Problem<TypeParam> after(sizes);
    change(after.qkv, 3 * width);
    change(after.dcontext, width);
    after.forward();
    after.backward();

    constexpr std::size_t p = changed_position;
    EXPECT_TRUE(same(before.context, after.context, {width, 0, p, 0, width}));
    EXPECT_TRUE(same(before.log_sums, after.log_sums, {1, 0, p, 0, 1}));
    EXPECT_TRUE(same(before.dqkv, after.dqkv, {3 * width, 0, p, 0, width})) << "dQ";
    EXPECT_FALSE(same(before.context, after.context, {width, p, p + 1, 0, width}));
    EXPECT_FALSE(same(before.dqkv, after.dqkv, {3 * width, p, p + 1, 0, width})) << "dQ";
}

TYPED_TEST(CudaAttentionCausality, EarlierQueriesChangeNoBitOfLaterKeys) {
    const Sizes sizes{1, 100, 1, 1, 64};
    const std::size_t width = sizes.width();
    const Problem<TypeParam> before = both_ways<TypeParam>(sizes);
    Problem<TypeParam> after = before;
    change(after.dcontext, width);
    after.backward();

    constexpr std::size_t p = changed_position;
    EXPECT_TRUE(same(before.dqkv, after.dqkv, {3 * width, p + 1, 100, 0, 3 * width}));
    EXPECT_TRUE(same(before.dqkv, after.dqkv, {3 * width, 0, p, 0, width})) << "dQ";
    EXPECT_FALSE(same(before.dqkv, after.dqkv, {3 * width, 0, 1, width, 2 * width})) << "dK";
    EXPECT_FALSE(same(before.dqkv, after.dqkv, {3 * width, p, p + 1, 2 * width, 3 * width}))
        << "dV";
}

// ------------------------------------------------------------------------------------------------
// Refusals
// ------------------------------------------------------------------------------------------------

cudaError_t forward_of(Real real, const AttentionShape& shape) {
    return attention_forward(real, shape, {}, nullptr, nullptr, nullptr);
}

cudaError_t backward_of(Real real, const AttentionShape& shape) {
    return attention_backward(real, shape, {}, nullptr, nullptr, nullptr, {}, nullptr, nullptr);
}

TEST(CudaAttentionRefusal, NamesAnInvalidValue) {
    constexpr int largest = std::numeric_limits<int>::max();
    for (const AttentionShape& shape : {AttentionShape{1, 4, 3, 2, 64},
                                        AttentionShape{1, 4, 2, 4, 64},
                                        AttentionShape{1, 4, 1, 1, 257},
                                        AttentionShape{1, 4, 0, 1, 64},
                                        AttentionShape{1, 4, 1, 0, 64},
                                        AttentionShape{1, 4, 1, 1, 0},
                                        AttentionShape{-1, 4, 1, 1, 64},
                                        AttentionShape{1, -4, 1, 1, 64},
                                        AttentionShape{1, largest, 1, 1, 64},
                                        AttentionShape{largest, 9, 1, 1, 64}}) {
        for (const Real real : {Real::F32, Real::BF16}) {
            EXPECT_EQ(forward_of(real, shape), cudaErrorInvalidValue);
            EXPECT_EQ(backward_of(real, shape), cudaErrorInvalidValue);
        }
    }
}

TEST(CudaAttentionRefusal, SparesNothingToDo) {
    for (const AttentionShape& shape :
         {AttentionShape{0, 4, 1, 1, 64}, AttentionShape{1, 0, 1, 1, 64}}) {
        EXPECT_EQ(forward_of(Real::BF16, shape), cudaSuccess);
        EXPECT_EQ(backward_of(Real::F32, shape), cudaSuccess);
    }
}

}  // namespace attention_test
}  // namespace pipetwin::cuda
