// SPDX-License-Identifier: Apache-2.0
#include <cstring>

#include "core/model/pixels.h"
#include "exec/cpu/loops.h"
#include "exec/cpu/products/product_scratch.h"
#include "exec/cpu/products/products.h"
#include "exec/cpu/windows/convolution.h"
#include "exec/cpu/windows/cpu_window_kernels.h"
#include "exec/cpu/windows/onednn_convolutions.h"
#include "exec/cpu/windows/window_loops.h"
#include "exec/device/device.h"
#include "exec/device/kernels.h"

namespace pipetwin::exec {
namespace {

bool is_depthwise(const WindowShape& shape) {
    return shape.groups > 1 && shape.groups == shape.channels && shape.groups == shape.outputs;
}

template <class T>
void move_row(const T* from, bool overwrites, T* to, std::size_t size) {
    if (overwrites) {
        std::memcpy(to, from, size * sizeof(T));
    } else {
        add(from, to, size);
    }
}

}  // namespace

void CpuWindowKernels::convolution_forward(
    const WindowShape& shape, ConstView x, ConstView w, ConstView b, ConstView skip, View y) const {
    const int samples = samples_of(shape, x, y);
    if (shape.is_pointwise()) {
        cpu_kernels().linear_forward(x, w, b, skip, y);
    } else if (onednn_convolution_forward(shape, x, w, b, skip, y)) {
        return;
    } else if (is_depthwise(shape)) {
        with_type(x.dtype, [&](auto zero) {
            using T = decltype(zero);
            depthwise_forward<T>(
                shape,
                samples,
                {.x = x.as<T>(), .w = w.as<T>(), .bias = b.as<T>(), .skip = skip.as<T>()},
                y.as<T>());
        });
    } else {
        convolve(shape, x, w, b, skip, y);
    }
}

void CpuWindowKernels::convolution_backward_input(
    const WindowShape& shape, ConstView dy, ConstView w, ConstView skip, View dx) const {
    const int samples = samples_of(shape, dx, dy);
    if (shape.is_pointwise()) {
        cpu_kernels().linear_backward_input(dy, w, skip, dx);
    } else if (skip.data != dx.data && onednn_convolution_backward_input(shape, dy, w, dx)) {
        if (!skip.empty()) {
            cpu_kernels().add(skip, dx);
        }
    } else if (is_depthwise(shape)) {
        with_type(dx.dtype, [&](auto zero) {
            using T = decltype(zero);
            depthwise_backward_input<T>(shape,
                                        samples,
                                        {.dy = dy.as<T>(), .w = w.as<T>(), .skip = skip.as<T>()},
                                        dx.as<T>());
        });
    } else {
        convolve_backward_input(shape, dy, w, skip, dx);
    }
}

void CpuWindowKernels::convolution_backward_weight(const WindowShape& shape,
                                                   ConstView x,
                                                   ConstView dy,
                                                   const GradientSum& weight_sum,
                                                   const GradientSum& bias_sum) const {
    const int samples = samples_of(shape, x, dy);
    if (shape.is_pointwise()) {
        cpu_kernels().linear_backward_weight(x, dy, weight_sum, bias_sum);
        return;
    }
    View dw = cpu_kernels().begun(weight_sum);
    View db = cpu_kernels().begun(bias_sum);
    with_type(dy.dtype, [&](auto zero) {
        using T = decltype(zero);
        if (onednn_convolution_backward_weight(shape, x, dy, dw)) {
            // done
        } else if (is_depthwise(shape)) {
            auto* const sums = static_cast<Computed<T>*>(
                product_scratch(ScratchUse::WindowSums, as_index(dw.size()) * size_of(dw.dtype)));
            depthwise_backward_weight<T>(
                shape, samples, {.x = x.as<T>(), .dy = dy.as<T>()}, sums, dw.as<Computed<T>>());
        } else {
            convolve_backward_weight(shape, x, dy, dw);
        }
        if (!db.empty()) {
            add_rows(dy.as<T>(), db.as<Computed<T>>(), as_index(dy.rows), as_index(dy.columns));
        }
    });
}

void CpuWindowKernels::pad(
    Pixels from, Margins margins, ConstView x, ConstView skip, View y) const {
    const int samples = samples_of(x, from);
    const Pixels to{.height = from.height + margins.top + margins.bottom,
                    .width = from.width + margins.left + margins.right};
    PIPETWIN_EXPECT(samples_of(y, to) == samples && x.columns == y.columns,
                    "images of the padding's sizes");
    with_type(x.dtype, [&](auto zero) {
        using T = decltype(zero);
        if (skip.empty()) {
            std::memset(y.data, 0, ConstView(y).bytes());
        } else if (skip.data != y.data) {
            std::memcpy(y.data, skip.data, ConstView(y).bytes());
        }
        const std::int64_t left = std::max(margins.left, 0);
        const std::int64_t columns = std::min(from.width + margins.left, to.width) - left;
        for (int s = 0; s < samples && columns > 0; ++s) {
            for (int row = std::max(margins.top, 0);
                 row < std::min(from.height + margins.top, to.height);
                 ++row) {
                const std::int64_t source =
                    (std::int64_t{s} * from.height + row - margins.top) * from.width + left -
                    margins.left;
                const std::int64_t goal = (std::int64_t{s} * to.height + row) * to.width + left;
                move_row(x.as<T>() + source * x.columns,
                         skip.empty(),
                         y.as<T>() + goal * x.columns,
                         as_index(columns * x.columns));
            }
        }
    });
}

const WindowKernels& cpu_window_kernels() {
    static const CpuWindowKernels kernels;
    return kernels;
}

}  // namespace pipetwin::exec
