// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>

#include "core/base/simd_targets.h"
#include "exec/cpu/columns/column_loops.h"

// Every loop runs along rows, over many columns at a time: a column's sum is taken in the order of
// its rows, whatever the width of a vector. Columns are taken in tiles whose sums stay in the first
// cache.
namespace pipetwin::exec {
namespace {

constexpr std::size_t tile = 512;
using Sums = std::array<double, tile>;

/// Rows of a slab, which is read twice: it has to be in a cache the second time.
std::size_t slab_rows(std::size_t columns) {
    constexpr std::size_t numbers = 8192;
    return std::clamp<std::size_t>(numbers / columns, 16, 256);
}

/// Columns first ... first + count - 1 of a matrix with `width` columns.
struct Tile {
    std::size_t first;
    std::size_t count;
    std::size_t width;
};

template <class T>
PIPETWIN_INLINE void add_rows_of(const T* x, std::size_t rows, const Tile& t, double* sums) {
    for (std::size_t r = 0; r < rows; ++r) {
        const T* const row = x + r * t.width + t.first;
        PIPETWIN_ELEMENTWISE
        for (std::size_t j = 0; j < t.count; ++j) {
            sums[j] += static_cast<double>(computed(row[j]));
        }
    }
}

template <class T>
PIPETWIN_INLINE void add_squares_of(
    const T* x, std::size_t rows, const Tile& t, const double* means, double* sums) {
    for (std::size_t r = 0; r < rows; ++r) {
        const T* const row = x + r * t.width + t.first;
        PIPETWIN_ELEMENTWISE
        for (std::size_t j = 0; j < t.count; ++j) {
            const double off = static_cast<double>(computed(row[j])) - means[j];
            sums[j] += off * off;
        }
    }
}

/// Moments of one tile of columns: slab by slab the mean, then the squares around it, joined to
/// those of the slabs before.
template <class T>
PIPETWIN_INLINE void tile_moments(
    const T* x, std::size_t rows, const Tile& t, double* means, double* squares) {
    Sums mean;
    Sums square;
    const std::size_t slab = slab_rows(t.width);
    for (std::size_t begin = 0; begin < rows; begin += slab) {
        const std::size_t count = std::min(slab, rows - begin);
        const T* const from = x + begin * t.width;
        std::fill_n(mean.begin(), t.count, 0.0);
        std::fill_n(square.begin(), t.count, 0.0);
        add_rows_of(from, count, t, mean.data());
        const auto of_slab = static_cast<double>(count);
        for (std::size_t j = 0; j < t.count; ++j) {
            mean[j] /= of_slab;
        }
        add_squares_of(from, count, t, mean.data(), square.data());
        const auto before = static_cast<double>(begin);
        const double share = of_slab / (before + of_slab);
        PIPETWIN_ELEMENTWISE
        for (std::size_t j = 0; j < t.count; ++j) {
            const double apart = begin == 0 ? 0 : mean[j] - means[j];
            means[j] = begin == 0 ? mean[j] : means[j] + apart * share;
            squares[j] = (begin == 0 ? 0 : squares[j]) + square[j] + apart * apart * before * share;
        }
    }
}

/// Numbers of each column of a tile as its group has them.
template <class C>
struct Spread {
    std::array<C, tile> mean;
    std::array<C, tile> inverse;

