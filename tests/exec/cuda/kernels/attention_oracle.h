// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <ostream>
#include <vector>

#include "exec/cuda/kernels/attention/attention.h"

/// Attention's formulas in plain loops and double precision.
namespace pipetwin::cuda::test {

using Doubles = std::vector<double>;

struct Sizes {
    int samples;
    int positions;
    int heads;
    int key_value_heads;
    int head_size;

    AttentionShape shape() const { return {samples, positions, heads, key_value_heads, head_size}; }
    std::size_t rows() const { return std::size_t(samples) * std::size_t(positions); }
    /// Columns of Q and of the context.
    std::size_t width() const { return std::size_t(heads) * std::size_t(head_size); }
    /// Columns of K, and of V.
    std::size_t key_width() const { return std::size_t(key_value_heads) * std::size_t(head_size); }
    /// Columns of Q | K | V.
    std::size_t qkv_width() const { return width() + 2 * key_width(); }
};
std::ostream& operator<<(std::ostream& out, const Sizes& sizes);

struct Exact {
    Doubles context;
    Doubles log_sums;
    Doubles dqkv;
};

/// P = softmax(S) over the keys that do not come after the query, or over the first `lengths` keys
/// of each sample, S = Q K^T / sqrt(size); dS = P * (dP - rowsum(dP * P)), dP = dC V^T. Head h
/// reads keys and values number h / (heads / key_value_heads).
Exact exact(const Sizes& sizes,
            Doubles qkv,
            Doubles dcontext,
            const std::vector<std::int32_t>& lengths = {});

double dot(const double* a, const double* b, int size);

/// Euclidean norm of the difference by that of what is exact; not a number if something found is
/// not.
double relative_error(const Doubles& found, const Doubles& expected);

/// Q's, K's or V's columns: part 0, 1 or 2.
Doubles part_of(const Doubles& qkv, const Sizes& sizes, std::size_t part);

}  // namespace pipetwin::cuda::test
