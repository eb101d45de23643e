// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <cmath>
#include <type_traits>

#include "core/base/simd_targets.h"
#include "exec/cpu/cpu_kernels.h"
#include "exec/cpu/loops.h"
#include "exec/cpu/vector_math.h"

// The optimizers' formulas of exec/layers/optimizer.h. Parameters are far larger than any cache, so
// an update lives off memory: each is one pass, block by block, and the sum of the gradient's
// squares is taken while a block is near.
namespace pipetwin::exec {
namespace {

/// Operands of the update of one parameter, of `size` numbers. The updates return the sum of the
/// squares of its gradient.
template <class T>
struct UpdateOperands {
    std::size_t size = 0;
    T* value = nullptr;
    const Computed<T>* gradient = nullptr;
    Computed<T>* first = nullptr;
    Computed<T>* second = nullptr;
    Computed<T>* master = nullptr;  ///< where it has another type than the value
    Computed<T>* average = nullptr;
    GradientUse use{};
};

constexpr std::size_t block = 2048;

template <class T>
PIPETWIN_INLINE double squares(const T* g, std::size_t size) {
    return sum_of<double>(
        size, [g](std::size_t i) { return static_cast<double>(g[i]) * static_cast<double>(g[i]); });
}

/// Calls update(begin, end) for each block; returns the sum of the squares of g.
template <class T, class F>
PIPETWIN_INLINE double by_blocks(const T* g, std::size_t size, F&& update) {
    double sum = 0;
    for (std::size_t begin = 0; begin < size; begin += block) {
        const std::size_t end = std::min(begin + block, size);
        sum += squares(g + begin, end - begin);
        update(begin, end);
    }
    return sum;
}

/// The numbers that an update changes: the value itself where it is exact.
template <class T>
PIPETWIN_INLINE Computed<T>* exact_value(const UpdateOperands<T>& p) {
    if constexpr (std::is_same_v<T, Computed<T>>) {
        return p.value;
    } else {
        return p.master;
    }
}

/// Rounds what was changed to the value, where that is another.
template <class T>
PIPETWIN_INLINE void round_value(const UpdateOperands<T>& p, std::size_t begin, std::size_t end) {
    if constexpr (!std::is_same_v<T, Computed<T>>) {
        PIPETWIN_ELEMENTWISE
        for (std::size_t i = begin; i < end; ++i) {
            p.value[i] = stored<T>(p.master[i]);
        }
    }
}

/// Number i of the gradient that a rule follows. Without a decay nothing is added, so that not even
/// a sign of zero or the order of rounding differs from a rule that knows no decay.
template <bool decays, class C>
PIPETWIN_INLINE C followed(const C* g, C scale, const C* w, C decay, std::size_t i) {
    if constexpr (decays) {
        return scale * g[i] + decay * w[i];
    } else {
        return scale * g[i];
    }
}

/// One pass of a rule: `step(i, d)` updates number i by the gradient d that it follows.
template <bool decays, class T, class Step>
PIPETWIN_INLINE double one_pass(const UpdateOperands<T>& p, const Step& step) {
    using C = Computed<T>;
    const C* const w = exact_value(p);
    const C* const g = p.gradient;
    const C scale = static_cast<C>(p.use.scale);
    const C decay = static_cast<C>(p.use.weight_decay);
    return by_blocks(
        g, p.size, [ =, &p, &
                     step ](std::size_t begin, std::size_t end) __attribute__((always_inline)) {
            PIPETWIN_ELEMENTWISE
            for (std::size_t i = begin; i < end; ++i) {
                step(i, followed<decays>(g, scale, w, decay, i));
            }
            round_value(p, begin, end);
        });
}

/// One pass of a rule, with weight decay where there is one.
template <class T, class Step>
PIPETWIN_INLINE double update_by(const UpdateOperands<T>& p, const Step& step) {
    return p.use.weight_decay == 0 ? one_pass<false>(p, step) : one_pass<true>(p, step);
}

template <class T>
PIPETWIN_SIMD_TARGETS double sum_squares(const T* gradient, std::size_t size) {
    return by_blocks(gradient, size, [](std::size_t, std::size_t) __attribute__((always_inline)){});
}

template <class T>
PIPETWIN_SIMD_TARGETS double sgd(const UpdateOperands<T>& p, double rate) {
    using C = Computed<T>;
    C* const w = exact_value(p);
    const C step = static_cast<C>(rate);
    return update_by(
        p, [=](std::size_t i, C d) __attribute__((always_inline)) { w[i] -= step * d; });
}

template <class T>
PIPETWIN_SIMD_TARGETS double momentum(const UpdateOperands<T>& p, double rate, double mu) {
    using C = Computed<T>;
    C* const w = exact_value(p);
    C* const v = p.first;
    const C step = static_cast<C>(rate);
    const C keep = static_cast<C>(mu);
    return update_by(
        p, [=](std::size_t i, C d) __attribute__((always_inline)) {
            v[i] = keep * v[i] + d;
            w[i] -= step * v[i];
        });
}

template <class T>
PIPETWIN_SIMD_TARGETS double rmsprop(const UpdateOperands<T>& p,
                                     double rate,
                                     double decay,
                                     double epsilon) {
    using C = Computed<T>;
    C* const w = exact_value(p);
    C* const v = p.first;
    const C step = static_cast<C>(rate);
    const C keep = static_cast<C>(decay);
    const C take = static_cast<C>(1 - decay);
    const C eps = static_cast<C>(epsilon);
    return update_by(
        p, [=](std::size_t i, C d) __attribute__((always_inline)) {
            v[i] = keep * v[i] + take * (d * d);
            w[i] -= step * (d / (std::sqrt(v[i]) + eps));
        });
}

template <class T>
PIPETWIN_SIMD_TARGETS double rmsprop_momentum(const UpdateOperands<T>& p,
                                              const RmsPropMomentumFactors& factors) {
    using C = Computed<T>;
    C* const w = exact_value(p);
    C* const v = p.first;
    C* const m = p.second;
    const C rate = static_cast<C>(factors.rate);
    const C keep = static_cast<C>(factors.decay);
    const C take = static_cast<C>(1 - factors.decay);
    const C mu = static_cast<C>(factors.momentum);
    const C eps = static_cast<C>(factors.epsilon);
    return update_by(
        p, [=](std::size_t i, C d) __attribute__((always_inline)) {
            v[i] = keep * v[i] + take * (d * d);
            m[i] = mu * m[i] + rate * (d / std::sqrt(v[i] + eps));
            w[i] -= m[i];
        });
}

template <class T>
PIPETWIN_SIMD_TARGETS double adam(const UpdateOperands<T>& p, const AdamFactors& factors) {
    using C = Computed<T>;
    C* const w = exact_value(p);
    C* const m = p.first;
    C* const v = p.second;
    const C keep_m = static_cast<C>(factors.beta1);
    const C take_m = static_cast<C>(1 - factors.beta1);
    const C keep_v = static_cast<C>(factors.beta2);
    const C take_v = static_cast<C>(1 - factors.beta2);
    const C rate = static_cast<C>(factors.rate);
    const C root_scale = static_cast<C>(factors.root_scale);
    const C eps = static_cast<C>(factors.epsilon);
    const C decay = static_cast<C>(factors.decay_factor);
    return update_by(
        p, [=](std::size_t i, C d) __attribute__((always_inline)) {
            m[i] = keep_m * m[i] + take_m * d;
            v[i] = keep_v * v[i] + take_v * (d * d);
            w[i] = decay * w[i] - rate * (m[i] / (std::sqrt(v[i]) * root_scale + eps));
        });
}

template <class T>
PIPETWIN_SIMD_TARGETS void average(const UpdateOperands<T>& p, double decay) {
    using C = Computed<T>;
    const C* const w = exact_value(p);
    C* const a = p.average;
    const C take = static_cast<C>(1 - decay);
    PIPETWIN_ELEMENTWISE
    for (std::size_t i = 0; i < p.size; ++i) {
        a[i] += take * (w[i] - a[i]);
    }
}

template <class T>
PIPETWIN_SIMD_TARGETS void round(const Computed<T>* x, T* y, std::size_t size) {
    PIPETWIN_ELEMENTWISE
    for (std::size_t i = 0; i < size; ++i) {
        y[i] = stored<T>(x[i]);
    }
}

template <class T>
UpdateOperands<T> operands(const UpdateView& p) {
    return {.size = count(p.value.size()),
            .value = p.value.as<T>(),
            .gradient = p.gradient.as<Computed<T>>(),
            .first = p.first.as<Computed<T>>(),
            .second = p.second.as<Computed<T>>(),
            .master = p.master.as<Computed<T>>(),
            .average = p.average.as<Computed<T>>()};
}

/// `rule` returns the sum of the squares of the gradient.
template <class Rule>
void update_each(std::span<const UpdateView> parameters,
                 const GradientUse& gradient,
                 const Rule& rule) {
    for (const UpdateView& p : parameters) {
        const double squares = with_type(p.value.dtype, [&](auto zero) {
            auto all = operands<decltype(zero)>(p);
            all.use = gradient;
            return rule(all);
        });
        if (p.squares != nullptr) {
            *p.squares = squares;
        }
    }
}

}  // namespace

void CpuKernels::sum_squares(std::span<const UpdateView> parameters) const {
    update_each(
        parameters, {}, [](const auto& p) { return exec::sum_squares(p.gradient, p.size); });
}

void CpuKernels::sgd(std::span<const UpdateView> parameters,
                     double rate,
                     const GradientUse& gradient) const {
    update_each(parameters, gradient, [=](const auto& p) { return exec::sgd(p, rate); });
}

void CpuKernels::momentum(std::span<const UpdateView> parameters,
                          double rate,
                          double mu,
                          const GradientUse& gradient) const {
    update_each(parameters, gradient, [=](const auto& p) { return exec::momentum(p, rate, mu); });
}

void CpuKernels::rmsprop(std::span<const UpdateView> parameters,
                         double rate,
                         double decay,
                         double epsilon,
                         const GradientUse& gradient) const {
    update_each(parameters, gradient, [=](const auto& p) {
        return exec::rmsprop(p, rate, decay, epsilon);
    });
}

void CpuKernels::rmsprop_momentum(std::span<const UpdateView> parameters,
                                  const RmsPropMomentumFactors& factors,
                                  const GradientUse& gradient) const {
    update_each(
        parameters, gradient, [&](const auto& p) { return exec::rmsprop_momentum(p, factors); });
}

void CpuKernels::adam(std::span<const UpdateView> parameters, const AdamFactors& factors) const {
    update_each(parameters,
                {.scale = factors.gradient_scale, .weight_decay = factors.weight_decay},
                [&](const auto& p) { return exec::adam(p, factors); });
}

void CpuKernels::average(std::span<const UpdateView> parameters, double decay) const {
    for (const UpdateView& p : parameters) {
        with_type(p.value.dtype,
                  [&](auto zero) { exec::average(operands<decltype(zero)>(p), decay); });
    }
}

void CpuKernels::round(ConstView x, View y) const {
    with_type(y.dtype, [&](auto zero) {
        using T = decltype(zero);
        exec::round(x.as<Computed<T>>(), y.as<T>(), count(y.size()));
    });
}

}  // namespace pipetwin::exec
