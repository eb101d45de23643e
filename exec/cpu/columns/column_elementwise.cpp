// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>

#include "core/base/simd_targets.h"
#include "exec/base/random.h"
#include "exec/cpu/columns/cpu_column_kernels.h"

namespace pipetwin::exec {
namespace {

constexpr std::size_t dropped_tile = 512;

/// Operands of the dropout of the columns of one sample, with the bits of `key`.
template <class T>
struct ColumnDropOperands {
    std::size_t rows = 0;
    std::size_t columns = 0;
    bool whole = false;  ///< one decision for all columns
    std::uint64_t key = 0;
    std::uint32_t threshold = 0;
    double scale = 1;
    const T* x = nullptr;
    const T* skip = nullptr;  ///< may be null
};

// With slope 0 an infinite number has to give 0, which a product does not; what is not a number
// stays so.
template <class T>
PIPETWIN_SIMD_TARGETS void rectify(
    double slope, const T* x, const T* from, T* to, std::size_t size) {
    using C = Computed<T>;
    const C factor = static_cast<C>(slope);
    if (slope == 0) {
        PIPETWIN_ELEMENTWISE
        for (std::size_t i = 0; i < size; ++i) {
            to[i] = stored<T>(computed(x[i]) <= C(0) ? C(0) : computed(from[i]));
        }
        return;
    }
    PIPETWIN_ELEMENTWISE
    for (std::size_t i = 0; i < size; ++i) {
        const C value = computed(from[i]);
        to[i] = stored<T>(computed(x[i]) > C(0) ? value : value * factor);
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

}  // namespace

void CpuColumnKernels::rectify(double slope, ConstView x, ConstView from, View to) const {
    with_type(to.dtype, [&](auto zero) {
        using T = decltype(zero);
        exec::rectify(slope, x.as<T>(), from.as<T>(), to.as<T>(), as_index(to.size()));
    });
}

void CpuColumnKernels::drop_columns(
    const DropoutMask& mask, int samples, ConstView x, ConstView skip, View y) const {
    PIPETWIN_EXPECT(mask.numbers_per_sample == y.columns || mask.numbers_per_sample == 1,
                    "a decision for each column, or for the sample");
    with_type(y.dtype, [&](auto zero) {
        using T = decltype(zero);
        const std::int64_t size = y.size() / samples;
        const RandomStream random = RandomStream::with_key(mask.key);
        for (int s = 0; s < samples; ++s) {
            const std::int64_t begin = s * size;
            const auto sample = static_cast<std::uint64_t>(mask.first_sample + s);
            const ColumnDropOperands<T> o{.rows = as_index(y.rows / samples),
                                          .columns = as_index(y.columns),
                                          .whole = mask.numbers_per_sample == 1,
                                          .key = random.of(sample).key(),
                                          .threshold = mask.threshold(),
                                          .scale = mask.scale(),
                                          .x = x.as<T>() + begin,
                                          .skip = skip.empty() ? nullptr : skip.as<T>() + begin};
            exec::drop_columns(o, y.as<T>() + begin);
        }
    });
}

}  // namespace pipetwin::exec
