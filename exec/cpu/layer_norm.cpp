#include <cmath>

#include "core/clones.h"
#include "exec/cpu/loops.h"
#include "exec/cpu/vector_math.h"

// Per row: m = mean(x), s = 1 / sqrt(mean((x - m)^2) + epsilon), z = (x - m) s.
namespace pipetwin::exec {
namespace {

constexpr double epsilon = 1e-5;

}  // namespace

// y = gain * z + bias
template <class T>
PIPETWIN_CLONES void layer_norm_forward(const LayerNormOperands<T>& o, T* y, T* statistics) {
    const std::size_t width = o.width;
    const T* const gain = o.gain;
    const T* const bias = o.bias;
    const T count = static_cast<T>(width);
    for (std::size_t r = 0; r < o.n; ++r) {
        const T* const x = o.x + r * width;
        T* const row = y + r * width;
        // Two passes over a row in the first cache: the variance of large means would drown in one.
        const T m = sum_of<T>(width, [x](std::size_t j) { return x[j]; }) / count;
        const T variance =
            sum_of<T>(width, [x, m](std::size_t j) { return (x[j] - m) * (x[j] - m); }) / count;
        const T s = T(1) / std::sqrt(variance + static_cast<T>(epsilon));
        PIPETWIN_ELEMENTWISE
        for (std::size_t j = 0; j < width; ++j) {
            row[j] = gain[j] * ((x[j] - m) * s) + bias[j];
        }
        statistics[2 * r] = m;
        statistics[2 * r + 1] = s;
    }
}

// dx = skip + s (g - mean(g) - z mean(g * z)),  g = gain * dy
template <class T>
PIPETWIN_CLONES void layer_norm_backward_input(const LayerNormOperands<T>& o,
                                               const T* statistics,
                                               T* dx) {
    const std::size_t width = o.width;
    const T* const gain = o.gain;
    const T count = static_cast<T>(width);
    for (std::size_t r = 0; r < o.n; ++r) {
        const T* const x = o.x + r * width;
        const T* const dy = o.dy + r * width;
        T* const row = dx + r * width;
        const T m = statistics[2 * r];
        const T s = statistics[2 * r + 1];
        const T mean_g = sum_of<T>(width, [=](std::size_t j) { return gain[j] * dy[j]; }) / count;
        const T mean_gz =
            sum_of<T>(width, [=](std::size_t j) { return gain[j] * dy[j] * ((x[j] - m) * s); }) /
            count;
        if (o.skip == nullptr) {
            PIPETWIN_ELEMENTWISE
            for (std::size_t j = 0; j < width; ++j) {
                row[j] = s * (gain[j] * dy[j] - mean_g - (x[j] - m) * s * mean_gz);
            }
        } else {
            const T* const skip = o.skip + r * width;
            PIPETWIN_ELEMENTWISE
            for (std::size_t j = 0; j < width; ++j) {
                row[j] = skip[j] + s * (gain[j] * dy[j] - mean_g - (x[j] - m) * s * mean_gz);
            }
        }
    }
}

// dgain += sum of dy * z,  dbias += sum of dy
template <class T>
PIPETWIN_CLONES void layer_norm_backward_weight(const LayerNormOperands<T>& o,
                                                const T* statistics,
                                                T* dgain,
                                                T* dbias) {
    const std::size_t width = o.width;
    for (std::size_t r = 0; r < o.n; ++r) {
        const T* const x = o.x + r * width;
        const T* const dy = o.dy + r * width;
        const T m = statistics[2 * r];
        const T s = statistics[2 * r + 1];
        PIPETWIN_ELEMENTWISE
        for (std::size_t j = 0; j < width; ++j) {
            dgain[j] += dy[j] * ((x[j] - m) * s);
            dbias[j] += dy[j];
        }
    }
}

template void layer_norm_forward(const LayerNormOperands<float>&, float*, float*);
template void layer_norm_forward(const LayerNormOperands<double>&, double*, double*);
template void layer_norm_backward_input(const LayerNormOperands<float>&, const float*, float*);
template void layer_norm_backward_input(const LayerNormOperands<double>&, const double*, double*);
template void layer_norm_backward_weight(const LayerNormOperands<float>&,
                                         const float*,
                                         float*,
                                         float*);
template void layer_norm_backward_weight(const LayerNormOperands<double>&,
                                         const double*,
                                         double*,
                                         double*);

}  // namespace pipetwin::exec
