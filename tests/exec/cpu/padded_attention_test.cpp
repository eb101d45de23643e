// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <thread>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/base/as_index.h"
#include "exec/base/random.h"
#include "exec/cpu/products/product_scratch.h"
#include "exec/device/device.h"
#include "exec/device/kernels.h"

namespace pipetwin::exec {
namespace padded_attention_test {

using ::testing::Each;

const NumberFormat doubles(DType::F64);

/// Numbers of an attention in fp64: queries in the columns behind the first `q_first` of their
/// matrix, keys and values likewise.
struct Problem {
    PaddedAttentionShape shape;
    std::vector<std::int32_t> lengths;
    std::int64_t q_first = 0;
    std::int64_t k_first = 0;
    std::vector<double> q;
    std::vector<double> k;
    std::vector<double> dcontext;

    std::int64_t q_columns() const { return q_first + shape.width() + 1; }
    std::int64_t k_columns() const { return k_first + 2 * shape.width() + 1; }
    std::int64_t query_rows() const { return std::int64_t{shape.samples} * shape.positions; }
    std::int64_t key_rows() const { return std::int64_t{shape.samples} * shape.key_positions; }
};

std::vector<double> random_numbers(std::int64_t count, std::uint64_t seed) {
    const RandomStream stream(seed);
    std::vector<double> numbers(static_cast<std::size_t>(count));
    for (std::size_t i = 0; i < numbers.size(); ++i) {
        numbers[i] = stream.normal(i);
    }
    return numbers;
}

Problem problem(const PaddedAttentionShape& shape, std::vector<std::int32_t> lengths) {
    Problem p{.shape = shape,
              .lengths = std::move(lengths),
              .q_first = 2,
              .k_first = 3,
              .q = {},
              .k = {},
              .dcontext = {}};
    p.q = random_numbers(p.query_rows() * p.q_columns(), 1);
    p.k = random_numbers(p.key_rows() * p.k_columns(), 2);
    p.dcontext = random_numbers(p.query_rows() * shape.width(), 3);
    return p;
}

View view(std::vector<double>& numbers, std::int64_t columns) {
    return {numbers.data(), DType::F64, std::ssize(numbers) / columns, columns};
}

ConstView lengths_of(const Problem& p) {
    return {p.lengths.data(), DType::I32, std::ssize(p.lengths), 1};
}

/// softmax(Q K^T / sqrt(head)) V by its formula, sum by sum.
std::vector<double> context_by_formula(const Problem& p) {
    const PaddedAttentionShape& s = p.shape;
    std::vector<double> context(static_cast<std::size_t>(p.query_rows() * s.width()));
    const auto query = [&](std::int64_t row, std::int64_t column) {
        return p.q[static_cast<std::size_t>(row * p.q_columns() + p.q_first + column)];
    };
    const auto key = [&](std::int64_t row, std::int64_t column) {
        return p.k[static_cast<std::size_t>(row * p.k_columns() + p.k_first + column)];
    };
    for (std::int64_t row = 0; row < p.query_rows(); ++row) {
        const std::int64_t sample = row / s.positions;
        for (std::int64_t head = 0; head < s.heads; ++head) {
            std::vector<double> weights;
            for (std::int64_t j = 0; j < p.lengths[static_cast<std::size_t>(sample)]; ++j) {
                double score = 0;
                for (std::int64_t c = head * s.head_size; c < (head + 1) * s.head_size; ++c) {
                    score += query(row, c) * key(sample * s.key_positions + j, c);
                }
                weights.push_back(std::exp(score / std::sqrt(s.head_size)));
            }
            const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
            for (std::int64_t c = head * s.head_size; c < (head + 1) * s.head_size; ++c) {
                double mean = 0;
                for (std::size_t j = 0; j < weights.size(); ++j) {
                    mean +=
                        weights[j] / sum *
                        key(sample * s.key_positions + static_cast<std::int64_t>(j), s.width() + c);
                }
                context[static_cast<std::size_t>(row * s.width() + c)] = mean;
            }
        }
    }
    return context;
}

std::vector<double> probabilities_for(const Problem& p) {
    return std::vector<double>(static_cast<std::size_t>(p.query_rows() * p.shape.heads) *
                               static_cast<std::size_t>(p.shape.key_positions));
}

std::vector<double> context_of(Problem& p, std::vector<double>& probabilities) {
    std::vector<double> context(static_cast<std::size_t>(p.query_rows() * p.shape.width()));
    cpu_kernels().padded_attention_forward(p.shape,
                                           {view(p.q, p.q_columns()), p.q_first},
                                           {view(p.k, p.k_columns()), p.k_first},
                                           lengths_of(p),
                                           view(probabilities, p.shape.key_positions),
                                           view(context, p.shape.width()));
    return context;
}

/// Puts the gradients into p.q and p.k.
void turn_into_gradients(Problem& p, std::vector<double>& probabilities) {
    std::vector<std::byte> scratch(
        static_cast<std::size_t>(padded_attention_scratch(p.shape, doubles).count));
    cpu_kernels().padded_attention_backward(p.shape,
                                            view(probabilities, p.shape.key_positions),
                                            {},
                                            view(p.dcontext, p.shape.width()),
                                            lengths_of(p),
                                            {view(p.q, p.q_columns()), p.q_first},
                                            {view(p.k, p.k_columns()), p.k_first},
                                            scratch.data());
}

double largest_difference(const std::vector<double>& a, const std::vector<double>& b) {
    double largest = 0;
    for (std::size_t i = 0; i < a.size(); ++i) {
        largest = std::max(largest, std::abs(a[i] - b[i]));
    }
    return largest;
}

/// The loss whose gradient by the context is `dcontext`.
double loss_of(const Problem& p) {
    const std::vector<double> context = context_by_formula(p);
    return std::inner_product(context.begin(), context.end(), p.dcontext.begin(), 0.0);
}

std::vector<Problem> problems() {
    return {
        problem({.samples = 1, .positions = 1, .key_positions = 1, .heads = 1, .head_size = 1},
                {1}),
        problem({.samples = 2, .positions = 3, .key_positions = 5, .heads = 2, .head_size = 4},
                {5, 2}),
        problem({.samples = 3, .positions = 17, .key_positions = 9, .heads = 3, .head_size = 8},
                {9, 1, 4}),
        problem({.samples = 2, .positions = 33, .key_positions = 40, .heads = 1, .head_size = 16},
                {40, 33})};
}

TEST(PaddedAttention, IsThatOfTheFormulaOverTheKeysOfEachSample) {
    for (Problem& p : problems()) {
        SCOPED_TRACE(fmt::format("{} queries, {} keys", p.shape.positions, p.shape.key_positions));
        std::vector<double> probabilities = probabilities_for(p);
        EXPECT_LT(largest_difference(context_of(p, probabilities), context_by_formula(p)), 1e-13);
    }
}

TEST(PaddedAttention, HasTheGradientsOfFiniteDifferences) {
    constexpr double step = 1e-5;
    for (const Problem& whole : problems()) {
        Problem p = whole;
        std::vector<double> probabilities = probabilities_for(p);
        context_of(p, probabilities);
        turn_into_gradients(p, probabilities);
        const auto check = [&](std::vector<double> Problem::*numbers,
                               std::int64_t columns,
                               std::int64_t first,
                               std::int64_t count) {
            Problem moved = whole;
            std::vector<double>& all = moved.*numbers;
            const std::size_t every = std::max<std::size_t>(1, all.size() / 60);
            for (std::size_t i = 0; i < all.size(); i += every) {
                const auto column = static_cast<std::int64_t>(i) % columns;
                if (column < first || column >= first + count) {
                    EXPECT_EQ((p.*numbers)[i], (whole.*numbers)[i]) << "another column";
                    continue;
                }
                const double before = all[i];
                all[i] = before + step;
                const double above = loss_of(moved);
                all[i] = before - step;
                const double below = loss_of(moved);
                all[i] = before;
                EXPECT_NEAR((p.*numbers)[i], (above - below) / (2 * step), 1e-8) << i;
            }
        };
        check(&Problem::q, p.q_columns(), p.q_first, p.shape.width());
        check(&Problem::k, p.k_columns(), p.k_first, 2 * p.shape.width());
    }
}

// What stands at padding, NaN too, changes no bit, and gets no gradient.
TEST(PaddedAttention, ReadsNoPadding) {
    Problem p = problem(
        {.samples = 2, .positions = 6, .key_positions = 7, .heads = 2, .head_size = 4}, {3, 6});
    Problem other = p;
    std::vector<double*> padding;
    for (std::int64_t sample = 0; sample < 2; ++sample) {
        for (std::int64_t j = p.lengths[static_cast<std::size_t>(sample)]; j < 7; ++j) {
            for (std::int64_t c = 0; c < 2 * p.shape.width(); ++c) {
                padding.push_back(&other.k[static_cast<std::size_t>(
                    (sample * 7 + j) * p.k_columns() + p.k_first + c)]);
            }
        }
    }
    for (double* const number : padding) {
        *number = std::nan("");
    }
    std::vector<double> probabilities = probabilities_for(p);
    std::vector<double> of_other = probabilities;
    EXPECT_EQ(context_of(other, of_other), context_of(p, probabilities));
    turn_into_gradients(p, probabilities);
    turn_into_gradients(other, of_other);
    EXPECT_EQ(other.q, p.q);
    EXPECT_EQ(other.k, p.k);
    std::vector<double> at_padding;
    std::ranges::transform(
        padding, std::back_inserter(at_padding), [](const double* n) { return *n; });
    EXPECT_THAT(at_padding, Each(0.0));
}

// A sample with more room for padding has the bits that it has with less.
TEST(PaddedAttention, HasTheBitsOfASampleWithoutPadding) {
    constexpr int heads = 2;
    constexpr int size = 4;
    constexpr int length = 5;
    const auto with_room = [&](int room) {
        Problem p = problem({.samples = 1,
                             .positions = 3,
                             .key_positions = length + room,
                             .heads = heads,
                             .head_size = size},
                            {length});
        std::vector<double> probabilities = probabilities_for(p);
        std::vector<double> result = context_of(p, probabilities);
        turn_into_gradients(p, probabilities);
        result.insert(result.end(), p.q.begin(), p.q.end());
        result.insert(result.end(), p.k.begin(), p.k.begin() + length * p.k_columns());
        return result;
    };
    const std::vector<double> without = with_room(0);
    for (const int room : {1, 7, 20}) {
        EXPECT_EQ(with_room(room), without) << room;
    }
}

/// Scores are not rounded to half precision; those of one head lie in scratch memory at a time.
TEST(PaddedAttention, HasScratchForTheScoresOfOneHead) {
    const PaddedAttentionShape shape{
        .samples = 1, .positions = 96, .key_positions = 96, .heads = 2, .head_size = 16};
    std::vector<std::uint16_t> numbers(as_index(std::int64_t{96} * 3 * shape.width()));
    std::vector<std::uint16_t> softmax(as_index(std::int64_t{2} * 96 * 96));
    std::vector<std::uint16_t> context(as_index(std::int64_t{96} * shape.width()));
    const std::vector<std::int32_t> lengths{96};
    const ConstView qkv(numbers.data(), DType::BF16, 96, 3 * shape.width());
    Bytes held;
    std::thread([&] {  // which has no scratch of other tests
        cpu_kernels().padded_attention_forward(shape,
                                               {qkv, 0},
                                               {qkv, shape.width()},
                                               ConstView(lengths.data(), DType::I32, 1, 1),
                                               View(softmax.data(), DType::BF16, 2 * 96, 96),
                                               View(context.data(), DType::BF16, 96, 32));
        held = product_scratch_held();
    })
        .join();
    EXPECT_GE(held, Bytes{96 * 96 * 4});
    EXPECT_LT(held, Bytes{4 << 20}) << "with the panels of products";
}

}  // namespace padded_attention_test
}  // namespace pipetwin::exec
