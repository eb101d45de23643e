// SPDX-License-Identifier: Apache-2.0
#include "tests/exec/cuda/kernels/attention_oracle.h"

#include <algorithm>
#include <iterator>

namespace pipetwin::cuda::test {
namespace {

/// One row of one matrix of a head.
template <class T>
T* row_of(std::vector<T>& matrix, std::size_t row, std::size_t columns, std::size_t column) {
    return matrix.data() + row * columns + column;
}

void add(double factor, const double* x, int size, double* y) {
    for (int i = 0; i < size; ++i) {
        y[i] += factor * x[i];
    }
}

double norm(const Doubles& x) {
    double sum = 0;
    for (const double number : x) {
        sum += number * number;
    }
    return std::sqrt(sum);
}

}  // namespace

std::ostream& operator<<(std::ostream& out, const Sizes& sizes) {
    return out << sizes.samples << " samples, " << sizes.positions << " positions, " << sizes.heads
               << " heads in " << sizes.key_value_heads << " groups of size " << sizes.head_size;
}

double dot(const double* a, const double* b, int size) {
    double sum = 0;
    for (int i = 0; i < size; ++i) {
        sum += a[i] * b[i];
    }
    return sum;
}

Exact exact(const Sizes& sizes,
            Doubles qkv,
            Doubles dcontext,
            const std::vector<std::int32_t>& lengths) {
    const std::size_t width = sizes.width();
    const int size = sizes.head_size;
    const double scale = 1 / std::sqrt(size);
    Exact result{Doubles(sizes.rows() * width), {}, Doubles(qkv.size())};
    for (int s = 0; s < sizes.samples; ++s) {
        for (int h = 0; h < sizes.heads; ++h) {
            const std::size_t column = std::size_t(h) * std::size_t(size);
            const auto row = [&](int position) {
                return std::size_t(s) * std::size_t(sizes.positions) + std::size_t(position);
            };
            const auto group = std::size_t(h / (sizes.heads / sizes.key_value_heads));
            const auto part = [&](Doubles& of, int position, std::size_t which) {
                const std::size_t keys =
                    width + (which - 1) * sizes.key_width() + group * std::size_t(size);
                return row_of(of, row(position), sizes.qkv_width(), which == 0 ? column : keys);
            };
            for (int t = 0; t < sizes.positions; ++t) {
                Doubles p;
                Doubles dp;
                const int keys = lengths.empty() ? t + 1 : lengths[std::size_t(s)];
                const double* const dc = row_of(dcontext, row(t), width, column);
                for (int u = 0; u < keys; ++u) {
                    p.push_back(dot(part(qkv, t, 0), part(qkv, u, 1), size) * scale);
                    dp.push_back(dot(dc, part(qkv, u, 2), size));
                }
                const double largest = *std::max_element(p.begin(), p.end());
                double sum = 0;
                for (const double score : p) {
                    sum += std::exp(score - largest);
                }
                const double log_sum = largest + std::log(sum);
                result.log_sums.push_back(log_sum);
                for (double& score : p) {
                    score = std::exp(score - log_sum);
                }
                const double mean = dot(p.data(), dp.data(), keys);
                for (int u = 0; u < keys; ++u) {
                    const double probability = p[std::size_t(u)];
                    const double ds = probability * (dp[std::size_t(u)] - mean) * scale;
                    add(probability,
                        part(qkv, u, 2),
                        size,
                        row_of(result.context, row(t), width, column));
                    add(ds, part(qkv, u, 1), size, part(result.dqkv, t, 0));
                    add(ds, part(qkv, t, 0), size, part(result.dqkv, u, 1));
                    add(probability, dc, size, part(result.dqkv, u, 2));
                }
            }
        }
    }
    return result;
}

double relative_error(const Doubles& found, const Doubles& expected) {
    Doubles difference;
    std::transform(found.begin(),
                   found.end(),
                   expected.begin(),
                   std::back_inserter(difference),
                   [](double a, double b) { return a - b; });
    return norm(difference) / norm(expected);
}

Doubles part_of(const Doubles& qkv, const Sizes& sizes, std::size_t part) {
    Doubles result;
    const std::size_t width = part == 0 ? sizes.width() : sizes.key_width();
    const std::size_t first_column = part == 0 ? 0 : sizes.width() + (part - 1) * width;
    for (std::size_t begin = first_column; begin < qkv.size(); begin += sizes.qkv_width()) {
        const auto first = qkv.begin() + static_cast<std::ptrdiff_t>(begin);
        result.insert(result.end(), first, first + static_cast<std::ptrdiff_t>(width));
    }
    return result;
}

}  // namespace pipetwin::cuda::test
