// SPDX-License-Identifier: Apache-2.0

// Included once by each product_*.cpp, which says for what machine:
//
//   PIPETWIN_TARGET    attribute of every function
//   vector_bytes       of a vector
//   tile_rows, tile_vectors   the tile of c that lies in registers: rows, and vectors of a row
//
// The method is Goto and van de Geijn's (ACM TOMS 34, 2008): b is copied into panels as wide as a
// tile, a block of a into panels as high as one, so that the innermost loop reads both straight on.
//
//                 +--- panel of b, depth x tile columns: first cache
//                 v
//   +---+      +-+-+-+-+
//   | a |  x   | | | | |         a tile of c = sum over the depth of
//   +---+      +-+-+-+-+                       (column of a's panel) x (row of b's panel)
//   ^ panels of a, tile rows x depth: second cache
//
// Copying converts bf16 to fp32, so the innermost loop knows one type. Where the machine multiplies
// bf16, panels hold pairs of neighbours of the depth instead (product_pairs.h).

// No include guard: see above.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "core/base/as_index.h"
#include "core/base/error.h"
#include "core/base/simd_targets.h"
#include "exec/cpu/products/bfloat16.h"
#include "exec/cpu/products/product_scratch.h"
#include "exec/cpu/products/products.h"

namespace pipetwin::exec {
namespace {

using Index = std::int64_t;

#define PIPETWIN_INLINE_TARGET [[gnu::always_inline]] PIPETWIN_TARGET inline

/// Two numbers of bf16 that are neighbours in the depth of a product, the first in the low half.
struct BFloat16Pair {
    std::uint32_t bits;
};

/// A tile of c in registers. `Cell` is what a panel holds for one step of the depth.
template <class Cell>
struct Tile {
    using Real = Cell;  ///< the type of the sums
    typedef Real Vector __attribute__((vector_size(vector_bytes)));
    using Line = Vector;                           ///< of b
    static constexpr Index numbers = 1;            ///< of a cell
    static constexpr Index deepest = block_depth;  ///< block of the depth, in numbers
    /// Rows of a that are packed at a time: a block of them fits into half of the second cache.
    static constexpr Index block_rows = 144;
    static constexpr Index lanes = vector_bytes / static_cast<Index>(sizeof(Real));
    static constexpr Index rows = tile_rows;
    static constexpr Index columns = tile_vectors * lanes;
};
template <>
struct Tile<BFloat16Pair> : Tile<float> {
    typedef std::uint32_t Line __attribute__((vector_size(vector_bytes)));
    static constexpr Index numbers = 2;
    static constexpr Index deepest = 2048;
    static constexpr Index block_rows = 72;
};

/// Cells that hold so many numbers of the depth.
template <class Cell>
constexpr Index cells(Index depth) {
    return (depth + Tile<Cell>::numbers - 1) / Tile<Cell>::numbers;
}

template <class Vector, class Real>
PIPETWIN_INLINE_TARGET Vector load(const Real* from) {
    Vector vector;
    std::memcpy(&vector, from, sizeof(Vector));
    return vector;
}

template <std::size_t bytes>
struct Bits {
    typedef std::uint16_t Halves __attribute__((vector_size(bytes / 2)));
    typedef std::uint32_t Wholes __attribute__((vector_size(bytes)));
};

template <class Vector>
PIPETWIN_INLINE_TARGET Vector load(const BFloat16* from) {
    using Halves = typename Bits<sizeof(Vector)>::Halves;
    using Wholes = typename Bits<sizeof(Vector)>::Wholes;
    Halves halves;
    std::memcpy(&halves, from, sizeof(halves));
    const Wholes wholes = __builtin_convertvector(halves, Wholes) << 16;
    return std::bit_cast<Vector>(wholes);
}

template <class Vector, class Real>
PIPETWIN_INLINE_TARGET void store(const Vector& vector, Real* to) {
    std::memcpy(to, &vector, sizeof(Vector));
}

template <class Vector>
PIPETWIN_INLINE_TARGET void store(const Vector& vector, BFloat16* to) {
    using Halves = typename Bits<sizeof(Vector)>::Halves;
    using Wholes = typename Bits<sizeof(Vector)>::Wholes;
    const auto bits = std::bit_cast<Wholes>(vector);
    const Wholes rounded = bits + 0x7FFFU + ((bits >> 16) & 1U);
    const Wholes number = std::bit_cast<Wholes>((bits & 0x7FFFFFFFU) <= 0x7F800000U);
    const Wholes chosen = (rounded & number) | ((bits | 0x400000U) & ~number);
    const Halves halves = __builtin_convertvector(chosen >> 16, Halves);
    std::memcpy(to, &halves, sizeof(halves));
}

/// Four rows of four become their columns.
template <class Real>
struct Quad {
    typedef Real Vector __attribute__((vector_size(4 * sizeof(Real))));
};

template <class V>
PIPETWIN_INLINE_TARGET void transpose(V& r0, V& r1, V& r2, V& r3) {
    const V low01 = __builtin_shufflevector(r0, r1, 0, 4, 1, 5);
    const V high01 = __builtin_shufflevector(r0, r1, 2, 6, 3, 7);
    const V low23 = __builtin_shufflevector(r2, r3, 0, 4, 1, 5);
    const V high23 = __builtin_shufflevector(r2, r3, 2, 6, 3, 7);
    r0 = __builtin_shufflevector(low01, low23, 0, 1, 4, 5);
    r1 = __builtin_shufflevector(low01, low23, 2, 3, 6, 7);
    r2 = __builtin_shufflevector(high01, high23, 0, 1, 4, 5);
    r3 = __builtin_shufflevector(high01, high23, 2, 3, 6, 7);
}

/// Copies one panel of `width` columns and `depth` rows, of which `used` columns exist, from a
/// matrix in which neighbours of a panel's row are neighbours in memory.
template <Index width, class Real, class Source>
PIPETWIN_TARGET void copy_panel(
    const Source* from, Index stride, Index depth, Index used, Real* panel) {
    if (used == width) {
        for (Index p = 0; p < depth; ++p) {
            const Source* const row = from + p * stride;
            Real* const to = panel + p * width;
            constexpr Index ahead = 8;  // rows lie far apart: the machine does not foresee them
            __builtin_prefetch(row + ahead * stride);
            constexpr Index quads = width / 4 * 4;
#pragma GCC unroll 16
            for (Index j = 0; j < quads; j += 4) {
                store(load<typename Quad<Real>::Vector>(row + j), to + j);
            }
#pragma GCC unroll 4
            for (Index j = quads; j < width; ++j) {
                to[j] = computed(row[j]);
            }
        }
        return;
    }
    for (Index p = 0; p < depth; ++p) {
        for (Index j = 0; j < width; ++j) {
            panel[p * width + j] = j < used ? Real(computed(from[p * stride + j])) : Real(0);
        }
    }
}

/// Copies one panel from a matrix in which neighbours of a panel's column are neighbours in memory.
template <Index width, class Real, class Source>
PIPETWIN_TARGET void turn_panel(
    const Source* from, Index stride, Index depth, Index used, Real* panel) {
    using Vector = typename Quad<Real>::Vector;
    constexpr Index quads = width / 4 * 4;
    const Index whole = used == width ? depth / 4 * 4 : 0;
    for (Index p = 0; p < whole; p += 4) {
        Real* const to = panel + p * width;
#pragma GCC unroll 16
        for (Index j = 0; j < quads; j += 4) {
            const Source* const source = from + j * stride + p;
            auto r0 = load<Vector>(source);
            auto r1 = load<Vector>(source + stride);
            auto r2 = load<Vector>(source + 2 * stride);
            auto r3 = load<Vector>(source + 3 * stride);
            transpose(r0, r1, r2, r3);
            store(r0, to + j);
            store(r1, to + width + j);
            store(r2, to + 2 * width + j);
            store(r3, to + 3 * width + j);
        }
#pragma GCC unroll 4
        for (Index j = quads; j < width; ++j) {
#pragma GCC unroll 4
            for (Index q = 0; q < 4; ++q) {
                to[q * width + j] = computed(from[j * stride + p + q]);
            }
        }
    }
    for (Index p = whole; p < depth; ++p) {
        for (Index j = 0; j < width; ++j) {
            panel[p * width + j] = j < used ? Real(computed(from[j * stride + p])) : Real(0);
        }
    }
}

/// `lines` columns of a panel's direction from `line` on, depth `depth` from `begin` on, as panels
/// one behind the other. `across`: whether memory runs along the depth.
template <Index width, class Real, class Source>
PIPETWIN_TARGET void make_panels(const Factor& factor,
                                 bool across,
                                 Index line,
                                 Index lines,
                                 Index begin,
                                 Index depth,
                                 Real* panels) {
    const auto* const data = static_cast<const Source*>(factor.data);
    if (across) {
        for (Index i = 0; i < lines; i += width) {
            turn_panel<width>(data + (line + i) * factor.stride + begin,
                              factor.stride,
                              depth,
                              std::min(width, lines - i),
                              panels + i * depth);
        }
        return;
    }
    constexpr Index rows_at_once = 32;  // so that pages of memory are met again soon
    for (Index p = 0; p < depth; p += rows_at_once) {
        for (Index i = 0; i < lines; i += width) {
            copy_panel<width>(data + (begin + p) * factor.stride + line + i,
                              factor.stride,
                              std::min(rows_at_once, depth - p),
                              std::min(width, lines - i),
                              panels + i * depth + p * width);
        }
    }
}

template <Index width, class Cell>
PIPETWIN_TARGET void pack(const Factor& factor,
                          bool across,
                          Index line,
                          Index lines,
                          Index begin,
                          Index depth,
                          Cell* panels) {
    if constexpr (std::is_same_v<Cell, BFloat16Pair>) {
        make_pair_panels<width>(factor, across, line, lines, begin, depth, panels);
    } else if (std::is_same_v<Cell, float> && factor.type == DType::BF16) {
        make_panels<width, Cell, BFloat16>(factor, across, line, lines, begin, depth, panels);
    } else {
        make_panels<width, Cell, Cell>(factor, across, line, lines, begin, depth, panels);
    }
}

/// Destination of a tile of c, and what is added on its way: `c`, `skip` and `bias` where the depth
/// begins, `partial` where it goes on.
template <class Real, class Storage>
struct Goal {
    Storage* c;
    const Storage* skip;  ///< null: nothing
    const Storage* bias;  ///< null: nothing
    Index stride;
    Real* partial;
    Index partial_stride;
    bool first;
    bool last;
};

template <class Real, class Storage>
PIPETWIN_INLINE_TARGET Goal<Real, Storage> at(Goal<Real, Storage> goal, Index row, Index column) {
    goal.c += row * goal.stride + column;
    goal.skip += goal.skip == nullptr ? 0 : row * goal.stride + column;
    goal.bias += goal.bias == nullptr ? 0 : column;
    goal.partial += row * goal.partial_stride + column;
    return goal;
}

/// The sums of `count` rows of a tile: in registers, row by row.
template <class Real, std::size_t count>
using Sums = typename Tile<Real>::Vector[count][tile_vectors];

enum class Added { Nothing, Skip, Bias, Both, Partial };

template <Added added, class Value, class Real, class Storage>
PIPETWIN_INLINE_TARGET Value
with_added(const Goal<Real, Storage>& goal, Index row, Index column, Value sum) {
    if constexpr (added == Added::Partial) {
        sum += load<Value>(goal.partial + row * goal.partial_stride + column);
    }
    if constexpr (added == Added::Skip || added == Added::Both) {
        sum += load<Value>(goal.skip + row * goal.stride + column);
    }
    if constexpr (added == Added::Bias || added == Added::Both) {
        sum += load<Value>(goal.bias + column);
    }
    return sum;
}

template <Added added, std::size_t count, class Real, class Storage>
PIPETWIN_INLINE_TARGET void put(const Goal<Real, Storage>& goal, Sums<Real, count>& sums) {
    using T = Tile<Real>;
#pragma GCC unroll 32
    for (Index i = 0; i < static_cast<Index>(count); ++i) {
#pragma GCC unroll 8
        for (Index v = 0; v < tile_vectors; ++v) {
            const Index j = v * T::lanes;
            const auto value = with_added<added>(goal, i, j, sums[i][v]);
            if (goal.last) {
                store(value, goal.c + i * goal.stride + j);
            } else {
                store(value, goal.partial + i * goal.partial_stride + j);
            }
        }
    }
}

/// A tile whose last rows or columns do not exist.
template <Added added, class Real, class Storage>
PIPETWIN_TARGET void put_part(const Goal<Real, Storage>& goal,
                              const Real* sums,
                              Index rows,
                              Index columns) {
    typedef Real One __attribute__((vector_size(sizeof(Real))));
    for (Index i = 0; i < rows; ++i) {
        for (Index j = 0; j < columns; ++j) {
            const One sum = load<One>(sums + i * Tile<Real>::columns + j);
            const One value = with_added<added>(goal, i, j, sum);
            if (goal.last) {
                store(value, goal.c + i * goal.stride + j);
            } else {
                store(value, goal.partial + i * goal.partial_stride + j);
            }
        }
    }
}

/// sum + x y.
template <class Sum, class Real>
PIPETWIN_INLINE_TARGET Sum multiply_add(Sum sum, Real x, Sum y) {
    return sum + x * y;
}

/// The left factor of a tile: a panel.
template <class Cell>
struct Panel {
    const Cell* cells;

