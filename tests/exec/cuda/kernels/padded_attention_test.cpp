// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <limits>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "exec/cuda/kernels/attention/attention.h"
#include "tests/exec/cuda/kernels/attention_oracle.h"
#include "tests/exec/cuda/kernels/kernel_test.h"

// Attention to padded keys, which lie in a matrix of their own, against the CPU's.
namespace pipetwin::cuda {
namespace padded_attention_test {

using namespace test;  // NOLINT(google-build-using-namespace): the tests' own words

class CudaPaddedAttention : public KernelTest {};
INSTANTIATE_TEST_SUITE_P(Ways,
                         CudaPaddedAttention,
                         every_way(),
                         ::testing::PrintToStringParamName());

/// The shape, with so many columns before and behind what is read and written of each matrix.
struct Case {
    AttentionShape shape{};
    std::vector<std::int32_t> lengths;
    std::int64_t margin = 1;

    std::string text() const {
        return fmt::format("{} samples, {} queries, {} keys, {} heads of {}, {} columns between",
                           shape.samples,
                           shape.positions,
                           shape.padded_keys,
                           shape.heads,
                           shape.head_size,
                           margin);
    }
    std::int64_t query_rows() const { return std::int64_t{shape.samples} * shape.positions; }
    std::int64_t key_rows() const { return std::int64_t{shape.samples} * shape.padded_keys; }
    std::int64_t width() const { return shape.query_width(); }
    std::int64_t q_columns() const { return width() + 2 * margin; }
    std::int64_t k_columns() const { return 2 * width() + 2 * margin; }
    exec::PaddedAttentionShape of_cpu() const {
        return {.samples = shape.samples,
                .positions = shape.positions,
                .key_positions = shape.padded_keys,
                .heads = shape.heads,
                .head_size = shape.head_size};
    }
};

AttentionShape shape_of(int samples, int queries, int keys, int heads, int size) {
    return {.samples = samples,
            .positions = queries,
            .heads = heads,
            .key_value_heads = heads,
            .head_size = size,
            .padded_keys = keys};
}

/// Every length of a sequence; more queries than keys and fewer; tiles that are full, partly and
/// wholly padding; heads of one number and of odd sizes. Margins of 8 let the tensor cores read.
std::vector<Case> cases() {
    return {{shape_of(1, 1, 1, 1, 1), {1}},
            {shape_of(5, 3, 5, 2, 4), {1, 2, 3, 4, 5}},
            {shape_of(3, 17, 9, 3, 7), {9, 1, 4}},
            {shape_of(2, 5, 33, 2, 33), {33, 32}},
            {shape_of(2, 40, 70, 1, 64), {70, 41}, 8},
            {shape_of(1, 9, 40, 2, 80), {35}},
            {shape_of(2, 70, 150, 2, 16), {150, 65}, 8},
            {shape_of(1, 130, 40, 1, 128), {33}, 8},
            {shape_of(2, 33, 200, 1, 32), {200, 67}, 16},
            {shape_of(1, 50, 100, 1, 96), {70}, 8}};
}

struct Inputs {
    Numbers q;  ///< (query rows, q_columns)
    Numbers k;  ///< (key rows, k_columns)
    Numbers dcontext;
};

struct Outputs {
    Numbers context;
    Numbers log_sums;
    Numbers dq;  ///< (query rows, width)
    Numbers dk;  ///< (key rows, width), likewise dv
    Numbers dv;
};

/// Some columns of all rows of a matrix.
Numbers columns_of(const Numbers& matrix,
                   std::int64_t columns,
                   std::int64_t first,
                   std::int64_t count) {
    Numbers part;
    for (std::size_t row = 0; row < matrix.size(); row += index(columns)) {
        const auto begin = matrix.begin() + static_cast<std::ptrdiff_t>(row) + first;
        part.insert(part.end(), begin, begin + count);
    }
    return part;
}

Outputs parts_of(const Case& c, const Numbers& q, const Numbers& k) {
    const std::int64_t width = c.width();
    return {.context = {},
            .log_sums = {},
            .dq = columns_of(q, c.q_columns(), c.margin, width),
            .dk = columns_of(k, c.k_columns(), c.margin, width),
            .dv = columns_of(k, c.k_columns(), c.margin + width, width)};
}

/// log(sum exp) of the scores of each row of each head.
Numbers exact_log_sums(const Case& c, const Inputs& inputs) {
    const AttentionShape& s = c.shape;
    Numbers all;
    for (std::int64_t head = 0; head < std::int64_t{s.samples} * s.heads; ++head) {
        const std::int64_t sample = head / s.heads;
        const std::int64_t column = c.margin + head % s.heads * s.head_size;
        for (std::int64_t t = sample * s.positions; t < (sample + 1) * s.positions; ++t) {
            Doubles scores;
            for (std::int64_t u = 0; u < c.lengths[index(sample)]; ++u) {
                const std::int64_t key = sample * s.padded_keys + u;
                double score = 0;
                for (std::int64_t i = column; i < column + s.head_size; ++i) {
                    score += double{inputs.q[index(t * c.q_columns() + i)]} *
                             double{inputs.k[index(key * c.k_columns() + i)]};
                }
                scores.push_back(score / std::sqrt(s.head_size));
            }
            const double largest = *std::max_element(scores.begin(), scores.end());
            double sum = 0;
            for (const double score : scores) {
                sum += std::exp(score - largest);
            }
            all.push_back(static_cast<float>(largest + std::log(sum)));
        }
    }
    return all;
}

Outputs on_cpu(const Case& c, const Inputs& inputs) {
    const exec::PaddedAttentionShape shape = c.of_cpu();
    Numbers probabilities(index(c.query_rows() * c.shape.heads * c.shape.padded_keys));
    Numbers context(inputs.dcontext.size());
    Numbers q_data = inputs.q;
    Numbers k_data = inputs.k;
    const exec::View q = view(q_data, c.query_rows(), c.q_columns());
    const exec::View k = view(k_data, c.key_rows(), c.k_columns());
    const exec::View p = view(probabilities, c.shape.heads * c.query_rows(), c.shape.padded_keys);
    const exec::View context_view = view(context, c.query_rows(), c.width());
    cpu().padded_attention_forward(
        shape, {q, c.margin}, {k, c.margin}, view(c.lengths), p, context_view);
    std::vector<std::byte> scratch(
        index(exec::padded_attention_scratch(shape, exec::DType::F32).count));
    cpu().padded_attention_backward(shape,
                                    p,
                                    context_view,
                                    view(inputs.dcontext, c.query_rows(), c.width()),
                                    view(c.lengths),
                                    {q, c.margin},
                                    {k, c.margin},
                                    scratch.data());
    Outputs found = parts_of(c, q_data, k_data);
    found.context = context;
    found.log_sums = exact_log_sums(c, inputs);
    return found;
}

void* moved(void* data, Real real, std::int64_t elements) {
    return static_cast<std::byte*>(data) + elements * (real == Real::F32 ? 4 : 2);
}

bool all_are_nan(const Numbers& numbers) {
    return std::all_of(numbers.begin(), numbers.end(), [](float x) { return std::isnan(x); });
}

Outputs on_gpu(const Case& c, Way way, const Inputs& inputs) {
    const Operand q(way, inputs.q);
    const Operand k(way, inputs.k);
    const Operand dcontext(way, inputs.dcontext);
    const DeviceArray<std::int32_t> lengths(c.lengths);
    const Operand context(way, std::ssize(inputs.dcontext));
    const Operand dq(way, std::ssize(inputs.q));
    const Operand dk(way, std::ssize(inputs.k));
    const std::size_t rows = index(attention_backward_scratch(c.shape));
    const DeviceArray<float> log_sums(rows);
    const DeviceArray<float> scratch(rows);
    const AttentionInputs operands{.q = moved(q.data(), way.real, c.margin),
                                   .k = moved(k.data(), way.real, c.margin),
                                   .q_stride = c.q_columns(),
                                   .k_stride = c.k_columns(),
                                   .lengths = lengths.data()};
    const AttentionGradients gradients{.dq = moved(dq.data(), way.real, c.margin),
                                       .dk = moved(dk.data(), way.real, c.margin),
                                       .q_stride = c.q_columns(),
                                       .k_stride = c.k_columns()};
    EXPECT_EQ(
        attention_forward(way.real, c.shape, operands, context.data(), log_sums.data(), nullptr),
        cudaSuccess);
    EXPECT_EQ(attention_backward(way.real,
                                 c.shape,
                                 operands,
                                 context.data(),
                                 log_sums.data(),
                                 dcontext.data(),
                                 gradients,
                                 scratch.data(),
                                 nullptr),
              cudaSuccess);
    const std::int64_t margin = c.margin;
    for (const std::int64_t first : {std::int64_t{0}, c.q_columns() - margin}) {
        EXPECT_TRUE(all_are_nan(columns_of(dq.numbers(), c.q_columns(), first, margin)));
    }
    for (const std::int64_t first : {std::int64_t{0}, c.k_columns() - margin}) {
        EXPECT_TRUE(all_are_nan(columns_of(dk.numbers(), c.k_columns(), first, margin)));
    }
    Outputs found = parts_of(c, dq.numbers(), dk.numbers());
    found.context = context.numbers();
    found.log_sums = log_sums.elements();
    return found;
}

Numbers all_of(const Outputs& outputs) {
    return joined({outputs.context, outputs.log_sums, outputs.dq, outputs.dk, outputs.dv});
}

/// Calls f(the first of the numbers of a row, whether the row is padding) for all keys.
template <class F>
void for_each_key(const Case& c, const F& f) {
    for (std::int64_t row = 0; row < c.key_rows(); ++row) {
        f(row, row % c.shape.padded_keys >= c.lengths[index(row / c.shape.padded_keys)]);
    }
}

Inputs inputs_of(const Case& c, Real real, float largest = 1) {
    const auto random = [=](std::int64_t count, std::uint64_t stream) {
        Numbers numbers = random_numbers(count, stream);
        std::for_each(numbers.begin(), numbers.end(), [=](float& x) { x *= largest; });
        return rounded(real, std::move(numbers));
    };
    return {.q = random(c.query_rows() * c.q_columns(), 1),
            .k = random(c.key_rows() * c.k_columns(), 2),
            .dcontext = rounded(real, random_numbers(c.query_rows() * c.width(), 3))};
}

/// In bf16 by the norm alone: P and dS are rounded by up to 4e-3 each, and their sums may be small.
void expect_near(const Numbers& found, const Numbers& expected, Way way, const char* what) {
    if (way.real == Real::F32) {
        EXPECT_TRUE(close(found, expected, way.bound())) << what;
        return;
    }
    EXPECT_LE(relative_error(Doubles(found.begin(), found.end()),
                             Doubles(expected.begin(), expected.end())),
              way.bound())
        << what;
}

void expect_near(const Case& c, const Outputs& found, const Outputs& expected, Way way) {
    expect_near(found.context, expected.context, way, "context");
    EXPECT_TRUE(close(found.log_sums, expected.log_sums, 1e-5)) << "log sums";
    if (std::any_of(c.lengths.begin(), c.lengths.end(), [](int length) { return length > 1; })) {
        // Those of one key alone are 0.
        expect_near(found.dq, expected.dq, way, "dQ");
        expect_near(found.dk, expected.dk, way, "dK");
    }
    expect_near(found.dv, expected.dv, way, "dV");
}

// Padding holds NaN, and its gradients are 0.
TEST_P(CudaPaddedAttention, AndItsGradient) {
    for (const Case& c : cases()) {
        SCOPED_TRACE(c.text());
        Inputs inputs = inputs_of(c, real());
        for_each_key(c, [&](std::int64_t row, bool is_padding) {
            if (is_padding) {
                std::fill_n(inputs.k.begin() + row * c.k_columns(),
                            c.k_columns(),
                            std::numeric_limits<float>::quiet_NaN());
            }
        });
        const Outputs expected = on_cpu(c, inputs);
        Outputs found;
        run([&] {
            found = on_gpu(c, way(), inputs);
            return all_of(found);
        });
        expect_near(c, found, expected, way());
        for_each_key(c, [&](std::int64_t row, bool is_padding) {
            for (std::int64_t i = row * c.width(); is_padding && i < (row + 1) * c.width(); ++i) {
                EXPECT_EQ(found.dk[index(i)], 0);
                EXPECT_EQ(found.dv[index(i)], 0);
            }
        });
    }
}

// exp of these scores without their largest subtracted is infinite.
TEST_P(CudaPaddedAttention, OfLargeScores) {
    const Case c{shape_of(1, 5, 40, 1, 32), {37}, 8};
    const Inputs inputs = inputs_of(c, real(), 8);
    const Outputs expected = on_cpu(c, inputs);
    const Outputs found = on_gpu(c, way(), inputs);
    // An error of 500 * 6e-8 in a score is one of 3e-5 in its exponential.
    const double bound = std::max(way().bound(), 1e-3);
    EXPECT_TRUE(close(found.context, expected.context, bound));
    EXPECT_TRUE(close(found.log_sums, expected.log_sums, 1e-5));
}

// Padding behind a sample's keys changes no bit of what is computed with them.
TEST_P(CudaPaddedAttention, HasTheBitsOfASampleWithoutPadding) {
    for (const std::int64_t margin : {1, 8}) {
        constexpr std::int32_t length = 35;
        const auto with_room = [&](int room) {
            const Case c{shape_of(1, 3, length + room, 2, 16), {length}, margin};
            Outputs found = on_gpu(c, way(), inputs_of(c, real()));
            found.dk.resize(index(length * c.width()));
            found.dv.resize(index(length * c.width()));
            return all_of(found);
        };
        const Numbers without = with_room(0);
        for (const int room : {1, 7, 64, 200}) {
            EXPECT_EQ(with_room(room), without) << room;
        }
    }
}

TEST_P(CudaPaddedAttention, ClearsPaddingAlone) {
    const Case c{shape_of(2, 3, 9, 2, 5), {4, 9}};
    const Operand dk(way(), std::ssize(inputs_of(c, real()).k));
    const DeviceArray<std::int32_t> lengths(c.lengths);
    const AttentionGradients gradients{.dk = moved(dk.data(), real(), c.margin),
                                       .k_stride = c.k_columns()};
    expect_ok(clear_padding(real(), c.shape, lengths.data(), gradients, nullptr));
    const Numbers numbers = dk.numbers();
    for_each_key(c, [&](std::int64_t row, bool is_padding) {
        for (std::int64_t i = 0; i < c.k_columns(); ++i) {
            const bool inside = i >= c.margin && i < c.k_columns() - c.margin;
            const float x = numbers[index(row * c.k_columns() + i)];
            EXPECT_TRUE(is_padding && inside ? x == 0 : std::isnan(x)) << row << ' ' << i;
        }
    });
}

TEST(CudaPaddedAttentionRefusal, NamesAnInvalidValue) {
    constexpr int largest = std::numeric_limits<int>::max();
    const DeviceArray<std::int32_t> lengths(std::vector<std::int32_t>{1});
    const auto refused = [](const AttentionShape& shape, const AttentionInputs& inputs) {
        for (const Real real : {Real::F32, Real::BF16}) {
            EXPECT_EQ(attention_forward(real, shape, inputs, nullptr, nullptr, nullptr),
                      cudaErrorInvalidValue);
            EXPECT_EQ(attention_backward(
                          real, shape, inputs, nullptr, nullptr, nullptr, {}, nullptr, nullptr),
                      cudaErrorInvalidValue);
        }
    };
    for (const AttentionShape& shape : {shape_of(1, 4, 4, 0, 64),
                                        shape_of(1, 4, 4, 1, 257),
                                        shape_of(-1, 4, 4, 1, 64),
                                        shape_of(1, -4, 4, 1, 64),
                                        shape_of(1, 4, -4, 1, 64),
                                        shape_of(1, 4, largest, 1, 64),
                                        shape_of(largest, 1, 9, 1, 64)}) {
        refused(shape, {.lengths = lengths.data()});
    }
    refused(shape_of(1, 4, 4, 1, 64), {});
    refused({1, 4, 1, 1, 64}, {.lengths = lengths.data()});
    EXPECT_EQ(clear_padding(Real::F32, {1, 4, 1, 1, 64}, lengths.data(), {}, nullptr),
              cudaErrorInvalidValue);
}

}  // namespace padded_attention_test
}  // namespace pipetwin::cuda
