// SPDX-License-Identifier: Apache-2.0
#include "tests/exec/cuda/module/check_numbers.h"

#include <cmath>
#include <cstdint>
#include <cstring>

#include "exec/cuda/runtime/check.h"

namespace pipetwin::cuda {

std::vector<float> sixteenths(std::size_t size, std::uint32_t seed) {
    std::vector<float> values(size);
    for (float& value : values) {
        seed = seed * 1664525U + 1013904223U;  // Numerical Recipes' "quick and dirty" generator
        value = static_cast<float>(seed >> 26U) / 16 - 2;
    }
    return values;
}

std::vector<float> packed(Real real, const std::vector<float>& values) {
    if (real == Real::F32) {
        return values;
    }
    std::vector<std::uint16_t> halves;
    for (const float value : values) {
        std::uint32_t bits = 0;
        std::memcpy(&bits, &value, sizeof bits);
        halves.push_back(static_cast<std::uint16_t>(bits >> 16U));
    }
    std::vector<float> result((values.size() + 1) / 2);
    std::memcpy(result.data(), halves.data(), halves.size() * sizeof halves[0]);
    return result;
}

std::vector<float> unpacked(Real real, std::size_t size, const std::vector<float>& from) {
    if (real == Real::F32) {
        return from;
    }
    std::vector<float> values(size);
    for (std::size_t i = 0; i < size; ++i) {
        std::uint16_t half = 0;
        std::memcpy(&half, reinterpret_cast<const char*>(from.data()) + 2 * i, sizeof half);
        const std::uint32_t bits = std::uint32_t{half} << 16U;
        std::memcpy(&values[i], &bits, sizeof bits);
    }
    return values;
}

double dot(const float* a, const float* b, std::size_t size) {
    double sum = 0;
    for (std::size_t i = 0; i < size; ++i) {
        sum += static_cast<double>(a[i]) * static_cast<double>(b[i]);
    }
    return sum;
}

void expect_close(const char* what,
                  const std::vector<float>& found,
                  const std::vector<float>& expected,
                  double tolerance) {
    std::vector<float> difference(expected.size());
    for (std::size_t i = 0; i < expected.size(); ++i) {
        difference[i] = found.at(i) - expected[i];
    }
    const double error = std::sqrt(dot(difference.data(), difference.data(), difference.size()) /
                                   dot(expected.data(), expected.data(), expected.size()));
    if (!(error <= tolerance)) {
        throw CudaFailure(std::string(what) + " is wrong by " + std::to_string(error) +
                          " of its norm, " + std::to_string(tolerance) + " is allowed");
    }
}

}  // namespace pipetwin::cuda
