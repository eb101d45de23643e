// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "core/base/simd_targets.h"
#include "exec/cpu/cpu_kernels.h"
#include "exec/cpu/loops.h"
#include "exec/cpu/vector_math.h"

// Layer norm and RMSNorm, which is not centred. Per row: m = mean(x), or the constant 0, s = 1 /
// sqrt(mean((x - m)^2) + epsilon), z = (x - m) s.
namespace pipetwin::exec {
namespace {

/// Operands of a norm's three functions; each reads those that its formula names.
template <class T>
struct RowNormOperands {
    std::size_t n = 0;
    std::size_t width = 0;
    const T* x = nullptr;
    const T* gain = nullptr;
    const T* dy = nullptr;
    const T* skip = nullptr;
    const Computed<T>* statistics = nullptr;  ///< of each row m and s, or s
};

/// What the forward has found of a row.
template <class C>
struct RowStatistics {
    C m = 0;
    C s = 0;
};

template <bool centred, class C>
PIPETWIN_INLINE RowStatistics<C> statistics_of(const C* statistics, std::size_t row) {
    if constexpr (centred) {
        return {statistics[2 * row], statistics[2 * row + 1]};
    } else {
        return {0, statistics[row]};
    }
}

// y = gain * z, + bias where it is centred
template <bool centred, class T>
PIPETWIN_SIMD_TARGETS void row_norm_forward(
    const RowNormOperands<T>& o, double epsilon, const T* bias, T* y, Computed<T>* statistics) {
    using C = Computed<T>;
    const std::size_t width = o.width;
    const T* const gain = o.gain;
    const C count = static_cast<C>(width);
    for (std::size_t r = 0; r < o.n; ++r) {
        const T* const x = o.x + r * width;
        T* const row = y + r * width;
        // Two passes over a row in the first cache: the variance of large means would drown in one.
        C m = 0;
        if constexpr (centred) {
            m = sum_of<C>(width, [x](std::size_t j) { return computed(x[j]); }) / count;
        }
        const C variance = sum_of<C>(width,
                                     [x, m](std::size_t j) {
                                         return (computed(x[j]) - m) * (computed(x[j]) - m);
                                     }) /
                           count;
        const C s = C(1) / std::sqrt(variance + static_cast<C>(epsilon));
        PIPETWIN_ELEMENTWISE
        for (std::size_t j = 0; j < width; ++j) {
            const C scaled = computed(gain[j]) * ((computed(x[j]) - m) * s);
            if constexpr (centred) {
                row[j] = stored<T>(scaled + computed(bias[j]));
            } else {
                row[j] = stored<T>(scaled);
            }
        }
        if constexpr (centred) {
            statistics[2 * r] = m;
            statistics[2 * r + 1] = s;
        } else {
            statistics[r] = s;
        }
    }
}

// dx = skip + s (g - mean(g) - z mean(g * z)),  g = gain * dy; without mean(g) if not centred
template <bool centred, class T>
PIPETWIN_SIMD_TARGETS void row_norm_backward_input(const RowNormOperands<T>& o, T* dx) {
    using C = Computed<T>;
    const std::size_t width = o.width;
    const T* const gain = o.gain;
    const C count = static_cast<C>(width);
    for (std::size_t r = 0; r < o.n; ++r) {
        const T* const x = o.x + r * width;
        const T* const dy = o.dy + r * width;
        T* const row = dx + r * width;
        const RowStatistics<C> of_row = statistics_of<centred>(o.statistics, r);
        const C m = of_row.m;
        const C s = of_row.s;
        const auto g = [=](std::size_t j) { return computed(gain[j]) * computed(dy[j]); };
        const auto z = [=](std::size_t j) { return (computed(x[j]) - m) * s; };
        C mean_g = 0;
        if constexpr (centred) {
            mean_g = sum_of<C>(width, g) / count;
        }
        const C mean_gz = sum_of<C>(width, [=](std::size_t j) { return g(j) * z(j); }) / count;
        const auto own = [=](std::size_t j) { return s * (g(j) - mean_g - z(j) * mean_gz); };
        if (o.skip == nullptr) {
            PIPETWIN_ELEMENTWISE
            for (std::size_t j = 0; j < width; ++j) {
                row[j] = stored<T>(own(j));
            }
        } else {
            const T* const skip = o.skip + r * width;
            PIPETWIN_ELEMENTWISE
            for (std::size_t j = 0; j < width; ++j) {
                row[j] = stored<T>(computed(skip[j]) + own(j));
            }
        }
    }
}

// dgain += sum of dy * z, and dbias += sum of dy where it is centred
template <bool centred, class T>
PIPETWIN_SIMD_TARGETS void row_norm_backward_weight(const RowNormOperands<T>& o,
                                                    Computed<T>* dgain,
                                                    Computed<T>* dbias) {
    using C = Computed<T>;
    const std::size_t width = o.width;
    for (std::size_t r = 0; r < o.n; ++r) {
        const T* const x = o.x + r * width;
        const T* const dy = o.dy + r * width;
        const RowStatistics<C> of_row = statistics_of<centred>(o.statistics, r);
        const C m = of_row.m;
        const C s = of_row.s;
        PIPETWIN_ELEMENTWISE
        for (std::size_t j = 0; j < width; ++j) {
            dgain[j] += computed(dy[j]) * ((computed(x[j]) - m) * s);
            if constexpr (centred) {
                dbias[j] += computed(dy[j]);
            }
        }
    }
}

/// f(std::bool_constant<centred>, T{}).
template <class F>
void with_norm(const RowNormRule& rule, DType type, const F& f) {
    with_type(type, [&](auto zero) {
        if (rule.centred) {
            f(std::true_type{}, zero);
        } else {
            f(std::false_type{}, zero);
        }
    });
}

}  // namespace

void CpuKernels::row_norm_forward(const RowNormRule& rule,
                                  ConstView x,
                                  ConstView gain,
                                  ConstView bias,
                                  View y,
                                  View statistics) const {
    with_norm(rule, y.dtype, [&](auto centred, auto zero) {
        using T = decltype(zero);
        const RowNormOperands<T> o{
            .n = count(x.rows), .width = count(x.columns), .x = x.as<T>(), .gain = gain.as<T>()};
        exec::row_norm_forward<centred()>(
            o, rule.epsilon, bias.as<T>(), y.as<T>(), statistics.as<Computed<T>>());
    });
}

void CpuKernels::row_norm_backward_input(const RowNormRule& rule,
                                         ConstView x,
                                         ConstView gain,
                                         ConstView statistics,
                                         ConstView dy,
                                         ConstView skip,
                                         View dx) const {
    with_norm(rule, dx.dtype, [&](auto centred, auto zero) {
        using T = decltype(zero);
        const RowNormOperands<T> o{.n = count(x.rows),
                                   .width = count(x.columns),
                                   .x = x.as<T>(),
                                   .gain = gain.as<T>(),
                                   .dy = dy.as<T>(),
                                   .skip = skip.as<T>(),
                                   .statistics = statistics.as<Computed<T>>()};
        exec::row_norm_backward_input<centred()>(o, dx.as<T>());
    });
}

void CpuKernels::row_norm_backward_weight(const RowNormRule& rule,
                                          ConstView x,
                                          ConstView statistics,
                                          ConstView dy,
                                          const GradientSum& dgain,
                                          const GradientSum& dbias) const {
    View gain_sums = begun(dgain);
    View bias_sums = begun(dbias);
    with_norm(rule, x.dtype, [&](auto centred, auto zero) {
        using T = decltype(zero);
        const RowNormOperands<T> o{.n = count(x.rows),
                                   .width = count(x.columns),
                                   .x = x.as<T>(),
                                   .dy = dy.as<T>(),
                                   .statistics = statistics.as<Computed<T>>()};
        exec::row_norm_backward_weight<centred()>(
            o, gain_sums.as<Computed<T>>(), bias_sums.as<Computed<T>>());
    });
}

}  // namespace pipetwin::exec
