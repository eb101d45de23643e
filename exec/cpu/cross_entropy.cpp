#include <cmath>

#include "core/clones.h"
#include "exec/cpu/loops.h"
#include "exec/cpu/vector_math.h"

namespace pipetwin::exec {

// l = log(sum exp x) = largest + log(sum exp(x - largest)); returns the sum of l - x[target]
template <class T>
PIPETWIN_CLONES double cross_entropy_forward(
    const T* x, const std::int32_t* targets, T* log_sums, std::size_t n, std::size_t width) {
    double sum = 0;
    for (std::size_t r = 0; r < n; ++r) {
        const T* const row = x + r * width;
        const T largest = largest_of(row, width);
        const T exponentials =
            sum_of<T>(width, [=](std::size_t j) { return exponential(row[j] - largest); });
        const double log_sum =
            static_cast<double>(largest) + std::log(static_cast<double>(exponentials));
        log_sums[r] = static_cast<T>(log_sum);
        sum += log_sum - static_cast<double>(row[targets[r]]);
    }
    return sum;
}

// dx = scale (exp(x - l) - one at the target)
template <class T>
PIPETWIN_CLONES void cross_entropy_backward(const CrossEntropyOperands<T>& o, T* dx) {
    const T scale = static_cast<T>(o.scale);
    const std::size_t width = o.width;
    for (std::size_t r = 0; r < o.n; ++r) {
        const T* const x = o.x + r * width;
        T* const row = dx + r * width;
        const T log_sum = o.log_sums[r];
        PIPETWIN_ELEMENTWISE
        for (std::size_t j = 0; j < width; ++j) {
            row[j] = exponential(x[j] - log_sum) * scale;
        }
        row[o.targets[r]] -= scale;
    }
}

template double cross_entropy_forward(
    const float*, const std::int32_t*, float*, std::size_t, std::size_t);
template double cross_entropy_forward(
    const double*, const std::int32_t*, double*, std::size_t, std::size_t);
template void cross_entropy_backward(const CrossEntropyOperands<float>&, float*);
template void cross_entropy_backward(const CrossEntropyOperands<double>&, double*);

}  // namespace pipetwin::exec
