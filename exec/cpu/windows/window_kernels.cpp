// SPDX-License-Identifier: Apache-2.0
#include "exec/device/window_kernels.h"

#include <cstring>

#include "exec/cpu/loops.h"
#include "exec/cpu/products/product_scratch.h"
#include "exec/cpu/products/products.h"
#include "exec/cpu/windows/convolution.h"
#include "exec/cpu/windows/onednn_convolutions.h"
#include "exec/cpu/windows/window_loops.h"
#include "exec/device/device.h"
#include "exec/device/kernels.h"

namespace pipetwin::exec {
namespace {

/// Calls f(T{}) with T = float, double or BFloat16.
template <class F>
void with_real(DType type, F&& f) {
    switch (type) {
        case DType::F64:
            return f(double{});
        case DType::BF16:
            return f(BFloat16{});
        case DType::F32:
            return f(float{});
        default:
            throw InternalError("real numbers");
    }
}

/// Calls f(Place{}) with the type of the places of a window.
template <class F>
void with_places(DType type, F&& f) {
    if (type == DType::U8) {
        f(std::uint8_t{});
    } else {
        f(std::int32_t{});
    }
}

int samples_of(ConstView view, Pixels image) {
    const std::int64_t pixels = std::int64_t{image.height} * image.width;
    PIPETWIN_EXPECT(pixels > 0 && view.rows % pixels == 0, "whole images");
    return static_cast<int>(view.rows / pixels);
}

/// Samples of x and y, or of their gradients.
int samples_of(const WindowShape& shape, ConstView x, ConstView y) {
    const int samples = samples_of(x, shape.in);
    PIPETWIN_EXPECT(samples == samples_of(y, shape.out) && x.columns == shape.channels &&
                        y.columns == shape.outputs,
                    "images of the window's sizes");
    return samples;
}

bool is_depthwise(const WindowShape& shape) {
    return shape.groups > 1 && shape.groups == shape.channels && shape.groups == shape.outputs;
}

class CpuWindowKernels final : public WindowKernels {
  public:
    void convolution_forward(const WindowShape& shape,
                             ConstView x,
                             ConstView w,
                             ConstView b,
                             ConstView skip,
                             View y) const override {
        const int samples = samples_of(shape, x, y);
        if (shape.is_pointwise()) {
            cpu_kernels().linear_forward(x, w, b, skip, y);
        } else if (onednn_convolution_forward(shape, x, w, b, skip, y)) {
            return;
        } else if (is_depthwise(shape)) {
            with_real(x.dtype, [&](auto zero) {
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

    void convolution_backward_input(const WindowShape& shape,
                                    ConstView dy,
                                    ConstView w,
                                    ConstView skip,
                                    View dx) const override {
        const int samples = samples_of(shape, dx, dy);
        if (shape.is_pointwise()) {
            cpu_kernels().linear_backward_input(dy, w, skip, dx);
        } else if (skip.data != dx.data && onednn_convolution_backward_input(shape, dy, w, dx)) {
            if (!skip.empty()) {
                cpu_kernels().add(skip, dx);
            }
        } else if (is_depthwise(shape)) {
            with_real(dx.dtype, [&](auto zero) {
                using T = decltype(zero);
                depthwise_backward_input<T>(
                    shape,
                    samples,
                    {.dy = dy.as<T>(), .w = w.as<T>(), .skip = skip.as<T>()},
                    dx.as<T>());
            });
        } else {
            convolve_backward_input(shape, dy, w, skip, dx);
        }
    }

    void convolution_backward_weight(const WindowShape& shape,
                                     ConstView x,
                                     ConstView dy,
                                     const GradientSum& weight_sum,
                                     const GradientSum& bias_sum) const override {
        const int samples = samples_of(shape, x, dy);
        if (shape.is_pointwise()) {
            cpu_kernels().linear_backward_weight(x, dy, weight_sum, bias_sum);
            return;
        }
        View dw = cpu_kernels().begun(weight_sum);
        View db = cpu_kernels().begun(bias_sum);
        with_real(dy.dtype, [&](auto zero) {
            using T = decltype(zero);
            if (onednn_convolution_backward_weight(shape, x, dy, dw)) {
                // done
            } else if (is_depthwise(shape)) {
                auto* const sums = static_cast<Computed<T>*>(product_scratch(
                    ScratchUse::WindowSums, as_index(dw.size()) * size_of(dw.dtype)));
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

    void max_pool_forward(
        const WindowShape& shape, ConstView x, ConstView skip, View y, View places) const override {
        const int samples = samples_of(shape, x, y);
        with_real(x.dtype, [&](auto zero) {
            using T = decltype(zero);
            with_places(places.dtype, [&](auto none) {
                exec::max_pool_forward(shape,
                                       samples,
                                       x.as<T>(),
                                       skip.as<T>(),
                                       y.as<T>(),
                                       places.as<decltype(none)>());
            });
        });
    }

    void max_pool_backward(const WindowShape& shape,
                           ConstView places,
                           ConstView dy,
                           ConstView skip,
                           View dx) const override {
        const int samples = samples_of(shape, dx, dy);
        with_real(dx.dtype, [&](auto zero) {
            using T = decltype(zero);
            with_places(places.dtype, [&](auto none) {
                exec::max_pool_backward(shape,
                                        samples,
                                        places.as<decltype(none)>(),
                                        dy.as<T>(),
                                        skip.as<T>(),
                                        dx.as<T>());
            });
        });
    }

    void average_pool_forward(const WindowShape& shape,
                              ConstView x,
                              ConstView skip,
                              View y) const override {
        const int samples = samples_of(shape, x, y);
        with_real(x.dtype, [&](auto zero) {
            using T = decltype(zero);
            exec::average_pool_forward(shape, samples, x.as<T>(), skip.as<T>(), y.as<T>());
        });
    }

    void average_pool_backward(const WindowShape& shape,
                               ConstView dy,
                               ConstView skip,
                               View dx) const override {
        const int samples = samples_of(shape, dx, dy);
        with_real(dx.dtype, [&](auto zero) {
            using T = decltype(zero);
            exec::average_pool_backward(shape, samples, dy.as<T>(), skip.as<T>(), dx.as<T>());
        });
    }

    void upsample_forward(const UpsampleShape& shape,
                          ConstView x,
                          ConstView skip,
                          View y) const override {
        const int samples = samples_of(x, shape.in);
        with_real(x.dtype, [&](auto zero) {
            using T = decltype(zero);
            exec::upsample_forward(
                shape, samples, as_index(x.columns), x.as<T>(), skip.as<T>(), y.as<T>());
        });
    }

    void upsample_backward(const UpsampleShape& shape,
                           ConstView dy,
                           ConstView skip,
                           View dx) const override {
        const int samples = samples_of(dx, shape.in);
        with_real(dx.dtype, [&](auto zero) {
            using T = decltype(zero);
            exec::upsample_backward(
                shape, samples, as_index(dx.columns), dy.as<T>(), skip.as<T>(), dx.as<T>());
        });
    }

    void pad(Pixels from, Margins margins, ConstView x, ConstView skip, View y) const override {
        const int samples = samples_of(x, from);
        const Pixels to{.height = from.height + margins.top + margins.bottom,
                        .width = from.width + margins.left + margins.right};
        PIPETWIN_EXPECT(samples_of(y, to) == samples && x.columns == y.columns,
                        "images of the padding's sizes");
        with_real(x.dtype, [&](auto zero) {
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

  private:
    template <class T>
    static void move_row(const T* from, bool overwrites, T* to, std::size_t size) {
        if (overwrites) {
            std::memcpy(to, from, size * sizeof(T));
        } else {
            add(from, to, size);
        }
    }
};

}  // namespace

const WindowKernels& cpu_window_kernels() {
    static const CpuWindowKernels kernels;
    return kernels;
}

}  // namespace pipetwin::exec
