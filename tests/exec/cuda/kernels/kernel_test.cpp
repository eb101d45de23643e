// SPDX-License-Identifier: Apache-2.0
#include "tests/exec/cuda/kernels/kernel_test.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "exec/base/random.h"

namespace pipetwin::cuda::test {
namespace {

float to_float(float value) {
    return value;
}
float to_float(Bf16 value) {
    return __bfloat162float(value);
}

template <class T>
T from_float(float value) {
    if constexpr (std::is_same_v<T, float>) {
        return value;
    } else {
        return __float2bfloat16(value);
    }
}

}  // namespace

Numbers random_numbers(std::int64_t count, std::uint64_t stream) {
    Numbers numbers(index(count));
    for (std::size_t i = 0; i < numbers.size(); ++i) {
        numbers[i] = static_cast<float>(exec::RandomStream(stream).normal(i));
    }
    return numbers;
}

std::vector<std::int32_t> random_ids(std::int64_t count, std::int64_t below, std::uint64_t stream) {
    std::vector<std::int32_t> ids(index(count));
    for (std::size_t i = 0; i < ids.size(); ++i) {
        ids[i] = static_cast<std::int32_t>(
            exec::RandomStream(stream).below(i, static_cast<std::uint64_t>(below)));
    }
    return ids;
}

Numbers rounded(Real real, Numbers numbers) {
    if (real == Real::BF16) {
        for (float& number : numbers) {
            number = to_float(from_float<Bf16>(number));
        }
    }
    return numbers;
}

Numbers joined(std::initializer_list<Numbers> parts) {
    Numbers all;
    for (const Numbers& part : parts) {
        all.insert(all.end(), part.begin(), part.end());
    }
    return all;
}

std::vector<Numbers> split(const Numbers& numbers, std::initializer_list<std::int64_t> sizes) {
    std::vector<Numbers> parts;
    auto begin = numbers.begin();
    for (const std::int64_t size : sizes) {
        parts.emplace_back(begin, begin + size);
        begin += size;
    }
    EXPECT_EQ(begin, numbers.end());
    return parts;
}

void PrintTo(const Way& way, std::ostream* out) {
    *out << (way.real == Real::F32 ? "F32" : "BF16") << (way.offset == 0 ? "" : "Misaligned");
}

Operand::Array Operand::make(Way way, std::size_t size) {
    if (way.real == Real::F32) {
        return DeviceArray<float>(way.offset + size);
    }
    return DeviceArray<Bf16>(way.offset + size);
}

Operand::Operand(Way way, std::int64_t size)
    : way_(way), size_(index(size)), array_(make(way, size_)) {}

Operand::Operand(Way way, const Numbers& numbers)
    : Operand(way, static_cast<std::int64_t>(numbers.size())) {
    repeat(numbers);
}

void Operand::repeat(const Numbers& numbers) {
    std::visit(
        [&]<class T>(DeviceArray<T>& array) {
            std::vector<T> elements(numbers.size());
            std::transform(numbers.begin(), numbers.end(), elements.begin(), from_float<T>);
            for (std::size_t i = 0; i < size_; i += elements.size()) {
                const std::size_t count = std::min(elements.size(), size_ - i);
                array.put(way_.offset + i, std::span(elements).first(count));
            }
        },
        array_);
}

void* Operand::data() const {
    return std::visit(
        [&](const auto& array) { return static_cast<void*>(array.data() + way_.offset); }, array_);
}

Numbers Operand::numbers(std::size_t first, std::size_t count) const {
    return std::visit(
        [&](const auto& array) {
            Numbers result(count);
            const auto elements = array.elements(way_.offset + first, count);
            std::transform(elements.begin(), elements.end(), result.begin(), [](auto element) {
                return to_float(element);
            });
            return result;
        },
        array_);
}

::testing::AssertionResult close(const Numbers& found, const Numbers& expected, double bound) {
    if (found.size() != expected.size()) {
        return ::testing::AssertionFailure() << found.size() << " against " << expected.size();
    }
    double off_squares = 0;
    double squares = 0;
    for (std::size_t i = 0; i < expected.size(); ++i) {
        const double off = static_cast<double>(found[i]) - static_cast<double>(expected[i]);
        off_squares += off * off;
        squares += static_cast<double>(expected[i]) * static_cast<double>(expected[i]);
    }
    const double mean = std::sqrt(squares / std::max<double>(1, static_cast<double>(found.size())));
    if (!(std::sqrt(off_squares) <= bound * std::sqrt(squares))) {
        return ::testing::AssertionFailure() << fmt::format(
                   "off by {:.3g} of {:.3g}", std::sqrt(off_squares), std::sqrt(squares));
    }
    for (std::size_t i = 0; i < expected.size(); ++i) {
        const double off =
            std::fabs(static_cast<double>(found[i]) - static_cast<double>(expected[i]));
        if (!(off <= bound * std::max(mean, std::fabs(static_cast<double>(expected[i]))))) {
            return ::testing::AssertionFailure()
                   << fmt::format("element {}: {:.9g} against {:.9g}", i, found[i], expected[i]);
        }
    }
    return ::testing::AssertionSuccess();
}

std::string Shape::text() const {
    return fmt::format("({}, {})", rows, width);
}

std::span<const Shape> row_shapes() {
    static const std::vector<Shape> shapes = {{1, 1},
                                              {1, 8},
                                              {2, 7},
                                              {17, 33},
                                              {9, 64},
                                              {3, 776},
                                              {2, 2048},
                                              {2, 2049},
                                              {1, 2056},
                                              {2, 4104}};
    return shapes;
}

std::span<const Shape> sum_shapes() {
    static const std::vector<Shape> shapes = {
        {1, 1},
        {1, 8},
        {31, 7},
        {33, 40},
        {70, 264},
        {129, 33},
        {260, 3},
        {3, 776},
        {8193, 8},
        {8260, 3}};  // more than 8192 rows are added slice by slice
    return shapes;
}

}  // namespace pipetwin::cuda::test
