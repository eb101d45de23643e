// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
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

/// What one of several devices has of a matrix: neighbouring rows, and of these some neighbouring
/// columns or blocks of them.
struct MatrixCut {
    /// Neighbouring columns of the whole matrix; the blocks of a cut stand side by side.
    struct Columns {
        std::int64_t first = 0;
        std::int64_t count = 0;

        bool operator==(const Columns&) const = default;
    };
    std::int64_t rows = 0;  ///< of the whole matrix; 0: nothing is cut
    std::int64_t columns = 0;
    std::int64_t first_row = 0;
    /// Blocks of columns, those that are there first; none: all columns. Three, as queries, keys
    /// and values of an attention are cut.
    std::array<Columns, 3> blocks{};
    /// First columns of its own that count in sums over all devices; 0: all do. The others an
    /// earlier device has, too.
    std::int64_t counted = 0;

    bool cuts() const { return rows > 0; }
    bool operator==(const MatrixCut&) const = default;
};

/// The part that one of several devices has of a matrix of which each has `rows` neighbouring rows.
inline MatrixCut cut_of_rows(std::int64_t rows, std::int64_t columns, int devices, int device) {
    return {.rows = rows * devices, .columns = columns, .first_row = rows * device};
}

/// A matrix that may be kept with padding, or be a part of another one; elements are counted in
/// row-major order. No part has padding.
struct PaddedMatrix {
    std::int64_t rows = 0;  ///< its own
    std::int64_t columns = 0;
    MatrixPadding padding{};
    MatrixCut cut{};

    std::int64_t size() const { return rows * columns; }
    /// Rows and columns of all devices' parts together.
    std::int64_t whole_rows() const { return cut.cuts() ? cut.rows : rows; }
    std::int64_t whole_columns() const { return cut.cuts() ? cut.columns : columns; }
    std::int64_t kept_size() const { return (rows + padding.rows) * (columns + padding.columns); }

    /// Calls act(run, first) for all its own elements in `piece` of what is kept: `run` are
    /// neighbours there, which the matrix, or the whole of which it is a part, has from its element
    /// `first` on.
    template <class Act>
    void for_each_run(const ElementRange& piece, const Act& act) const {
        if (cut.cuts()) {
            return for_each_run_of_part(piece, act);
        }
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

  private:
    template <class Act>
    void for_each_run_of_part(const ElementRange& piece, const Act& act) const {
        if (columns == 0) {
            return;
        }
        for (std::int64_t row = piece.begin / columns; row < rows && row * columns < piece.end();
             ++row) {
            std::int64_t begin = row * columns;
            const auto block = [&](std::int64_t first, std::int64_t count) {
                const ElementRange run = common(piece, {.begin = begin, .size = count});
                if (run.size > 0) {
                    act(run, (cut.first_row + row) * cut.columns + first + run.begin - begin);
                }
                begin += count;
            };
            if (cut.blocks.front().count == 0) {
                block(0, columns);
            }
            for (const MatrixCut::Columns& each : cut.blocks) {
                block(each.first, each.count);
            }
        }
    }
};

}  // namespace pipetwin::exec
