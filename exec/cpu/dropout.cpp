// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "core/base/simd_targets.h"
#include "exec/base/random.h"
#include "exec/cpu/cpu_kernels.h"
#include "exec/cpu/loops.h"

// Two numbers share 64 random bits, which cost two multiplications.
namespace pipetwin::exec {
namespace {

/// Operands of the dropout of one sample, of `size` numbers, with the bits of `key`. `skip` may be
/// null.
template <class T>
struct DropoutOperands {
    std::size_t size = 0;
    std::size_t first = 0;  ///< place of the first number in the sample
    std::uint64_t key = 0;
    std::uint32_t threshold = 0;
    double scale = 1;
    const T* x = nullptr;
    const T* skip = nullptr;
};

template <class T, bool has_skip>
PIPETWIN_INLINE void drop(const DropoutOperands<T>& o, T* y) {
    using C = Computed<T>;
    const RandomStream random = RandomStream::with_key(o.key);
    const std::uint32_t threshold = o.threshold;
    const C scale = static_cast<C>(o.scale);
    const T* const x = o.x;
    const T* const skip = o.skip;
    const auto put = [=](std::size_t i, std::uint32_t bits) __attribute__((always_inline)) {
        const C kept = bits < threshold ? C(0) : computed(x[i]) * scale;
        y[i] = stored<T>(has_skip ? computed(skip[i]) + kept : kept);
    };
    const std::size_t odd = std::min(o.first % 2, o.size);  // the second of a pair comes first
    if (odd == 1) {
        put(0, static_cast<std::uint32_t>(random.bits(o.first / 2) >> 32U));
    }
    const std::size_t first_pair = (o.first + odd) / 2;
    const std::size_t pairs = (o.size - odd) / 2;
    PIPETWIN_ELEMENTWISE
    for (std::size_t k = 0; k < pairs; ++k) {
        const std::uint64_t bits = random.bits(first_pair + k);
        put(odd + 2 * k, static_cast<std::uint32_t>(bits));
        put(odd + 2 * k + 1, static_cast<std::uint32_t>(bits >> 32U));
    }
    if (odd + 2 * pairs < o.size) {
        put(odd + 2 * pairs, static_cast<std::uint32_t>(random.bits(first_pair + pairs)));
    }
}

template <class T>
PIPETWIN_SIMD_TARGETS void dropout(const DropoutOperands<T>& o, T* y) {
    if (o.skip == nullptr) {
        drop<T, false>(o, y);
    } else {
        drop<T, true>(o, y);
    }
}

}  // namespace

void CpuKernels::dropout(const DropoutMask& mask, ConstView x, ConstView skip, View y) const {
    with_type(y.dtype, [&](auto zero) {
        using T = decltype(zero);
        const std::int64_t size = mask.numbers_per_sample;
        const RandomStream random = RandomStream::with_key(mask.key);
        std::int64_t end = 0;
        for (std::int64_t begin = 0; begin < y.size(); begin = end) {
            const std::int64_t place = mask.first_number + begin;
            const auto sample = static_cast<std::uint64_t>(mask.first_sample + place / size);
            end = std::min(begin + size - place % size, y.size());
            const DropoutOperands<T> o{.size = count(end - begin),
                                       .first = count(place % size),
                                       .key = random.of(sample).key(),
                                       .threshold = mask.threshold(),
                                       .scale = mask.scale(),
                                       .x = x.as<T>() + begin,
                                       .skip = skip.empty() ? nullptr : skip.as<T>() + begin};
            exec::dropout(o, y.as<T>() + begin);
        }
    });
}

}  // namespace pipetwin::exec
