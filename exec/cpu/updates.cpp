#include <algorithm>
#include <array>
#include <cmath>

#include "core/clones.h"
#include "exec/cpu/loops.h"
#include "exec/cpu/vector_math.h"

// The optimizers' formulas of exec/optimizer.h. Parameters are far larger than any cache, so an
// update lives off memory: each is one pass, block by block, and the sum of the gradient's squares
// is taken while a block is near.
namespace pipetwin::exec {
namespace {

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

}  // namespace

template <class T>
PIPETWIN_CLONES double sgd(const UpdateOperands<T>& p, double rate) {
    T* const w = p.value;
    const T* const g = p.gradient;
    const T step = static_cast<T>(rate);
    return by_blocks(
        g, p.size, [=](std::size_t begin, std::size_t end) __attribute__((always_inline)) {
            PIPETWIN_ELEMENTWISE
            for (std::size_t i = begin; i < end; ++i) {
                w[i] -= step * g[i];
            }
        });
}

template <class T>
PIPETWIN_CLONES double momentum(const UpdateOperands<T>& p, double rate, double mu) {
    T* const w = p.value;
    T* const v = p.first;
    const T* const g = p.gradient;
    const T step = static_cast<T>(rate);
    const T keep = static_cast<T>(mu);
    return by_blocks(
        g, p.size, [=](std::size_t begin, std::size_t end) __attribute__((always_inline)) {
            PIPETWIN_ELEMENTWISE
            for (std::size_t i = begin; i < end; ++i) {
                v[i] = keep * v[i] + g[i];
                w[i] -= step * v[i];
            }
        });
}

template <class T>
PIPETWIN_CLONES double rmsprop(const UpdateOperands<T>& p,
                               double rate,
                               double decay,
                               double epsilon) {
    T* const w = p.value;
    T* const v = p.first;
    const T* const g = p.gradient;
    const T step = static_cast<T>(rate);
    const T keep = static_cast<T>(decay);
    const T take = static_cast<T>(1 - decay);
    const T eps = static_cast<T>(epsilon);
    return by_blocks(
        g, p.size, [=](std::size_t begin, std::size_t end) __attribute__((always_inline)) {
            PIPETWIN_ELEMENTWISE
            for (std::size_t i = begin; i < end; ++i) {
                v[i] = keep * v[i] + take * (g[i] * g[i]);
                w[i] -= step * (g[i] / (std::sqrt(v[i]) + eps));
            }
        });
}

template <class T>
PIPETWIN_CLONES double adam(const UpdateOperands<T>& p, const AdamFactors& factors) {
    T* const w = p.value;
    T* const m = p.first;
    T* const v = p.second;
    const T* const g = p.gradient;
    const T keep_m = static_cast<T>(factors.beta1);
    const T take_m = static_cast<T>(1 - factors.beta1);
    const T keep_v = static_cast<T>(factors.beta2);
    const T take_v = static_cast<T>(1 - factors.beta2);
    const T rate = static_cast<T>(factors.rate);
    const T root_scale = static_cast<T>(factors.root_scale);
    const T eps = static_cast<T>(factors.epsilon);
    const T decay = static_cast<T>(factors.decay_factor);
    return by_blocks(
        g, p.size, [=](std::size_t begin, std::size_t end) __attribute__((always_inline)) {
            PIPETWIN_ELEMENTWISE
            for (std::size_t i = begin; i < end; ++i) {
                m[i] = keep_m * m[i] + take_m * g[i];
                v[i] = keep_v * v[i] + take_v * (g[i] * g[i]);
                w[i] = decay * w[i] - rate * (m[i] / (std::sqrt(v[i]) * root_scale + eps));
            }
        });
}

template double sgd(const UpdateOperands<float>&, double);
template double sgd(const UpdateOperands<double>&, double);
template double momentum(const UpdateOperands<float>&, double, double);
template double momentum(const UpdateOperands<double>&, double, double);
template double rmsprop(const UpdateOperands<float>&, double, double, double);
template double rmsprop(const UpdateOperands<double>&, double, double, double);
template double adam(const UpdateOperands<float>&, const AdamFactors&);
template double adam(const UpdateOperands<double>&, const AdamFactors&);

}  // namespace pipetwin::exec
