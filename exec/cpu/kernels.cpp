// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <cstring>

#include "core/base/as_index.h"
#include "core/model/gelu_form.h"
#include "exec/base/random.h"
#include "exec/cpu/cpu_kernels.h"
#include "exec/cpu/loops.h"
#include "exec/cpu/products/bfloat16.h"
#include "exec/cpu/products/products.h"
#include "exec/device/column_kernels.h"
#include "exec/device/device.h"
#include "exec/device/window_kernels.h"

namespace pipetwin::exec {
namespace {

Factor factor(ConstView view, Transposed transposed = Transposed::No) {
    return {
        .data = view.data, .type = view.dtype, .stride = view.columns, .transposed = transposed};
}

template <class From>
void upload_from(std::span<const From> from, View y) {
    PIPETWIN_EXPECT(from.size() == count(y.size()), "as many numbers as the tensor holds");
    with_type(y.dtype, [&](auto zero) {
        using T = decltype(zero);
        std::ranges::transform(
            from, y.as<T>(), [](From value) { return stored<T>(static_cast<Computed<T>>(value)); });
    });
}

/// y = a b + skip + bias.
void multiply(
    std::int64_t k, const Factor& a, const Factor& b, ConstView skip, ConstView bias, View y) {
    PIPETWIN_EXPECT(
        (skip.empty() || skip.dtype == y.dtype) && (bias.empty() || bias.dtype == y.dtype),
        "what is added to a product has the type of its result");
    compute({.m = y.rows,
             .n = y.columns,
             .k = k,
             .a = a,
             .b = b,
             .c = y.data,
             .c_type = y.dtype,
             .c_stride = y.columns,
             .skip = skip.data,
             .bias = bias.data});
}

}  // namespace

void CpuKernels::fill_zero(View y) const {
    std::memset(y.data, 0, count(y.size()) * size_of(y.dtype));
}

void CpuKernels::upload(std::span<const std::int32_t> from, View y) const {
    PIPETWIN_EXPECT(from.size() == count(y.size()), "as many numbers as the tensor holds");
    std::ranges::copy(from, y.as<std::int32_t>());
}

void CpuKernels::upload(std::span<const float> from, View y) const {
    upload_from(from, y);
}

void CpuKernels::upload(std::span<const double> from, View y) const {
    upload_from(from, y);
}

void CpuKernels::download(ConstView x, std::span<std::byte> to) const {
    std::memcpy(to.data(), x.data, x.bytes());
}

void CpuKernels::upload(std::span<const std::byte> from, View y) const {
    std::memcpy(y.data, from.data(), from.size());
}

void CpuKernels::add_up(std::span<const ConstView> terms, ConstView skip, View y) const {
    with_type(y.dtype, [&](auto zero) {
        using T = decltype(zero);
        constexpr std::int64_t piece = 512;
        std::array<Computed<T>, piece> sums;
        const auto for_each = [&](ConstView term, std::int64_t begin, std::int64_t size, auto act) {
            const T* const from = term.as<T>() + begin;
            for (std::int64_t i = 0; i < size; ++i) {
                act(sums[as_index(i)], computed(from[i]));
            }
        };
        const auto add = [](auto& sum, auto number) { sum += number; };
        for (std::int64_t begin = 0; begin < y.size(); begin += piece) {
            const std::int64_t size = std::min(piece, y.size() - begin);
            for_each(terms.front(), begin, size, [](auto& sum, auto number) { sum = number; });
            for (const ConstView& term : terms.subspan(1)) {
                for_each(term, begin, size, add);
            }
            if (!skip.empty()) {
                for_each(skip, begin, size, add);
            }
            T* const to = y.as<T>() + begin;
            for (std::int64_t i = 0; i < size; ++i) {
                to[i] = stored<T>(sums[as_index(i)]);
            }
        }
    });
}

void CpuKernels::copy_columns(const ColumnCopy& columns, ConstView x, View y) const {
    PIPETWIN_EXPECT(x.rows == y.rows && columns.from + columns.count <= x.columns &&
                        columns.to + columns.count <= y.columns,
                    "columns of two matrices with as many rows");
    with_type(y.dtype, [&](auto zero) {
        using T = decltype(zero);
        for (std::int64_t r = 0; r < x.rows; ++r) {
            const T* const from = x.as<T>() + r * x.columns + columns.from;
            T* const to = y.as<T>() + r * y.columns + columns.to;
            if (columns.adds) {
                exec::add(from, to, count(columns.count));
            } else {
                std::memcpy(to, from, count(columns.count) * sizeof(T));
            }
        }
    });
}

void CpuKernels::linear_forward(
    ConstView x, ConstView w, ConstView b, ConstView skip, View y) const {
    multiply(x.columns, factor(x), factor(w), skip, b, y);
}

void CpuKernels::linear_backward_input(ConstView dy, ConstView w, ConstView skip, View dx) const {
    multiply(dy.columns, factor(dy), factor(w, Transposed::Yes), skip, {}, dx);
}

void CpuKernels::linear_backward_weight(ConstView x,
                                        ConstView dy,
                                        const GradientSum& dw,
                                        const GradientSum& db) const {
    const ConstView sum_so_far = dw.adds ? ConstView(dw.view) : ConstView();
    multiply(x.rows, factor(x, Transposed::Yes), factor(dy), sum_so_far, {}, dw.view);
    if (!db.empty()) {
        View sums = begun(db);
        with_type(dy.dtype, [&](auto zero) {
            using T = decltype(zero);
            add_rows(dy.as<T>(), sums.as<Computed<T>>(), count(dy.rows), count(dy.columns));
        });
    }
}

const Kernels& cpu_kernels() {
    static const CpuKernels kernels;
    return kernels;
}

}  // namespace pipetwin::exec
