#include "exec/cuda/kernels/attention/padded_attention.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "tests/exec/cuda/kernels/attention_oracle.h"
#include "tests/exec/cuda/kernels/kernel_test.h"

namespace pipetwin::cuda {
namespace padded_attention_test {

using namespace test;  // NOLINT(google-build-using-namespace): the tests' own words

class CudaPaddedAttention : public KernelTest {};
INSTANTIATE_TEST_SUITE_P(Ways,
                         CudaPaddedAttention,
                         every_way(),
                         ::testing::PrintToStringParamName());

/// Other columns before and behind those of queries, and of keys and values.
constexpr std::int64_t q_first = 2;
constexpr std::int64_t k_first = 3;

struct Case {
    PaddedAttentionShape shape{};
    std::vector<std::int32_t> lengths;

    std::string text() const {
        return fmt::format("{} samples, {} queries, {} keys, {} heads of {}",
                           shape.samples,
                           shape.positions,
                           shape.key_positions,
                           shape.heads,
                           shape.head_size);
    }
    std::int64_t query_rows() const { return shape.samples * shape.positions; }
    std::int64_t key_rows() const { return shape.samples * shape.key_positions; }
    std::int64_t q_columns() const { return q_first + shape.width() + 1; }
    std::int64_t k_columns() const { return k_first + 2 * shape.width() + 1; }
    exec::PaddedAttentionShape of_cpu() const {
        return {.samples = static_cast<int>(shape.samples),
                .positions = static_cast<int>(shape.positions),
                .key_positions = static_cast<int>(shape.key_positions),
                .heads = static_cast<int>(shape.heads),
                .head_size = static_cast<int>(shape.head_size)};
    }
};

/// Every length of a sequence; as many keys as lanes of a warp, and one more; more queries than
/// warps of a block; heads of one number, of odd sizes, and wider than a warp.
std::vector<Case> cases() {
    return {{{1, 1, 1, 1, 1}, {1}},
            {{5, 3, 5, 2, 4}, {1, 2, 3, 4, 5}},
            {{3, 17, 9, 3, 7}, {9, 1, 4}},
            {{2, 5, 33, 2, 33}, {33, 32}},
            {{2, 40, 70, 1, 64}, {70, 41}},
            {{1, 9, 40, 2, 80}, {35}}};
}

struct Inputs {
    Numbers q;  ///< (query rows, q_columns)
    Numbers k;  ///< (key rows, k_columns)
    Numbers dcontext;
};

/// What is written: probabilities without those of padding, context, and the matrices of queries
/// and of keys with the gradients in them.
struct Outputs {
    Numbers probabilities;
    Numbers context;
    Numbers q;
    Numbers k;
};

/// The probabilities with 0 at padded keys, which no kernel writes.
Numbers without_padding(const Case& c, Numbers probabilities) {
    for (std::size_t i = 0; i < probabilities.size(); ++i) {
        const auto at = static_cast<std::int64_t>(i);
        const std::int64_t sample =
            at / (c.shape.heads * c.shape.positions * c.shape.key_positions);
        if (at % c.shape.key_positions >= c.lengths[index(sample)]) {
            probabilities[i] = 0;
        }
    }
    return probabilities;
}

Outputs on_cpu(const Case& c, const Inputs& inputs) {
    const exec::PaddedAttentionShape shape = c.of_cpu();
    Outputs found{.probabilities = Numbers(index(c.shape.scores())),
                  .context = Numbers(inputs.dcontext.size()),
                  .q = inputs.q,
                  .k = inputs.k};
    const exec::View q = view(found.q, c.query_rows(), c.q_columns());
    const exec::View k = view(found.k, c.key_rows(), c.k_columns());
    const exec::View p =
        view(found.probabilities, c.shape.heads * c.query_rows(), c.shape.key_positions);
    cpu().padded_attention_forward(shape,
                                   {q, q_first},
                                   {k, k_first},
                                   view(c.lengths),
                                   p,
                                   view(found.context, c.query_rows(), c.shape.width()));
    std::vector<std::byte> scratch(
        index(exec::padded_attention_scratch(shape, exec::DType::F32).count));
    cpu().padded_attention_backward(shape,
                                    p,
                                    view(inputs.dcontext, c.query_rows(), c.shape.width()),
                                    view(c.lengths),
                                    {q, q_first},
                                    {k, k_first},
                                    scratch.data());
    found.probabilities = without_padding(c, found.probabilities);
    return found;
}

void* moved(void* data, Real real, std::int64_t elements) {
    return static_cast<std::byte*>(data) + elements * (real == Real::F32 ? 4 : 2);
}

/// Forward and backward; the gradients take the places of queries, keys and values.
Outputs on_gpu(const Case& c, Way way, const Inputs& inputs) {
    const Operand q(way, inputs.q);
    const Operand k(way, inputs.k);
    const Operand dcontext(way, inputs.dcontext);
    const DeviceArray<std::int32_t> lengths(c.lengths);
    const Operand probabilities(way, c.shape.scores());
    const Operand context(way, std::ssize(inputs.dcontext));
    const Operand scratch(way, padded_attention_scratch(c.shape));
    void* const first_q = moved(q.data(), way.real, q_first);
    void* const first_k = moved(k.data(), way.real, k_first);
    const PaddedAttention attention{.shape = c.shape,
                                    .q = first_q,
                                    .k = first_k,
                                    .q_stride = c.q_columns(),
                                    .k_stride = c.k_columns(),
                                    .lengths = lengths.data()};
    EXPECT_EQ(padded_attention_forward(
                  way.real, attention, probabilities.data(), context.data(), nullptr),
              cudaSuccess);
    EXPECT_EQ(padded_attention_backward(way.real,
                                        attention,
                                        probabilities.data(),
                                        dcontext.data(),
                                        first_q,
                                        first_k,
                                        scratch.data(),
                                        nullptr),
              cudaSuccess);
    return {.probabilities = without_padding(c, probabilities.numbers()),
            .context = context.numbers(),
            .q = q.numbers(),
            .k = k.numbers()};
}

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

/// Calls f(a number of a key or of a value that is padding).
template <class F>
void for_padding(const Case& c, Numbers& k, const F& f) {
    for (std::int64_t row = 0; row < c.key_rows(); ++row) {
        const std::int64_t sample = row / c.shape.key_positions;
        if (row % c.shape.key_positions < c.lengths[index(sample)]) {
            continue;
        }
        for (std::int64_t column = 0; column < 2 * c.shape.width(); ++column) {
            f(k[index(row * c.k_columns() + k_first + column)]);
        }
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
            .dcontext = rounded(real, random_numbers(c.query_rows() * c.shape.width(), 3))};
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
    expect_near(found.probabilities, expected.probabilities, way, "P");
    expect_near(found.context, expected.context, way, "context");
    const std::int64_t width = c.shape.width();
    const auto gradient_of_q = [&](const Outputs& outputs) {
        return columns_of(outputs.q, c.q_columns(), q_first, width);
    };
    const auto gradient_of_k = [&](const Outputs& outputs, std::int64_t part) {
        return columns_of(outputs.k, c.k_columns(), k_first + part * width, width);
    };
    if (std::any_of(c.lengths.begin(), c.lengths.end(), [](int length) { return length > 1; })) {
        // Those of one key alone are 0.
        expect_near(gradient_of_q(found), gradient_of_q(expected), way, "dQ");
        expect_near(gradient_of_k(found, 0), gradient_of_k(expected, 0), way, "dK");
    }
    expect_near(gradient_of_k(found, 1), gradient_of_k(expected, 1), way, "dV");
}

// Padding holds NaN before, and 0 where its gradients are; other columns of the matrices stay.
TEST_P(CudaPaddedAttention, AndItsGradient) {
    for (const Case& c : cases()) {
        SCOPED_TRACE(c.text());
        Inputs inputs = inputs_of(c, real());
        for_padding(c, inputs.k, [](float& x) { x = std::numeric_limits<float>::quiet_NaN(); });
        const Outputs expected = on_cpu(c, inputs);
        Outputs found;
        run([&] {
            found = on_gpu(c, way(), inputs);
            return joined({found.probabilities, found.context, found.q, found.k});
        });
        expect_near(c, found, expected, way());
        for_padding(c, found.k, [](float x) { EXPECT_EQ(x, 0); });
        for (const std::int64_t column : {std::int64_t{0}, q_first - 1, c.q_columns() - 1}) {
            EXPECT_EQ(columns_of(found.q, c.q_columns(), column, 1),
                      columns_of(inputs.q, c.q_columns(), column, 1));
        }
        for (const std::int64_t column : {std::int64_t{0}, k_first - 1, c.k_columns() - 1}) {
            EXPECT_EQ(columns_of(found.k, c.k_columns(), column, 1),
                      columns_of(inputs.k, c.k_columns(), column, 1));
        }
    }
}

// exp of these scores without their largest subtracted is infinite.
TEST_P(CudaPaddedAttention, OfLargeScores) {
    const Case c{{1, 5, 40, 1, 32}, {37}};
    const Inputs inputs = inputs_of(c, real(), 8);
    const Outputs expected = on_cpu(c, inputs);
    const Outputs found = on_gpu(c, way(), inputs);
    // An error of 500 * 6e-8 in a score is one of 3e-5 in its exponential.
    const double bound = std::max(way().bound(), 1e-3);
    EXPECT_TRUE(close(found.probabilities, expected.probabilities, bound));
    EXPECT_TRUE(close(found.context, expected.context, bound));
}

// Padding behind a sample's keys changes no bit of what is computed with them.
TEST_P(CudaPaddedAttention, HasTheBitsOfASampleWithoutPadding) {
    constexpr std::int32_t length = 35;
    const auto with_room = [&](std::int64_t room) {
        const Case c{{1, 3, length + room, 2, 5}, {length}};
        const Outputs found = on_gpu(c, way(), inputs_of(c, real()));
        Numbers probabilities;
        for (std::int64_t row = 0; row < 2 * 3; ++row) {
            const auto begin = found.probabilities.begin() + row * c.shape.key_positions;
            probabilities.insert(probabilities.end(), begin, begin + length);
        }
        const Numbers of_keys(found.k.begin(), found.k.begin() + length * c.k_columns());
        return joined({probabilities, found.context, found.q, of_keys});
    };
    const Numbers without = with_room(0);
    for (const std::int64_t room : {1, 7, 64}) {
        EXPECT_EQ(with_room(room), without) << room;
    }
}

// Gradients that take no other number's place are the same.
TEST_P(CudaPaddedAttention, PutsGradientsBesideItsOperandsToo) {
    const Case c{{2, 5, 9, 2, 7}, {4, 9}};
    const Inputs inputs = inputs_of(c, real());
    const Outputs expected = on_gpu(c, way(), inputs);
    const Operand q(way(), inputs.q);
    const Operand k(way(), inputs.k);
    const Operand dcontext(way(), inputs.dcontext);
    const DeviceArray<std::int32_t> lengths(c.lengths);
    const Operand probabilities(way(), c.shape.scores());
    const Operand context(way(), std::ssize(inputs.dcontext));
    const Operand scratch(way(), padded_attention_scratch(c.shape));
    const Operand dq(way(), std::ssize(inputs.q));
    const Operand dk(way(), std::ssize(inputs.k));
    const PaddedAttention attention{.shape = c.shape,
                                    .q = moved(q.data(), real(), q_first),
                                    .k = moved(k.data(), real(), k_first),
                                    .q_stride = c.q_columns(),
                                    .k_stride = c.k_columns(),
                                    .lengths = lengths.data()};
    expect_ok(
        padded_attention_forward(real(), attention, probabilities.data(), context.data(), nullptr));
    expect_ok(padded_attention_backward(real(),
                                        attention,
                                        probabilities.data(),
                                        dcontext.data(),
                                        moved(dq.data(), real(), q_first),
                                        moved(dk.data(), real(), k_first),
                                        scratch.data(),
                                        nullptr));
    const std::int64_t width = c.shape.width();
    EXPECT_EQ(columns_of(dq.numbers(), c.q_columns(), q_first, width),
              columns_of(expected.q, c.q_columns(), q_first, width));
    EXPECT_EQ(columns_of(dk.numbers(), c.k_columns(), k_first, 2 * width),
              columns_of(expected.k, c.k_columns(), k_first, 2 * width));
    EXPECT_EQ(q.numbers(), inputs.q);
    EXPECT_EQ(k.numbers(), inputs.k);
}

cudaError_t forward_of(Real real, const PaddedAttentionShape& shape) {
    return padded_attention_forward(real, {.shape = shape}, nullptr, nullptr, nullptr);
}

cudaError_t backward_of(Real real, const PaddedAttentionShape& shape) {
    return padded_attention_backward(
        real, {.shape = shape}, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr);
}

TEST(CudaPaddedAttentionRefusal, NamesAnInvalidValue) {
    constexpr std::int64_t largest = std::numeric_limits<int>::max();
    for (const PaddedAttentionShape& shape : {PaddedAttentionShape{1, 4, 4, 0, 64},
                                              PaddedAttentionShape{1, 4, 4, 1, 0},
                                              PaddedAttentionShape{-1, 4, 4, 1, 64},
                                              PaddedAttentionShape{1, -4, 4, 1, 64},
                                              PaddedAttentionShape{1, 4, -4, 1, 64},
                                              PaddedAttentionShape{largest, 2, 1, 1, 64},
                                              PaddedAttentionShape{largest, 1, 2, 1, 64}}) {
        for (const Real real : {Real::F32, Real::BF16}) {
            EXPECT_EQ(forward_of(real, shape), cudaErrorInvalidValue);
            EXPECT_EQ(backward_of(real, shape), cudaErrorInvalidValue);
        }
    }
}

TEST(CudaPaddedAttentionRefusal, SparesNothingToDo) {
    for (const PaddedAttentionShape& shape :
         {PaddedAttentionShape{0, 4, 4, 1, 64}, PaddedAttentionShape{1, 0, 4, 1, 64}}) {
        EXPECT_EQ(forward_of(Real::BF16, shape), cudaSuccess);
        EXPECT_EQ(backward_of(Real::F32, shape), cudaSuccess);
    }
}

}  // namespace padded_attention_test
}  // namespace pipetwin::cuda
