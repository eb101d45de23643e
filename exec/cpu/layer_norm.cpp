// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "core/base/simd_targets.h"
#include "exec/cpu/cpu_kernels.h"
#include "exec/cpu/loops.h"
#include "exec/cpu/vector_math.h"

// Per row: m = mean(x), s = 1 / sqrt(mean((x - m)^2) + epsilon), z = (x - m) s.
namespace pipetwin::exec {
namespace {

/// Operands of a layer norm's three functions; each reads those that its formula names.
template <class T>
struct LayerNormOperands {
    std::size_t n = 0;
    std::size_t width = 0;
    const T* x = nullptr;
    const T* gain = nullptr;
    const T* bias = nullptr;
    const T* dy = nullptr;
    const T* skip = nullptr;
};

/// Operands of an RMSNorm's three functions; each reads those that its formula names.
template <class T>
struct RmsNormOperands {
    std::size_t n = 0;
    std::size_t width = 0;
    const T* x = nullptr;
    const T* gain = nullptr;
    const Computed<T>* roots = nullptr;  ///< (n) 1 / sqrt(mean(x^2) + epsilon)
    const T* dy = nullptr;
    const T* skip = nullptr;
};

constexpr double epsilon = 1e-5;

// y = gain * z + bias
template <class T>
PIPETWIN_SIMD_TARGETS void layer_norm_forward(const LayerNormOperands<T>& o,
                                              T* y,
                                              Computed<T>* statistics) {
    using C = Computed<T>;
    const std::size_t width = o.width;
    const T* const gain = o.gain;
    const T* const bias = o.bias;
    const C count = static_cast<C>(width);
    for (std::size_t r = 0; r < o.n; ++r) {
        const T* const x = o.x + r * width;
        T* const row = y + r * width;
        // Two passes over a row in the first cache: the variance of large means would drown in one.
        const C m = sum_of<C>(width, [x](std::size_t j) { return computed(x[j]); }) / count;
        const C variance = sum_of<C>(width,
                                     [x, m](std::size_t j) {
                                         return (computed(x[j]) - m) * (computed(x[j]) - m);
                                     }) /
                           count;
        const C s = C(1) / std::sqrt(variance + static_cast<C>(epsilon));
        PIPETWIN_ELEMENTWISE
        for (std::size_t j = 0; j < width; ++j) {
            row[j] = stored<T>(computed(gain[j]) * ((computed(x[j]) - m) * s) + computed(bias[j]));
        }
        statistics[2 * r] = m;
        statistics[2 * r + 1] = s;
    }
}

// dx = skip + s (g - mean(g) - z mean(g * z)),  g = gain * dy
template <class T>
PIPETWIN_SIMD_TARGETS void layer_norm_backward_input(const LayerNormOperands<T>& o,
                                                     const Computed<T>* statistics,
                                                     T* dx) {
    using C = Computed<T>;
    const std::size_t width = o.width;
    const T* const gain = o.gain;
    const C count = static_cast<C>(width);
    for (std::size_t r = 0; r < o.n; ++r) {
        const T* const x = o.x + r * width;
        const T* const dy = o.dy + r * width;
        T* const row = dx + r * width;
        const C m = statistics[2 * r];
        const C s = statistics[2 * r + 1];
        const C mean_g =
            sum_of<C>(width, [=](std::size_t j) { return computed(gain[j]) * computed(dy[j]); }) /
            count;
        const C mean_gz =
            sum_of<C>(width,
                      [=](std::size_t j) {
                          return computed(gain[j]) * computed(dy[j]) * ((computed(x[j]) - m) * s);
                      }) /
            count;
        if (o.skip == nullptr) {
            PIPETWIN_ELEMENTWISE
            for (std::size_t j = 0; j < width; ++j) {
                row[j] = stored<T>(s * (computed(gain[j]) * computed(dy[j]) - mean_g -
                                        (computed(x[j]) - m) * s * mean_gz));
            }
        } else {
            const T* const skip = o.skip + r * width;
            PIPETWIN_ELEMENTWISE
            for (std::size_t j = 0; j < width; ++j) {
                row[j] = stored<T>(computed(skip[j]) +
                                   s * (computed(gain[j]) * computed(dy[j]) - mean_g -
                                        (computed(x[j]) - m) * s * mean_gz));
            }
        }
    }
}

// dgain += sum of dy * z,  dbias += sum of dy
template <class T>
PIPETWIN_SIMD_TARGETS void layer_norm_backward_weight(const LayerNormOperands<T>& o,
                                                      const Computed<T>* statistics,
                                                      Computed<T>* dgain,
                                                      Computed<T>* dbias) {
    using C = Computed<T>;
    const std::size_t width = o.width;
    for (std::size_t r = 0; r < o.n; ++r) {
        const T* const x = o.x + r * width;
        const T* const dy = o.dy + r * width;
        const C m = statistics[2 * r];
        const C s = statistics[2 * r + 1];
        PIPETWIN_ELEMENTWISE
        for (std::size_t j = 0; j < width; ++j) {
            dgain[j] += computed(dy[j]) * ((computed(x[j]) - m) * s);
            dbias[j] += computed(dy[j]);
        }
    }
}

// y = gain * z,  z = x s,  s = 1 / sqrt(mean(x^2) + epsilon)
template <class T>
PIPETWIN_SIMD_TARGETS void rms_norm_forward(const RmsNormOperands<T>& o,
                                            double added,
                                            T* y,
                                            Computed<T>* roots) {
    using C = Computed<T>;
    const std::size_t width = o.width;
    const T* const gain = o.gain;
    const C count = static_cast<C>(width);
    for (std::size_t r = 0; r < o.n; ++r) {
        const T* const x = o.x + r * width;
        T* const row = y + r * width;
        const C mean_square =
            sum_of<C>(width, [x](std::size_t j) { return computed(x[j]) * computed(x[j]); }) /
            count;
        const C s = C(1) / std::sqrt(mean_square + static_cast<C>(added));
        PIPETWIN_ELEMENTWISE
        for (std::size_t j = 0; j < width; ++j) {
            row[j] = stored<T>(computed(gain[j]) * (computed(x[j]) * s));
        }
        roots[r] = s;
    }
}

// dx = skip + s (g - z mean(g * z)),  g = gain * dy
template <class T>
PIPETWIN_SIMD_TARGETS void rms_norm_backward_input(const RmsNormOperands<T>& o, T* dx) {
    using C = Computed<T>;
    const std::size_t width = o.width;
    const T* const gain = o.gain;
    const C count = static_cast<C>(width);
    for (std::size_t r = 0; r < o.n; ++r) {
        const T* const x = o.x + r * width;
        const T* const dy = o.dy + r * width;
        T* const row = dx + r * width;
        const C s = o.roots[r];
        const C mean_gz =
            sum_of<C>(width,
                      [=](std::size_t j) {
                          return computed(gain[j]) * computed(dy[j]) * (computed(x[j]) * s);
                      }) /
            count;
        if (o.skip == nullptr) {
            PIPETWIN_ELEMENTWISE
            for (std::size_t j = 0; j < width; ++j) {
                row[j] = stored<T>(
                    s * (computed(gain[j]) * computed(dy[j]) - computed(x[j]) * s * mean_gz));
            }
        } else {
            const T* const skip = o.skip + r * width;
            PIPETWIN_ELEMENTWISE
            for (std::size_t j = 0; j < width; ++j) {
                row[j] = stored<T>(computed(skip[j]) + s * (computed(gain[j]) * computed(dy[j]) -
                                                            computed(x[j]) * s * mean_gz));
            }
        }
    }
}

// dgain += sum of dy * z
template <class T>
PIPETWIN_SIMD_TARGETS void rms_norm_backward_weight(const RmsNormOperands<T>& o,
                                                    Computed<T>* dgain) {
    using C = Computed<T>;
    const std::size_t width = o.width;
    for (std::size_t r = 0; r < o.n; ++r) {
        const T* const x = o.x + r * width;
        const T* const dy = o.dy + r * width;
        const C s = o.roots[r];
        PIPETWIN_ELEMENTWISE
        for (std::size_t j = 0; j < width; ++j) {
            dgain[j] += computed(dy[j]) * (computed(x[j]) * s);
        }
    }
}

}  // namespace

void CpuKernels::layer_norm_forward(
    ConstView x, ConstView gain, ConstView bias, View y, View statistics) const {
    with_type(y.dtype, [&](auto zero) {
        using T = decltype(zero);
        const LayerNormOperands<T> o{.n = count(x.rows),
                                     .width = count(x.columns),
                                     .x = x.as<T>(),
                                     .gain = gain.as<T>(),
                                     .bias = bias.as<T>()};
        exec::layer_norm_forward(o, y.as<T>(), statistics.as<Computed<T>>());
    });
}

void CpuKernels::layer_norm_backward_input(ConstView x,
                                           ConstView gain,
                                           ConstView statistics,
                                           ConstView dy,
                                           ConstView skip,
                                           View dx) const {
    with_type(dx.dtype, [&](auto zero) {
        using T = decltype(zero);
        const LayerNormOperands<T> o{.n = count(x.rows),
                                     .width = count(x.columns),
                                     .x = x.as<T>(),
                                     .gain = gain.as<T>(),
                                     .dy = dy.as<T>(),
                                     .skip = skip.as<T>()};
        exec::layer_norm_backward_input(o, statistics.as<Computed<T>>(), dx.as<T>());
    });
}

void CpuKernels::layer_norm_backward_weight(ConstView x,
                                            ConstView statistics,
                                            ConstView dy,
                                            const GradientSum& dgain,
                                            const GradientSum& dbias) const {
    View gain_sums = begun(dgain);
    View bias_sums = begun(dbias);
    with_type(x.dtype, [&](auto zero) {
        using T = decltype(zero);
        const LayerNormOperands<T> o{
            .n = count(x.rows), .width = count(x.columns), .x = x.as<T>(), .dy = dy.as<T>()};
        exec::layer_norm_backward_weight(o,
                                         statistics.as<Computed<T>>(),
                                         gain_sums.as<Computed<T>>(),
                                         bias_sums.as<Computed<T>>());
    });
}

void CpuKernels::rms_norm_forward(
    ConstView x, ConstView gain, double epsilon, View y, View roots) const {
    with_type(y.dtype, [&](auto zero) {
        using T = decltype(zero);
        const RmsNormOperands<T> o{
            .n = count(x.rows), .width = count(x.columns), .x = x.as<T>(), .gain = gain.as<T>()};
        exec::rms_norm_forward(o, epsilon, y.as<T>(), roots.as<Computed<T>>());
    });
}

void CpuKernels::rms_norm_backward_input(
    ConstView x, ConstView gain, ConstView roots, ConstView dy, ConstView skip, View dx) const {
    with_type(dx.dtype, [&](auto zero) {
        using T = decltype(zero);
        const RmsNormOperands<T> o{.n = count(x.rows),
                                   .width = count(x.columns),
                                   .x = x.as<T>(),
                                   .gain = gain.as<T>(),
                                   .roots = roots.as<Computed<T>>(),
                                   .dy = dy.as<T>(),
                                   .skip = skip.as<T>()};
        exec::rms_norm_backward_input(o, dx.as<T>());
    });
}

void CpuKernels::rms_norm_backward_weight(ConstView x,
                                          ConstView roots,
                                          ConstView dy,
                                          const GradientSum& dgain) const {
    View sums = begun(dgain);
    with_type(x.dtype, [&](auto zero) {
        using T = decltype(zero);
        const RmsNormOperands<T> o{.n = count(x.rows),
                                   .width = count(x.columns),
                                   .x = x.as<T>(),
                                   .roots = roots.as<Computed<T>>(),
                                   .dy = dy.as<T>()};
        exec::rms_norm_backward_weight(o, sums.as<Computed<T>>());
    });
}

}  // namespace pipetwin::exec
