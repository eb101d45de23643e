// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>

#include "core/base/simd_targets.h"
#include "exec/base/random.h"
#include "exec/cpu/columns/column_loops.h"

namespace pipetwin::exec {
namespace {

constexpr std::size_t dropped_tile = 512;

}  // namespace

// With slope 0 an infinite x has to give 0, which a product does not.
template <class T>
PIPETWIN_SIMD_TARGETS void rectify(double slope, const T* x, T* y, std::size_t size) {
    using C = Computed<T>;
    const C factor = static_cast<C>(slope);
    if (slope == 0) {
        PIPETWIN_ELEMENTWISE
        for (std::size_t i = 0; i < size; ++i) {
            const C value = computed(x[i]);
            y[i] = stored<T>(value <= C(0) ? C(0) : value);  // what is not a number stays so
        }
        return;
    }
    PIPETWIN_ELEMENTWISE
    for (std::size_t i = 0; i < size; ++i) {
        const C value = computed(x[i]);
        y[i] = stored<T>(value > C(0) ? value : value * factor);
    }
}

template <class T>
PIPETWIN_SIMD_TARGETS void rectify_backward(
    double slope, const T* x, const T* dy, T* dx, std::size_t size) {
    using C = Computed<T>;
    const C factor = static_cast<C>(slope);
    if (slope == 0) {
        PIPETWIN_ELEMENTWISE
        for (std::size_t i = 0; i < size; ++i) {
            dx[i] = stored<T>(computed(x[i]) <= C(0) ? C(0) : computed(dy[i]));
        }
        return;
    }
    PIPETWIN_ELEMENTWISE
    for (std::size_t i = 0; i < size; ++i) {
        const C value = computed(dy[i]);
        dx[i] = stored<T>(computed(x[i]) > C(0) ? value : value * factor);
    }
}

// Columns 2k and 2k + 1 share 64 random bits.
template <class T>
PIPETWIN_SIMD_TARGETS void drop_columns(const ColumnDropOperands<T>& o, T* y) {
    using C = Computed<T>;
    const RandomStream random = RandomStream::with_key(o.key);
    std::array<C, dropped_tile> factor;
    for (std::size_t first = 0; first < o.columns; first += dropped_tile) {
        const std::size_t count = std::min(dropped_tile, o.columns - first);
        for (std::size_t j = 0; j < count; ++j) {
            const std::size_t number = o.whole ? 0 : first + j;
            const std::uint64_t both = random.bits(number / 2);
            const auto bits = static_cast<std::uint32_t>(number % 2 == 0 ? both : both >> 32U);
            factor[j] = bits < o.threshold ? C(0) : static_cast<C>(o.scale);
        }
        for (std::size_t r = 0; r < o.rows; ++r) {
            const std::size_t begin = r * o.columns + first;
            const T* const x = o.x + begin;
            T* const row = y + begin;
            if (o.skip == nullptr) {
                PIPETWIN_ELEMENTWISE
                for (std::size_t j = 0; j < count; ++j) {
                    row[j] = stored<T>(factor[j] == C(0) ? C(0) : computed(x[j]) * factor[j]);
                }
            } else {
                const T* const skip = o.skip + begin;
                PIPETWIN_ELEMENTWISE
                for (std::size_t j = 0; j < count; ++j) {
                    row[j] = stored<T>(computed(skip[j]) +
                                       (factor[j] == C(0) ? C(0) : computed(x[j]) * factor[j]));
                }
            }
        }
    }
}

#define PIPETWIN_COLUMN_ELEMENTWISE(T)                                           \
    template void rectify(double, const T*, T*, std::size_t);                    \
    template void rectify_backward(double, const T*, const T*, T*, std::size_t); \
    template void drop_columns(const ColumnDropOperands<T>&, T*)
PIPETWIN_COLUMN_ELEMENTWISE(float);
PIPETWIN_COLUMN_ELEMENTWISE(double);
PIPETWIN_COLUMN_ELEMENTWISE(BFloat16);
#undef PIPETWIN_COLUMN_ELEMENTWISE

}  // namespace pipetwin::exec
