// SPDX-License-Identifier: Apache-2.0
#include "core/base/simd_targets.h"
#include "core/model/gelu_form.h"
#include "exec/cpu/cpu_kernels.h"
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

namespace {

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

}  // namespace

void CpuKernels::add(ConstView x, View y) const {
    with_type(y.dtype, [&](auto zero) {
        using T = decltype(zero);
        exec::add(x.as<T>(), y.as<T>(), count(y.size()));
    });
}

void CpuKernels::swiglu_forward(ConstView x, View y) const {
    with_type(y.dtype, [&](auto zero) {
        using T = decltype(zero);
        exec::swiglu_forward(x.as<T>(), y.as<T>(), count(y.rows), count(y.columns));
    });
}

void CpuKernels::swiglu_backward(ConstView x, ConstView dy, View dx) const {
    with_type(dx.dtype, [&](auto zero) {
        using T = decltype(zero);
        exec::swiglu_backward(x.as<T>(), dy.as<T>(), dx.as<T>(), count(dy.rows), count(dy.columns));
    });
}

void CpuKernels::gelu_forward(GeluForm form, ConstView x, View y) const {
    with_type(y.dtype, [&](auto zero) {
        using T = decltype(zero);
        exec::gelu_forward(form, x.as<T>(), y.as<T>(), count(y.size()));
    });
}

void CpuKernels::gelu_backward(GeluForm form, ConstView x, ConstView dy, View dx) const {
    with_type(dx.dtype, [&](auto zero) {
        using T = decltype(zero);
        exec::gelu_backward(form, x.as<T>(), dy.as<T>(), dx.as<T>(), count(dx.size()));
    });
}

void CpuKernels::embedding_forward(
    const EmbeddingRows& rows, ConstView ids, ConstView tokens, ConstView places, View y) const {
    with_type(y.dtype, [&](auto zero) {
        using T = decltype(zero);
        const std::int64_t width = y.columns;
        const auto* const id = ids.as<std::int32_t>();
        for (std::int64_t r = 0; r < y.rows; ++r) {
            if (!rows.has(r)) {
                continue;
            }
            T* const row = y.as<T>() + r * width;
            const std::int64_t position = r % rows.positions - rows.first;
            const T* const place = places.empty() ? nullptr : places.as<T>() + position * width;
            if (const auto of_token = rows.row_of(id[r])) {
                const T* const token = tokens.as<T>() + *of_token * width;
                exec::scale_and_add(token, rows.scale, place, row, count(width));
            } else if (place != nullptr) {
                std::copy_n(place, width, row);
            } else {
                std::fill_n(row, width, stored<T>(Computed<T>{0}));
            }
        }
    });
}

void CpuKernels::embedding_backward(
    const EmbeddingRows& rows, ConstView ids, ConstView dy, View dtokens, View dplaces) const {
    with_type(dy.dtype, [&](auto zero) {
        using T = decltype(zero);
        const std::int64_t width = dy.columns;
        const auto* const id = ids.as<std::int32_t>();
        for (std::int64_t r = 0; r < dy.rows; ++r) {
            if (!rows.has(r)) {
                continue;
            }
            const T* const row = dy.as<T>() + r * width;
            if (const auto of_token = rows.row_of(id[r])) {
                auto* const token = dtokens.as<Computed<T>>() + *of_token * width;
                exec::add_scaled(row, rows.scale, token, count(width));
            }
            if (!dplaces.empty()) {
                const std::int64_t position = r % rows.positions - rows.first;
                exec::add(row, dplaces.as<Computed<T>>() + position * width, count(width));
            }
        }
    });
}

template void add(const float*, float*, std::size_t);
template void add(const double*, double*, std::size_t);
template void add(const BFloat16*, BFloat16*, std::size_t);
template void add(const BFloat16*, float*, std::size_t);
template void add_rows(const float*, float*, std::size_t, std::size_t);
template void add_rows(const double*, double*, std::size_t, std::size_t);
template void add_rows(const BFloat16*, float*, std::size_t, std::size_t);

}  // namespace pipetwin::exec