    PIPETWIN_INLINE Spread(const NormBlock& block, const C* statistics, const Tile& t) {
        const std::size_t per_group = block.columns / block.groups;
        for (std::size_t j = 0; j < t.count; ++j) {
            const std::size_t group = per_group == 1 ? t.first + j : (t.first + j) / per_group;
            mean[j] = statistics[group];
            inverse[j] = statistics[block.groups + group];
        }
    }
};

}  // namespace

template <class T>
PIPETWIN_SIMD_TARGETS void column_moments(const NormBlock& block, const T* x, double* moments) {
    for (std::size_t first = 0; first < block.columns; first += tile) {
        const Tile t{
            .first = first, .count = std::min(tile, block.columns - first), .width = block.columns};
        tile_moments(x, block.rows, t, moments + first, moments + block.columns + first);
    }
}

// y = skip + (x - mean) (gain / deviation) + bias: the difference first, as the mean may be large
template <class T>
PIPETWIN_SIMD_TARGETS void normalise(const NormOperands<T>& o, T* y) {
    using C = Computed<T>;
    const std::size_t width = o.block.columns;
    for (std::size_t first = 0; first < width; first += tile) {
        const Tile t{.first = first, .count = std::min(tile, width - first), .width = width};
        Spread<C> spread(o.block, o.statistics, t);
        std::array<C, tile> shift;
        for (std::size_t j = 0; j < t.count; ++j) {
            spread.inverse[j] *= o.gain == nullptr ? C(1) : computed(o.gain[first + j]);
            shift[j] = o.bias == nullptr ? C(0) : computed(o.bias[first + j]);
        }
        for (std::size_t r = 0; r < o.block.rows; ++r) {
            const T* const x = o.x + r * width + first;
            T* const row = y + r * width + first;
            if (o.skip == nullptr) {
                PIPETWIN_ELEMENTWISE
                for (std::size_t j = 0; j < t.count; ++j) {
                    row[j] =
                        stored<T>((computed(x[j]) - spread.mean[j]) * spread.inverse[j] + shift[j]);
                }
            } else {
                const T* const skip = o.skip + r * width + first;
                PIPETWIN_ELEMENTWISE
                for (std::size_t j = 0; j < t.count; ++j) {
                    row[j] = stored<T>(
                        computed(skip[j]) +
                        ((computed(x[j]) - spread.mean[j]) * spread.inverse[j] + shift[j]));
                }
            }
        }
    }
}

template <class T>
PIPETWIN_SIMD_TARGETS void norm_sums(const NormOperands<T>& o, double* sums) {
    using C = Computed<T>;
    const std::size_t width = o.block.columns;
    for (std::size_t first = 0; first < width; first += tile) {
        const Tile t{.first = first, .count = std::min(tile, width - first), .width = width};
        const Spread<C> spread(o.block, o.statistics, t);
        double* const of_dy = sums + first;
        double* const of_product = sums + width + first;
        std::fill_n(of_dy, t.count, 0.0);
        std::fill_n(of_product, t.count, 0.0);
        for (std::size_t r = 0; r < o.block.rows; ++r) {
            const T* const x = o.x + r * width + first;
            const T* const dy = o.dy + r * width + first;
            PIPETWIN_ELEMENTWISE
            for (std::size_t j = 0; j < t.count; ++j) {
                const C z = (computed(x[j]) - spread.mean[j]) * spread.inverse[j];
                of_dy[j] += static_cast<double>(computed(dy[j]));
                of_product[j] += static_cast<double>(computed(dy[j]) * z);
            }
        }
    }
}

// dx = skip + (g - mean(g) - z mean(g z)) / deviation,  g = gain dy, in the form
// dx = skip + a dy - b - c (x - mean)
template <class T>
PIPETWIN_SIMD_TARGETS void norm_input_gradient(const NormOperands<T>& o,
                                               const double* sums,
                                               T* dx) {
    using C = Computed<T>;
    const std::size_t width = o.block.columns;
    const std::size_t per_group = width / o.block.groups;
    const auto count = static_cast<double>(o.block.rows * per_group);
    double mean_g = 0;
    double mean_gz = 0;
    std::size_t known = o.block.groups;  // the group whose means these are; none yet
    for (std::size_t first = 0; first < width; first += tile) {
        const Tile t{.first = first, .count = std::min(tile, width - first), .width = width};
        const Spread<C> spread(o.block, o.statistics, t);
        std::array<C, tile> of_dy;
        std::array<C, tile> constant;
        std::array<C, tile> of_x;
        for (std::size_t j = 0; j < t.count; ++j) {
            const std::size_t group = (first + j) / per_group;
            if (group != known) {
                known = group;
                mean_g = 0;
                mean_gz = 0;
                for (std::size_t k = group * per_group; k < (group + 1) * per_group; ++k) {
                    const double gain =
                        o.gain == nullptr ? 1.0 : static_cast<double>(computed(o.gain[k]));
                    mean_g += gain * sums[k];
                    mean_gz += gain * sums[width + k];
                }
                mean_g /= count;
                mean_gz /= count;
            }
            const auto inverse = static_cast<double>(spread.inverse[j]);
            of_dy[j] = spread.inverse[j] * (o.gain == nullptr ? C(1) : computed(o.gain[first + j]));
            constant[j] = static_cast<C>(inverse * mean_g);
            of_x[j] = static_cast<C>(inverse * inverse * mean_gz);
        }
        for (std::size_t r = 0; r < o.block.rows; ++r) {
            const T* const x = o.x + r * width + first;
            const T* const dy = o.dy + r * width + first;
            T* const row = dx + r * width + first;
            if (o.skip == nullptr) {
                PIPETWIN_ELEMENTWISE
                for (std::size_t j = 0; j < t.count; ++j) {
                    row[j] = stored<T>(of_dy[j] * computed(dy[j]) - constant[j] -
                                       of_x[j] * (computed(x[j]) - spread.mean[j]));
                }
            } else {
                const T* const skip = o.skip + r * width + first;
                PIPETWIN_ELEMENTWISE
                for (std::size_t j = 0; j < t.count; ++j) {
                    row[j] = stored<T>(computed(skip[j]) +
                                       (of_dy[j] * computed(dy[j]) - constant[j] -
                                        of_x[j] * (computed(x[j]) - spread.mean[j])));
                }
            }
        }
    }
}

#define PIPETWIN_COLUMN_NORMS(T)                                       \
    template void column_moments(const NormBlock&, const T*, double*); \
    template void normalise(const NormOperands<T>&, T*);               \
    template void norm_sums(const NormOperands<T>&, double*);          \
    template void norm_input_gradient(const NormOperands<T>&, const double*, T*)
PIPETWIN_COLUMN_NORMS(float);
PIPETWIN_COLUMN_NORMS(double);
PIPETWIN_COLUMN_NORMS(BFloat16);
#undef PIPETWIN_COLUMN_NORMS

}  // namespace pipetwin::exec
