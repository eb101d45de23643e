// SPDX-License-Identifier: Apache-2.0
#include "exec/base/normal_numbers.h"

#include <bit>
#include <cmath>
#include <cstdint>
#include <numbers>
#include <vector>

#include <gtest/gtest.h>

#include "tests/support/soak.h"

namespace pipetwin::exec {
namespace normal_numbers_test {

/// Element n of the stream by the formula of Box and Muller, with the library's functions.
double by_formula(const RandomStream& stream, std::uint64_t n) {
    const std::uint64_t pair = n - n % 2;
    const double radius = std::sqrt(-2.0 * std::log(1.0 - stream.uniform(pair)));
    const double angle = 2.0 * std::numbers::pi * stream.uniform(pair + 1);
    return radius * (n == pair ? std::cos(angle) : std::sin(angle));
}

template <class Number>
void expect_bits_of_formula(const RandomStream& stream,
                            double scale,
                            std::uint64_t first,
                            std::size_t size) {
    std::vector<Number> numbers(size);
    normal_numbers(stream, scale, first, numbers);
    int wrong = 0;
    for (std::size_t i = 0; i < size; ++i) {
        const auto expected = static_cast<Number>(scale * by_formula(stream, first + i));
        const bool same = std::signbit(numbers[i]) == std::signbit(expected);
        wrong += same && numbers[i] == expected ? 0 : 1;
    }
    EXPECT_EQ(wrong, 0) << "of " << size << " from " << first << ", scale " << scale;
}

TEST(NormalNumbers, HaveTheBitsOfTheFormula) {
    SCOPED_TRACE(tests::seed());
    const RandomStream streams(tests::seed());
    // Scales of GPT's weights, tables and the last product of 24 branches, and of He's.
    const double scales[] = {0.02, 0.02 / std::sqrt(24.0), std::sqrt(2.0 / 576), 1.0};
    for (int turn = 0; turn < tests::soaked(8); ++turn) {
        const RandomStream stream = streams.of(static_cast<std::uint64_t>(turn));
        for (const double scale : scales) {
            expect_bits_of_formula<float>(stream, scale, 0, 100'000);
            expect_bits_of_formula<double>(stream, scale, 0, 1'000);
        }
    }
}

/// A piece may begin and end within a pair, and beyond 2^32 elements.
TEST(NormalNumbers, DependOnTheElementAloneAndNotOnThePieceThatItIsIn) {
    const RandomStream stream = RandomStream(5).of(1);
    for (const std::uint64_t first :
         {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{511}, (std::uint64_t{1} << 40U) + 3}) {
        for (const std::size_t size : {0U, 1U, 2U, 3U, 511U, 512U, 513U, 1025U}) {
            expect_bits_of_formula<float>(stream, 0.02, first, size);
            expect_bits_of_formula<double>(stream, 0.02, first, size);
        }
    }
}

}  // namespace normal_numbers_test
}  // namespace pipetwin::exec