    PIPETWIN_INLINE_TARGET Cell at(Index row) const { return cells[row]; }
    PIPETWIN_INLINE_TARGET void go_on() { cells += Tile<Cell>::rows; }
};

/// The left factor of a tile: rows of the matrix itself, which hold a tile's rows three by three.
template <class Cell>
struct Rows {
    static constexpr Index together = 3;  // a machine's address is a place and twice a stride
    static constexpr Index groups = (tile_rows + together - 1) / together;

    PIPETWIN_INLINE_TARGET Rows(const std::byte* first, Index row_stride) : stride(row_stride) {
#pragma GCC unroll 8
        for (Index i = 0; i < groups; ++i) {
            place[i] = first + together * i * row_stride;
        }
    }
    PIPETWIN_INLINE_TARGET Cell at(Index row) const {
        Cell cell;
        std::memcpy(&cell, place[row / together] + row % together * stride, sizeof(Cell));
        return cell;
    }
    PIPETWIN_INLINE_TARGET void go_on() {
#pragma GCC unroll 8
        for (Index i = 0; i < groups; ++i) {
            place[i] += sizeof(Cell);
        }
    }

    const std::byte* place[groups];
    Index stride;  ///< bytes
};

/// Makes `count` rows of a tile, of which `rows` exist; `depth`: in cells.
template <Added added, Index count, class Left, class Cell, class Real, class Storage>
PIPETWIN_TARGET void make_tile(Index depth,
                               Left a,
                               const Cell* b,
                               const Goal<Real, Storage>& goal,
                               Index rows,
                               Index columns) {
    using T = Tile<Cell>;
    using Line = typename T::Line;
#pragma GCC unroll 32
    for (Index i = 0; i < count; ++i) {
        __builtin_prefetch(added == Added::Partial
                               ? static_cast<const void*>(goal.partial + i * goal.partial_stride)
                               : goal.c + i * goal.stride);
    }
    Sums<Real, as_index(count)> sum = {};
#pragma GCC unroll 4
    for (Index p = 0; p < depth; ++p) {
        Line line[tile_vectors];
#pragma GCC unroll 8
        for (Index v = 0; v < tile_vectors; ++v) {
            line[v] = load<Line>(b + v * T::lanes);
        }
#pragma GCC unroll 32
        for (Index i = 0; i < count; ++i) {
            const Cell x = a.at(i);
#pragma GCC unroll 8
            for (Index v = 0; v < tile_vectors; ++v) {
                sum[i][v] = multiply_add(sum[i][v], x, line[v]);
            }
        }
        a.go_on();
        b += T::columns;
    }
    if (rows == count && columns == T::columns) {
        put<added, as_index(count)>(goal, sum);
        return;
    }
    alignas(64) Real sums[count * T::columns];
#pragma GCC unroll 32
    for (Index i = 0; i < count; ++i) {
#pragma GCC unroll 8
        for (Index v = 0; v < tile_vectors; ++v) {
            store(sum[i][v], sums + i * T::columns + v * T::lanes);
        }
    }
    put_part<added>(goal, sums, rows, columns);
}

/// Makes a tile, or a third or two of it, if no more rows exist.
template <Added added, class Cell, class Real, class Storage>
PIPETWIN_INLINE_TARGET void make_panel_tile(Index depth,
                                            const Panel<Cell>& a,
                                            const Cell* b,
                                            const Goal<Real, Storage>& goal,
                                            Index rows,
                                            Index columns) {
    constexpr Index third = tile_rows / 3;
    if (rows <= third) {
        make_tile<added, third>(depth, a, b, goal, rows, columns);
    } else if (rows <= 2 * third) {
        make_tile<added, 2 * third>(depth, a, b, goal, rows, columns);
    } else {
        make_tile<added, tile_rows>(depth, a, b, goal, rows, columns);
    }
}

/// A part of c, and how deep the part of a and b is that belongs to it.
struct Part {
    Index row = 0;
    Index rows = 0;
    Index column = 0;
    Index columns = 0;
    Index begin = 0;
    Index depth = 0;
};

/// The left factor of a part: panels, but for what is read in its place.
template <class Cell>
struct LeftFactor {
    const Cell* panels;
    /// Null: all of it lies in panels. Else the last tile does, if its rows are few.
    const std::byte* rows = nullptr;
    Index stride = 0;  ///< bytes
};

template <Added added, class Cell, class Real, class Storage>
PIPETWIN_TARGET void make_tiles(const Part& part,
                                Causal causal,
                                const LeftFactor<Cell>& a,
                                const Cell* b,
                                const Goal<Real, Storage>& goal) {
    using T = Tile<Cell>;
    const Index depth = cells<Cell>(part.depth);
    for (Index j = 0; j < part.columns; j += T::columns) {
        for (Index i = 0; i < part.rows; i += T::rows) {
            const Index row = part.row + i;
            const Index end_row = row + T::rows;
            if (causal == Causal::Result && part.column + j >= end_row) {
                continue;
            }
            Index begin = 0;
            Index end = depth;
            if (causal == Causal::A) {
                end = cells<Cell>(std::clamp<Index>(end_row - part.begin, 0, part.depth));
            }
            if (causal == Causal::ATransposed) {
                begin = std::clamp<Index>(row - part.begin, 0, part.depth) / T::numbers;
            }
            const Cell* const line = b + j * depth + begin * T::columns;
            const Index rows = std::min(T::rows, part.rows - i);
            const Index columns = std::min(T::columns, part.columns - j);
            if (a.rows != nullptr && rows == T::rows) {
                const std::byte* const first =
                    a.rows + i * a.stride + begin * static_cast<Index>(sizeof(Cell));
                make_tile<added, T::rows>(
                    end - begin, Rows<Cell>(first, a.stride), line, at(goal, i, j), rows, columns);
                continue;
            }
            const Cell* const panel = a.panels + (a.rows == nullptr ? i * depth : 0);
            make_panel_tile<added>(end - begin,
                                   Panel<Cell>{panel + begin * T::rows},
                                   line,
                                   at(goal, i, j),
                                   rows,
                                   columns);
        }
    }
}

template <class Cell, class Real, class Storage>
PIPETWIN_TARGET void make_part(const Part& part,
                               Causal causal,
                               const LeftFactor<Cell>& a,
                               const Cell* b,
                               const Goal<Real, Storage>& goal) {
    if (!goal.first) {
        make_tiles<Added::Partial>(part, causal, a, b, goal);
    } else if (goal.skip != nullptr && goal.bias != nullptr) {
        make_tiles<Added::Both>(part, causal, a, b, goal);
    } else if (goal.skip != nullptr) {
        make_tiles<Added::Skip>(part, causal, a, b, goal);
    } else if (goal.bias != nullptr) {
        make_tiles<Added::Bias>(part, causal, a, b, goal);
    } else {
        make_tiles<Added::Nothing>(part, causal, a, b, goal);
    }
}

Index rounded_up(Index value, Index to) {
    return (value + to - 1) / to * to;
}

/// With at most `a_numbers` numbers all of a is kept in panels, so that b may be cut small: they
/// share the last cache. Else b is cut as little as that cache allows, since a is copied again for
/// each part of it. A panel of b is used once for each panel of a: where those are few, the copy of
/// b costs as much as its way to the last cache and back, so it is cut so small that it never
/// leaves the first two. Measured on a Zen 3; none of these changes a bit.
constexpr Index a_numbers = Index{1} << 20U;
constexpr Index few_rows = 512;
constexpr Index b_numbers_few_rows = Index{1} << 14U;
constexpr Index b_numbers_small = Index{1} << 19U;
constexpr Index b_numbers = Index{1} << 21U;

/// Whether tiles read rows of a as they lie, so that no panel is made of them: where few columns
/// read them, a row holds cells one behind the other, and rows of a tile do not all meet in one
/// place of the first cache.
template <class Cell>
bool reads_rows(const Product& p) {
    constexpr Index cache_way = 4096;
    const bool cells_lie_there = std::is_same_v<Cell, BFloat16Pair>
                                     ? p.a.type == DType::BF16 && p.k % 2 == 0
                                     : std::is_same_v<Cell, float> && p.a.type == DType::F32;
    const Index row_bytes = p.a.stride * static_cast<Index>(size_of(p.a.type));
    return p.n <= 2 * Tile<Cell>::columns && cells_lie_there && p.a.transposed == Transposed::No &&
           row_bytes % cache_way != 0;
}

template <class Cell, class Storage>
PIPETWIN_TARGET void multiply(const Product& p) {
    using T = Tile<Cell>;
    using Real = typename T::Real;
    constexpr bool rounds = sizeof(Real) != sizeof(Storage);
    constexpr Index deepest = T::deepest;
    constexpr Index a_rows = T::block_rows;
    const Index depth_of_all = cells<Cell>(p.k);
    const bool a_across = p.a.transposed == Transposed::No;
    const bool b_across = p.b.transposed == Transposed::Yes;
    const bool in_place = reads_rows<Cell>(p);
    const bool all_of_a = p.m * depth_of_all <= a_numbers;
    const Index numbers_of_b = !all_of_a         ? b_numbers
                               : p.m <= few_rows ? b_numbers_few_rows
                                                 : b_numbers_small;
    const Index columns_at_once =
        std::min(rounded_up(p.n, T::columns),
                 std::max(T::columns, numbers_of_b / depth_of_all / T::columns * T::columns));
    Cell* const b = b_scratch<Cell>(columns_at_once * depth_of_all);
    Cell* const a = a_scratch<Cell>(all_of_a ? rounded_up(p.m, T::rows) * depth_of_all
                                             : a_rows * cells<Cell>(deepest));
    Real* const partial =
        rounds && p.k > deepest ? c_scratch<Real>(a_rows * columns_at_once) : nullptr;
    for (Index column = 0; column < p.n; column += columns_at_once) {
        const Index columns = std::min(columns_at_once, p.n - column);
        const Index padded = rounded_up(columns, T::columns);
        for (Index begin = 0; begin < p.k; begin += deepest) {
            const Index depth = std::min(deepest, p.k - begin);
            Cell* const panels = b + begin / T::numbers * padded;
            pack<T::columns>(p.b, b_across, column, columns, begin, depth, panels);
        }
        for (Index row = 0; row < p.m; row += a_rows) {
            const Index rows = std::min(a_rows, p.m - row);
            const Index place = row * p.c_stride + column;
            Goal<Real, Storage> goal{
                .c = static_cast<Storage*>(p.c) + place,
                .skip = p.skip == nullptr ? nullptr : static_cast<const Storage*>(p.skip) + place,
                .bias = p.bias == nullptr ? nullptr : static_cast<const Storage*>(p.bias) + column,
                .stride = p.c_stride,
                .partial = partial,
                .partial_stride = columns_at_once,
                .first = true,
                .last = false};
            if constexpr (!rounds) {
                goal.partial = goal.c;
                goal.partial_stride = goal.stride;
            }
            for (Index begin = 0; begin < p.k; begin += deepest) {
                const Part part{.row = row,
                                .rows = rows,
                                .column = column,
                                .columns = columns,
                                .begin = begin,
                                .depth = std::min(deepest, p.k - begin)};
                const Index first_cell = begin / T::numbers;
                Cell* const panels =
                    all_of_a ? a + row * depth_of_all + first_cell * rounded_up(rows, T::rows) : a;
                LeftFactor<Cell> left{.panels = panels};
                const Index in_panels = in_place ? rows % T::rows : rows;
                if (in_place) {
                    left.stride = p.a.stride * static_cast<Index>(size_of(p.a.type));
                    left.rows = static_cast<const std::byte*>(p.a.data) + row * left.stride +
                                first_cell * static_cast<Index>(sizeof(Cell));
                }
                if (in_panels > 0 && (!all_of_a || column == 0)) {
                    const Index line = row + rows - in_panels;
                    pack<T::rows>(p.a, a_across, line, in_panels, begin, part.depth, panels);
                }
                goal.first = begin == 0;
                goal.last = begin + part.depth == p.k;
                make_part(part, p.causal, left, b + first_cell * padded, goal);
            }
        }
    }
}

/// `Single`: a panel's cell for sums in fp32.
template <class Single>
PIPETWIN_TARGET void multiply_any(const Product& p) {
    if (p.c_type == DType::F64) {
        if constexpr (std::is_same_v<Single, float>) {
            multiply<double, double>(p);
        }
    } else if (p.c_type == DType::BF16) {
        multiply<Single, BFloat16>(p);
    } else {
        multiply<Single, float>(p);
    }
}

}  // namespace
}  // namespace pipetwin::exec
