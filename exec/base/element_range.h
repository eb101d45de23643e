// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>

namespace pipetwin::exec {

/// Elements of a list that follow one another: the first, and how many.
struct ElementRange {
    std::int64_t begin = 0;
    std::int64_t size = 0;

    std::int64_t end() const { return begin + size; }
};

/// The range that one of several has of so many elements: shares follow one another and differ by
/// one at most; the first has no less than any other.
inline ElementRange share_of(std::int64_t count, int index, int shares) {
    const auto begin = [&](std::int64_t of) { return (count * of + shares - 1) / shares; };
    return {.begin = begin(index), .size = begin(index + 1) - begin(index)};
}

/// Rows and columns that a matrix is kept with behind its own: they hold zeros.
struct MatrixPadding {
    std::int64_t rows = 0;
    std::int64_t columns = 0;

    bool operator==(const MatrixPadding&) const = default;
};

/// The elements that are in both ranges.
inline ElementRange common(const ElementRange& a, const ElementRange& b) {
    const std::int64_t begin = std::max(a.begin, b.begin);
    return {.begin = begin, .size = std::max<std::int64_t>(0, std::min(a.end(), b.end()) - begin)};
}

/// A matrix that may be kept with padding; elements are counted in row-major order.
struct PaddedMatrix {
    std::int64_t rows = 0;  ///< its own
    std::int64_t columns = 0;
    MatrixPadding padding{};

    std::int64_t size() const { return rows * columns; }
    std::int64_t kept_size() const { return (rows + padding.rows) * (columns + padding.columns); }

    /// Calls act(run, first) for all its own elements in `piece` of what is kept: `run` are
    /// neighbours there, which the matrix has from its element `first` on.
    template <class Act>
    void for_each_run(const ElementRange& piece, const Act& act) const {
        const bool in_one = padding.columns == 0;
        const std::int64_t lines = in_one ? 1 : rows;
        const std::int64_t own = size() / lines;
        const std::int64_t step = in_one ? kept_size() : columns + padding.columns;
        for (std::int64_t line = piece.begin / step; line < lines && line * step < piece.end();
             ++line) {
            const ElementRange run = common(piece, {.begin = line * step, .size = own});
            if (run.size > 0) {
                act(run, run.begin - line * (step - own));
            }
        }
    }
};

}  // namespace pipetwin::exec
