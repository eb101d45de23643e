// SPDX-License-Identifier: Apache-2.0
#include "core/base/simd_targets.h"
#include "exec/cpu/loops.h"
#include "exec/cpu/vector_math.h"

namespace pipetwin::exec {

template <class T, class Sum>
PIPETWIN_SIMD_TARGETS void add(const T* x, Sum* y, std::size_t size) {
    PIPETWIN_ELEMENTWISE
    for (std::size_t i = 0; i < size; ++i) {
        y[i] = stored<Sum>(computed(y[i]) + computed(x[i]));
    }
}

template <class T, class Sum>
PIPETWIN_SIMD_TARGETS void add_scaled(const T* x, double scale, Sum* y, std::size_t size) {
    const auto factor = static_cast<Computed<T>>(scale);
    PIPETWIN_ELEMENTWISE
    for (std::size_t i = 0; i < size; ++i) {
        y[i] = stored<Sum>(computed(y[i]) + factor * computed(x[i]));
    }
}

template <class T>
PIPETWIN_SIMD_TARGETS void scale_and_add(
    const T* x, double scale, const T* z, T* y, std::size_t size) {
    const auto factor = static_cast<Computed<T>>(scale);
    if (z == nullptr) {
        PIPETWIN_ELEMENTWISE
        for (std::size_t i = 0; i < size; ++i) {
            y[i] = stored<T>(factor * computed(x[i]));
        }
        return;
    }
    PIPETWIN_ELEMENTWISE
    for (std::size_t i = 0; i < size; ++i) {
        y[i] = stored<T>(factor * computed(x[i]) + computed(z[i]));
    }
}

template <class T>
PIPETWIN_SIMD_TARGETS void lay_out(
    const T* skip, const T* bias, T* y, std::size_t n, std::size_t width) {
    for (std::size_t r = 0; r < n; ++r) {
        T* const row = y + r * width;
        const T* const from = skip == nullptr ? bias : skip + r * width;
        if (skip != nullptr && bias != nullptr) {
            PIPETWIN_ELEMENTWISE
            for (std::size_t j = 0; j < width; ++j) {
                row[j] = stored<T>(computed(from[j]) + computed(bias[j]));
            }
        } else {
            PIPETWIN_ELEMENTWISE
            for (std::size_t j = 0; j < width; ++j) {
                row[j] = from[j];
            }
        }
    }
}

template <class T>
PIPETWIN_SIMD_TARGETS void add_rows(const T* x,
                                    Computed<T>* sums,
                                    std::size_t n,
                                    std::size_t width) {
    for (std::size_t r = 0; r < n; ++r) {
        const T* const row = x + r * width;
        PIPETWIN_ELEMENTWISE
        for (std::size_t j = 0; j < width; ++j) {
            sums[j] += computed(row[j]);
        }
    }
}

// y = x F(x)
template <class T>
PIPETWIN_SIMD_TARGETS void gelu_forward(GeluForm form, const T* x, T* y, std::size_t size) {
    if (form == GeluForm::Tanh) {
        PIPETWIN_ELEMENTWISE
        for (std::size_t i = 0; i < size; ++i) {
            const Computed<T> value = computed(x[i]);
            y[i] = stored<T>(value * tanh_gelu(value).distribution);
        }
        return;
    }
    PIPETWIN_ELEMENTWISE
    for (std::size_t i = 0; i < size; ++i) {
        const Computed<T> value = computed(x[i]);
        y[i] = stored<T>(value * normal_distribution(value));
    }
}

// dx = dy (F(x) + x F'(x))
template <class T>
PIPETWIN_SIMD_TARGETS void gelu_backward(
    GeluForm form, const T* x, const T* dy, T* dx, std::size_t size) {
    if (form == GeluForm::Tanh) {
        PIPETWIN_ELEMENTWISE
        for (std::size_t i = 0; i < size; ++i) {
            dx[i] = stored<T>(computed(dy[i]) * tanh_gelu(computed(x[i])).slope);
        }
        return;
    }
    PIPETWIN_ELEMENTWISE
    for (std::size_t i = 0; i < size; ++i) {
        dx[i] = stored<T>(computed(dy[i]) * gelu_slope(computed(x[i])));
    }
}

// y = v g sigmoid(g)
template <class T>
PIPETWIN_SIMD_TARGETS void swiglu_forward(const T* x, T* y, std::size_t n, std::size_t width) {
    using C = Computed<T>;
    for (std::size_t r = 0; r < n; ++r) {
        const T* const gates = x + r * 2 * width;
        const T* const values = gates + width;
        T* const row = y + r * width;
        PIPETWIN_ELEMENTWISE
        for (std::size_t j = 0; j < width; ++j) {
            const C g = computed(gates[j]);
            row[j] = stored<T>(computed(values[j]) * (g * logistic(g)));
        }
    }
}

// dg = dy v s (1 + g (1 - s)),  dv = dy g s,  s = sigmoid(g)
template <class T>
PIPETWIN_SIMD_TARGETS void swiglu_backward(
    const T* x, const T* dy, T* dx, std::size_t n, std::size_t width) {
    using C = Computed<T>;
    for (std::size_t r = 0; r < n; ++r) {
        const T* const gates = x + r * 2 * width;
        const T* const values = gates + width;
        const T* const from = dy + r * width;
        T* const dgates = dx + r * 2 * width;
        T* const dvalues = dgates + width;
        PIPETWIN_ELEMENTWISE
        for (std::size_t j = 0; j < width; ++j) {
            const C g = computed(gates[j]);
            const C v = computed(values[j]);
            const C d = computed(from[j]);
            const C s = logistic(g);
            dgates[j] = stored<T>(d * v * (s * (C(1) + g * (C(1) - s))));
            dvalues[j] = stored<T>(d * (g * s));
        }
    }
}

template void add(const float*, float*, std::size_t);
template void add(const double*, double*, std::size_t);
template void add(const BFloat16*, BFloat16*, std::size_t);
template void add(const BFloat16*, float*, std::size_t);
template void add_scaled(const float*, double, float*, std::size_t);
template void add_scaled(const double*, double, double*, std::size_t);
template void add_scaled(const BFloat16*, double, float*, std::size_t);
template void scale_and_add(const float*, double, const float*, float*, std::size_t);
template void scale_and_add(const double*, double, const double*, double*, std::size_t);
template void scale_and_add(const BFloat16*, double, const BFloat16*, BFloat16*, std::size_t);
template void lay_out(const float*, const float*, float*, std::size_t, std::size_t);
template void lay_out(const double*, const double*, double*, std::size_t, std::size_t);
template void lay_out(const BFloat16*, const BFloat16*, BFloat16*, std::size_t, std::size_t);
template void add_rows(const float*, float*, std::size_t, std::size_t);
template void add_rows(const double*, double*, std::size_t, std::size_t);
template void add_rows(const BFloat16*, float*, std::size_t, std::size_t);
template void gelu_forward(GeluForm, const float*, float*, std::size_t);
template void gelu_forward(GeluForm, const double*, double*, std::size_t);
template void gelu_forward(GeluForm, const BFloat16*, BFloat16*, std::size_t);
template void gelu_backward(GeluForm, const float*, const float*, float*, std::size_t);
template void gelu_backward(GeluForm, const double*, const double*, double*, std::size_t);
template void gelu_backward(GeluForm, const BFloat16*, const BFloat16*, BFloat16*, std::size_t);
template void swiglu_forward(const float*, float*, std::size_t, std::size_t);
template void swiglu_forward(const double*, double*, std::size_t, std::size_t);
template void swiglu_forward(const BFloat16*, BFloat16*, std::size_t, std::size_t);
template void swiglu_backward(const float*, const float*, float*, std::size_t, std::size_t);
template void swiglu_backward(const double*, const double*, double*, std::size_t, std::size_t);
template void swiglu_backward(
    const BFloat16*, const BFloat16*, BFloat16*, std::size_t, std::size_t);

}  // namespace pipetwin::exec
