// SPDX-License-Identifier: Apache-2.0
#pragma once

// Panels of pairs for product_kernel.h, with AVX512-BF16. Included after it, by one source.
#include <immintrin.h>

#include <algorithm>
#include <cstdint>

#include "exec/cpu/products/bfloat16.h"
#include "exec/cpu/products/products.h"

namespace pipetwin::exec {
namespace {

/// Pairs in a vector.
typedef std::uint32_t Pairs __attribute__((vector_size(64)));

/// Turns four rows of pairs into their columns in each 128 bits.
PIPETWIN_INLINE_TARGET void turn_in_lanes(Pairs (&r)[4]) {
#define PIPETWIN_LOW 0, 16, 1, 17, 4, 20, 5, 21, 8, 24, 9, 25, 12, 28, 13, 29
#define PIPETWIN_HIGH 2, 18, 3, 19, 6, 22, 7, 23, 10, 26, 11, 27, 14, 30, 15, 31
#define PIPETWIN_FIRST 0, 1, 16, 17, 4, 5, 20, 21, 8, 9, 24, 25, 12, 13, 28, 29
#define PIPETWIN_SECOND 2, 3, 18, 19, 6, 7, 22, 23, 10, 11, 26, 27, 14, 15, 30, 31
    const Pairs low01 = __builtin_shufflevector(r[0], r[1], PIPETWIN_LOW);
    const Pairs high01 = __builtin_shufflevector(r[0], r[1], PIPETWIN_HIGH);
    const Pairs low23 = __builtin_shufflevector(r[2], r[3], PIPETWIN_LOW);
    const Pairs high23 = __builtin_shufflevector(r[2], r[3], PIPETWIN_HIGH);
    r[0] = __builtin_shufflevector(low01, low23, PIPETWIN_FIRST);
    r[1] = __builtin_shufflevector(low01, low23, PIPETWIN_SECOND);
    r[2] = __builtin_shufflevector(high01, high23, PIPETWIN_FIRST);
    r[3] = __builtin_shufflevector(high01, high23, PIPETWIN_SECOND);
#undef PIPETWIN_LOW
#undef PIPETWIN_HIGH
#undef PIPETWIN_FIRST
#undef PIPETWIN_SECOND
}

/// Panel of `width` lines, of which `used` exist, and `depth` numbers of each, where neighbours of
/// the depth are neighbours in memory. A missing number is zero.
template <std::int64_t width>
PIPETWIN_TARGET void turn_pair_panel(const BFloat16* from,
                                     std::int64_t stride,
                                     std::int64_t depth,
                                     std::int64_t used,
                                     BFloat16Pair* panel) {
    constexpr std::int64_t numbers = 32;  // of one vector
    for (std::int64_t p = 0; p < depth; p += numbers) {
        const std::int64_t count = std::min(numbers, depth - p);
        const std::int64_t cells = (count + 1) / 2;
        const auto exist = static_cast<__mmask32>((std::uint64_t{1} << count) - 1);
        BFloat16Pair* const to = panel + p / 2 * width;
        for (std::int64_t line = 0; line < width; line += 4) {
            Pairs row[4];
#pragma GCC unroll 4
            for (std::int64_t i = 0; i < 4; ++i) {
                const bool exists = line + i < used;
                const BFloat16* const source = from + (exists ? (line + i) * stride : 0) + p;
                row[i] = std::bit_cast<Pairs>(
                    _mm512_maskz_loadu_epi16(exists ? exist : __mmask32{0}, source));
            }
            turn_in_lanes(row);
            if (cells == numbers / 2) {
#pragma GCC unroll 4
                for (std::int64_t i = 0; i < 4; ++i) {
                    BFloat16Pair* const place = to + i * width + line;
                    store(__builtin_shufflevector(row[i], row[i], 0, 1, 2, 3), place);
                    store(__builtin_shufflevector(row[i], row[i], 4, 5, 6, 7), place + 4 * width);
                    store(__builtin_shufflevector(row[i], row[i], 8, 9, 10, 11), place + 8 * width);
                    store(__builtin_shufflevector(row[i], row[i], 12, 13, 14, 15),
                          place + 12 * width);
                }
            } else {
                for (std::int64_t cell = 0; cell < cells; ++cell) {
                    const auto* const turned =
                        reinterpret_cast<const BFloat16Pair*>(row + cell % 4);
                    std::copy_n(turned + cell / 4 * 4, 4, to + cell * width + line);
                }
            }
        }
    }
}

typedef std::uint16_t Halves __attribute__((vector_size(32)));

/// Pairs of two rows' numbers.
PIPETWIN_INLINE_TARGET Pairs paired(Halves first, Halves second) {
    return __builtin_convertvector(first, Pairs) | (__builtin_convertvector(second, Pairs) << 16);
}

/// Cells of a row of a panel from two rows of memory, of which `used` numbers exist; a null
/// `second` counts as zeros.
template <std::int64_t width>
PIPETWIN_TARGET void copy_some_pairs(const BFloat16* first,
                                     const BFloat16* second,
                                     std::int64_t used,
                                     BFloat16Pair* to) {
    constexpr std::int64_t lanes = 16;
    for (std::int64_t line = 0; line < width; line += lanes) {
        const std::int64_t wide = std::min(lanes, width - line);
        const std::int64_t count = std::clamp<std::int64_t>(used - line, 0, wide);
        const auto exist = static_cast<__mmask16>((1U << count) - 1);
        const auto low = std::bit_cast<Halves>(_mm256_maskz_loadu_epi16(exist, first + line));
        const auto high =
            second == nullptr
                ? Halves{}
                : std::bit_cast<Halves>(_mm256_maskz_loadu_epi16(exist, second + line));
        _mm512_mask_storeu_epi32(to + line,
                                 static_cast<__mmask16>((1U << wide) - 1),
                                 std::bit_cast<__m512i>(paired(low, high)));
    }
}

/// Panel where neighbours of a line's direction are neighbours in memory.
template <std::int64_t width>
PIPETWIN_TARGET void copy_pair_panel(const BFloat16* from,
                                     std::int64_t stride,
                                     std::int64_t depth,
                                     std::int64_t used,
                                     BFloat16Pair* panel) {
    constexpr std::int64_t lanes = 16;
    constexpr std::int64_t ahead = 8;  // rows lie far apart: the machine does not foresee them
    const bool whole_vectors = used == width && width % lanes == 0;
    for (std::int64_t p = 0; p < depth; p += 2) {
        const BFloat16* const first = from + p * stride;
        const BFloat16* const second = p + 1 < depth ? first + stride : nullptr;
        BFloat16Pair* const to = panel + p / 2 * width;
        __builtin_prefetch(first + ahead * stride);
        __builtin_prefetch(first + (ahead + 1) * stride);
        if (whole_vectors && second != nullptr) {
#pragma GCC unroll 4
            for (std::int64_t line = 0; line < width; line += lanes) {
                Halves low;
                Halves high;
                std::memcpy(&low, first + line, sizeof(low));
                std::memcpy(&high, second + line, sizeof(high));
                store(paired(low, high), to + line);
            }
        } else {
            copy_some_pairs<width>(first, second, used, to);
        }
    }
}

/// Makes panels of pairs as `make_panels` of product_kernel.h does of numbers; `begin` is even.
template <std::int64_t width>
PIPETWIN_TARGET void make_pair_panels(const Factor& factor,
                                      bool across,
                                      std::int64_t line,
                                      std::int64_t lines,
                                      std::int64_t begin,
                                      std::int64_t depth,
                                      BFloat16Pair* panels) {
    const auto* const data = static_cast<const BFloat16*>(factor.data);
    const std::int64_t cells = (depth + 1) / 2;
    if (across) {
        for (std::int64_t i = 0; i < lines; i += width) {
            turn_pair_panel<width>(data + (line + i) * factor.stride + begin,
                                   factor.stride,
                                   depth,
                                   std::min(width, lines - i),
                                   panels + i * cells);
        }
        return;
    }
    constexpr std::int64_t rows_at_once = 32;  // so that pages of memory are met again soon
    for (std::int64_t p = 0; p < depth; p += rows_at_once) {
        for (std::int64_t i = 0; i < lines; i += width) {
            copy_pair_panel<width>(data + (begin + p) * factor.stride + line + i,
                                   factor.stride,
                                   std::min(rows_at_once, depth - p),
                                   std::min(width, lines - i),
                                   panels + i * cells + p / 2 * width);
        }
    }
}

/// sum + x y, lane by lane; x is one pair for all lanes.
typedef float PairSums __attribute__((vector_size(64)));
PIPETWIN_INLINE_TARGET PairSums multiply_add(PairSums sum, BFloat16Pair x, Pairs y) {
    const __m512i all = _mm512_set1_epi32(static_cast<int>(x.bits));
    return std::bit_cast<PairSums>(_mm512_dpbf16_ps(
        std::bit_cast<__m512>(sum), std::bit_cast<__m512bh>(all), std::bit_cast<__m512bh>(y)));
}

}  // namespace
}  // namespace pipetwin::exec
