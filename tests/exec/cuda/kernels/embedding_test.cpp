// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "tests/exec/cuda/kernels/kernel_test.h"

namespace pipetwin::cuda {
namespace embedding_test {

using namespace test;  // NOLINT(google-build-using-namespace): the tests' own words

class CudaEmbedding : public KernelTest {};
INSTANTIATE_TEST_SUITE_P(Ways, CudaEmbedding, every_way(), ::testing::PrintToStringParamName());

struct EmbeddingCase {
    std::int64_t rows = 0;
    std::int64_t positions = 1;
    std::int64_t width = 0;
    std::int64_t vocabulary = 0;
    std::int64_t first = 0;  ///< position that is embedded
    std::int64_t count = 0;  ///< positions that are; 0: all
    double scale = 1;
    std::int64_t first_token = 0;
    std::int64_t held = 0;  ///< rows of the table that are here; 0: all

    /// Rows of the table that is here.
    std::int64_t table() const { return held == 0 ? vocabulary : held; }

    std::string text() const {
        return fmt::format(
            "({}, {}) at {} positions, {} of them from {} on, {} ids times {}, those "
            "from {} on are here",
            rows,
            width,
            positions,
            embedded(),
            first,
            vocabulary,
            scale,
            first_token);
    }
    /// Positions that are embedded.
    std::int64_t embedded() const { return count == 0 ? positions : count; }
    exec::EmbeddingRows of_cpu() const {
        return {.positions = static_cast<int>(positions),
                .first = static_cast<int>(first),
                .count = static_cast<int>(embedded()),
                .scale = scale,
                .first_token = first_token,
                .tokens = table()};
    }
    Embedding of_gpu(const std::int32_t* ids) const {
        return {rows, positions, width, ids, first, embedded(), scale, first_token, table()};
    }
};

/// Few ids for many rows and the reverse, a context that is longer than the samples, both sequences
/// of a sample that has two, a part of the table, and (the last and slowest) more rows than
/// backward looks at in one go. The factor is no power of two, so bits differ where a device does
/// not round its product.
const std::vector<EmbeddingCase> embedding_cases = {{1, 1, 1, 1},
                                                    {6, 3, 8, 4},
                                                    {40, 10, 33, 1000},
                                                    {10, 20, 16, 5},
                                                    {6, 6, 2056, 3},
                                                    {30, 10, 33, 7, 0, 4, 5.7},
                                                    {30, 10, 32, 7, 4, 6, 5.7},
                                                    {40, 10, 33, 100, 0, 0, 1, 25, 50},
                                                    {30, 10, 32, 8, 0, 0, 5.7, 4, 4},
                                                    {1100, 400, 3, 700}};

TEST_P(CudaEmbedding, ForwardIsThatOfTheCpu) {
    for (const EmbeddingCase& c : embedding_cases) {
        SCOPED_TRACE(c.text());
        const std::vector<std::int32_t> ids = random_ids(c.rows, c.vocabulary, 1);
        const Numbers tokens = random(c.table() * c.width, 2);
        const Numbers places = random(c.positions * c.width, 3);
        for (const bool with_places : {true, false}) {
            Numbers expected(index(c.rows * c.width));
            cpu().embedding_forward(
                c.of_cpu(),
                view(ids),
                view(tokens, c.table(), c.width),
                with_places ? view(places, c.positions, c.width) : exec::ConstView(),
                view(expected, c.rows, c.width));
            const Numbers found = run([&] {
                const DeviceArray<std::int32_t> of_ids(ids);
                const Operand of_tokens(way(), tokens);
                const Operand of_places(way(), places);
                Operand y(way(), c.rows * c.width);
                y.repeat({0});
                expect_ok(embedding_forward(real(),
                                            c.of_gpu(of_ids.data()),
                                            of_tokens.data(),
                                            with_places ? of_places.data() : nullptr,
                                            y.data(),
                                            nullptr));
                return y.numbers();
            });
            EXPECT_EQ(found, rounded(real(), expected));
        }
    }
}

// Both add row after row, so the bits are equal.
TEST_P(CudaEmbedding, BackwardIsThatOfTheCpuBitForBit) {
    for (const EmbeddingCase& c : embedding_cases) {
        const bool is_slow = c.rows > 1000;
        if (is_slow && way().offset != 0) {
            continue;
        }
        SCOPED_TRACE(c.text());
        const std::vector<std::int32_t> ids = random_ids(c.rows, c.vocabulary, 1);
        const Numbers dy = random(c.rows * c.width, 2);
        const Numbers before_tokens = random_numbers(c.table() * c.width, 3);
        const Numbers before_places = random_numbers(c.positions * c.width, 4);
        for (const bool with_places : {true, false}) {
            if (is_slow && !with_places) {
                continue;
            }
            Numbers dtokens = before_tokens;
            Numbers dplaces = before_places;
            cpu().embedding_backward(
                c.of_cpu(),
                view(ids),
                view(dy, c.rows, c.width),
                view(dtokens, c.table(), c.width),
                with_places ? view(dplaces, c.positions, c.width) : exec::View());
            const Numbers found = run([&] {
                const DeviceArray<std::int32_t> of_ids(ids);
                const Operand of_dy(way(), dy);
                const DeviceArray<float> to_tokens(before_tokens);
                const DeviceArray<float> to_places(before_places);
                expect_ok(embedding_backward(real(),
                                             c.of_gpu(of_ids.data()),
                                             of_dy.data(),
                                             to_tokens.data(),
                                             with_places ? to_places.data() : nullptr,
                                             nullptr));
                return joined({to_tokens.elements(), to_places.elements()});
            });
            EXPECT_EQ(found, joined({dtokens, dplaces}));
        }
    }
}

TEST(CudaEmbeddingOfNothing, DoesNothing) {
    EXPECT_EQ(embedding_forward(Real::F32, {0, 1, 5}, nullptr, nullptr, nullptr, nullptr),
              cudaSuccess);
    EXPECT_EQ(embedding_backward(Real::F32, {0, 1, 5}, nullptr, nullptr, nullptr, nullptr),
              cudaSuccess);
    const Embedding of_no_position{.rows = 4, .positions = 2, .width = 5, .count = 0};
    EXPECT_EQ(embedding_forward(Real::F32, of_no_position, nullptr, nullptr, nullptr, nullptr),
              cudaSuccess);
    EXPECT_EQ(embedding_backward(Real::F32, of_no_position, nullptr, nullptr, nullptr, nullptr),
              cudaSuccess);
}

}  // namespace embedding_test
}  // namespace pipetwin::cuda
