// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <type_traits>

#include "core/base/simd_targets.h"
#include "exec/cpu/cpu_kernels.h"
#include "exec/cpu/loops.h"
#include "exec/cpu/vector_math.h"

// The optimizers' rules (exec/device/update_rules.h). Parameters are far larger than any cache, so
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

/// One pass of a rule, which follows the gradient with weight decay or without.
template <class Rule, bool decays, class T>
PIPETWIN_INLINE double one_pass(const UpdateOperands<T>& p, const UpdateFactors<Computed<T>>& all) {
    using C = Computed<T>;
    const UpdateFactors<C> factors = all;  // no store changes it
    C* const w = exact_value(p);
    C* const first = p.first;
    C* const second = p.second;
    const C* const g = p.gradient;
    return by_blocks(
        g, p.size, [=](std::size_t begin, std::size_t end) __attribute__((always_inline)) {
            PIPETWIN_ELEMENTWISE
            for (std::size_t i = begin; i < end; ++i) {
                UpdatedNumber<C> number{.value = w[i], .first = 0, .second = 0};
                if constexpr (Rule::slots > 0) {
                    number.first = first[i];
                }
                if constexpr (Rule::slots > 1) {
                    number.second = second[i];
                }
                Rule::apply(factors,
                            followed<decays>(g, factors.gradient_scale, w, factors.weight_decay, i),
                            number);
                w[i] = number.value;
                if constexpr (Rule::slots > 0) {
                    first[i] = number.first;
                }
                if constexpr (Rule::slots > 1) {
                    second[i] = number.second;
                }
            }
            round_value(p, begin, end);
        });
}

template <class T>
PIPETWIN_SIMD_TARGETS double sum_squares(const T* gradient, std::size_t size) {
    return by_blocks(gradient, size, [](std::size_t, std::size_t) __attribute__((always_inline)){});
}

/// One update; returns the sum of the squares of the gradient.
template <class Rule, class T>
PIPETWIN_SIMD_TARGETS double update(const UpdateOperands<T>& p,
                                    const UpdateFactors<Computed<T>>& factors) {
    return factors.weight_decay == 0 ? one_pass<Rule, false>(p, factors)
                                     : one_pass<Rule, true>(p, factors);
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

/// The sum of the squares of those numbers of a gradient that count, row by row.
template <class T>
double counted_squares(const UpdateOperands<T>& p, const CountedNumbers& counted) {
    double sum = 0;
    const auto size = static_cast<std::int64_t>(p.size);
    for (std::int64_t row = counted.first / counted.of * counted.of; row < counted.first + size;
         row += counted.of) {
        const std::int64_t begin = std::max(row - counted.first, std::int64_t{0});
        const std::int64_t end = std::min(row + counted.columns - counted.first, size);
        if (begin < end) {
            sum += sum_squares(p.gradient + begin, static_cast<std::size_t>(end - begin));
        }
    }
    return sum;
}

/// `pass` returns the sum of the squares of the gradient.
template <class Pass>
void for_each_parameter(std::span<const UpdateView> parameters, const Pass& pass) {
    for (const UpdateView& p : parameters) {
        const double squares = with_type(p.value.dtype, [&](auto zero) {
            const auto of = operands<decltype(zero)>(p);
            const double all = pass(of);
            return p.counted.columns > 0 ? counted_squares(of, p.counted) : all;
        });
        if (p.squares != nullptr) {
            *p.squares = squares;
        }
    }
}

}  // namespace

void CpuKernels::sum_squares(std::span<const UpdateView> parameters) const {
    for_each_parameter(parameters,
                       [](const auto& p) { return exec::sum_squares(p.gradient, p.size); });
}

void CpuKernels::update(UpdateRule rule,
                        std::span<const UpdateView> parameters,
                        const UpdateFactors<double>& factors) const {
    with_rule(rule, [&](auto formula) {
        for_each_parameter(parameters, [&]<class T>(const UpdateOperands<T>& p) {
            return exec::update<decltype(formula)>(p, factors.rounded<Computed<T>>());
        });
    });
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
