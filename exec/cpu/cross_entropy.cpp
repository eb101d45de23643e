#include <algorithm>
#include <cmath>

#include "core/base/simd_targets.h"
#include "exec/cpu/loops.h"
#include "exec/cpu/vector_math.h"

namespace pipetwin::exec {

namespace {

/// The sum of exp(row[j] - largest). On its way it lets the cache fetch the next row, which
/// otherwise would come from memory while nothing is computed.
template <class T>
PIPETWIN_INLINE Computed<T> sum_of_exponentials(const T* row,
                                                std::size_t width,
                                                Computed<T> largest,
                                                const T* next_row) {
    using C = Computed<T>;
    constexpr std::size_t line = 64 / sizeof(T);
    constexpr std::size_t piece = 32 * line;
    LaneSum<C> sum;
    for (std::size_t begin = 0; begin < width; begin += piece) {
        const std::size_t end = std::min(begin + piece, width);
        for (std::size_t j = begin; j < end; j += line) {
            __builtin_prefetch(next_row + j, 0, 2);
        }
        sum.add(begin, end, [=](std::size_t j) { return exponential(computed(row[j]) - largest); });
    }
    return sum.total();
}

}  // namespace

// l = log(sum exp x) = largest + log(sum exp(x - largest)); returns the sum of l - x[target]
template <class T>
PIPETWIN_SIMD_TARGETS double cross_entropy_forward(const T* x,
                                                   const std::int32_t* targets,
                                                   Computed<T>* log_sums,
                                                   std::size_t n,
                                                   std::size_t width) {
    using C = Computed<T>;
    double sum = 0;
    for (std::size_t r = 0; r < n; ++r) {
        const T* const row = x + r * width;
        const C largest = largest_of(row, width);
        const C exponentials =
            sum_of_exponentials(row, width, largest, r + 1 < n ? row + width : row);
        const double log_sum =
            static_cast<double>(largest) + std::log(static_cast<double>(exponentials));
        log_sums[r] = static_cast<C>(log_sum);
        sum += log_sum - static_cast<double>(computed(row[targets[r]]));
    }
    return sum;
}

// dx = scale (exp(x - l) - one at the target)
template <class T>
PIPETWIN_SIMD_TARGETS void cross_entropy_backward(const CrossEntropyOperands<T>& o, T* dx) {
    using C = Computed<T>;
    const C scale = static_cast<C>(o.scale);
    const std::size_t width = o.width;
    for (std::size_t r = 0; r < o.n; ++r) {
        const T* const x = o.x + r * width;
        T* const row = dx + r * width;
        const C log_sum = o.log_sums[r];
        const std::int32_t target = o.targets[r];
        // Before dx takes the place of x. Rounded once.
        const C at_target = exponential(computed(x[target]) - log_sum) * scale - scale;
        PIPETWIN_ELEMENTWISE
        for (std::size_t j = 0; j < width; ++j) {
            row[j] = stored<T>(exponential(computed(x[j]) - log_sum) * scale);
        }
        row[target] = stored<T>(at_target);
    }
}

#define PIPETWIN_CROSS_ENTROPY(T)                                               \
    template double cross_entropy_forward(                                      \
        const T*, const std::int32_t*, Computed<T>*, std::size_t, std::size_t); \
    template void cross_entropy_backward(const CrossEntropyOperands<T>&, T*)
PIPETWIN_CROSS_ENTROPY(float);
PIPETWIN_CROSS_ENTROPY(double);
PIPETWIN_CROSS_ENTROPY(BFloat16);
#undef PIPETWIN_CROSS_ENTROPY

}  // namespace pipetwin::exec
