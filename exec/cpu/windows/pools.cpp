// SPDX-License-Identifier: Apache-2.0
#include <limits>

#include "core/model/pixels.h"
#include "exec/cpu/windows/cpu_window_kernels.h"
#include "exec/cpu/windows/window_loops.h"

namespace pipetwin::exec {
namespace {

/// Unsigned integers as wide as the numbers, so that both fill as many lanes of a vector.
template <class C>
using PlaceLane = std::conditional_t<sizeof(C) == 8, std::uint64_t, std::uint32_t>;

/// Place of a window that has no pixel.
constexpr int no_place = 255;

/// One output pixel or input pixel of a sample, and the axes of the window.
struct Window {
    WindowAxis rows;
    WindowAxis columns;
    std::size_t channels = 0;

    explicit Window(const WindowShape& shape)
        : rows(rows_axis(shape)),
          columns(columns_axis(shape)),
          channels(static_cast<std::size_t>(shape.channels)) {}

    /// The first channel of a pixel of image `sample`.
    PIPETWIN_INLINE std::size_t input(int sample, int y, int x) const {
        return as_index(std::int64_t{sample} * rows.size * columns.size +
                        std::int64_t{y} * columns.size + x) *
               channels;
    }
    PIPETWIN_INLINE std::size_t output(int sample, int y, int x) const {
        return as_index(std::int64_t{sample} * rows.out * columns.out +
                        std::int64_t{y} * columns.out + x) *
               channels;
    }
};

/// Calls f(sample, y, x) for every pixel, in the order of rows.
template <class F>
PIPETWIN_INLINE void for_pixels(int samples, Pixels image, F&& f) {
    for (int s = 0; s < samples; ++s) {
        for (int y = 0; y < image.height; ++y) {
            for (int x = 0; x < image.width; ++x) {
                f(s, y, x);
            }
        }
    }
}

/// What a window's sum is divided by.
PIPETWIN_INLINE int divisor_of(const WindowShape& shape, const Places& y, const Places& x) {
    return shape.count_padding ? shape.places() : std::max(y.count() * x.count(), 1);
}

template <class T, class Place>
PIPETWIN_SIMD_TARGETS void max_pool_forward(
    const WindowShape& shape, int samples, const T* x, const T* skip, T* y, Place* places) {
    using C = Computed<T>;
    const Window window(shape);
    for_pixels(
        samples, shape.out, [&](int s, int oy, int ox) __attribute__((always_inline)) {
            const Places ys = window.rows.inside(oy);
            const Places xs = window.columns.inside(ox);
            const std::size_t to = window.output(s, oy, ox);
            const bool empty = ys.count() == 0 || xs.count() == 0;
            for_channels<T>(
                window.channels, [&](std::size_t c, auto count) __attribute__((always_inline)) {
                    C best[channel_block<T>];
                    PlaceLane<C> place[channel_block<T>];
                    for (std::size_t j = 0; j < count; ++j) {
                        best[j] = empty ? C(0) : -std::numeric_limits<C>::infinity();
                        place[j] = empty
                                       ? PlaceLane<C>(no_place)
                                       : PlaceLane<C>(ys.begin * window.columns.kernel + xs.begin);
                    }
                    for (int ky = ys.begin; ky < ys.end; ++ky) {
                        for (int kx = xs.begin; kx < xs.end; ++kx) {
                            const T* const from =
                                x + c +
                                window.input(
                                    s, window.rows.first(oy) + ky, window.columns.first(ox) + kx);
                            const auto here = PlaceLane<C>(ky * window.columns.kernel + kx);
                            for (std::size_t j = 0; j < count; ++j) {
                                const C value = computed(from[j]);
                                const bool better = value > best[j] || value != value;
                                best[j] = better ? value : best[j];
                                place[j] = better ? here : place[j];
                            }
                        }
                    }
                    store_sums(best, skip == nullptr ? nullptr : skip + to + c, y + to + c, count);
                    for (std::size_t j = 0; j < count; ++j) {
                        places[to + c + j] = static_cast<Place>(place[j]);
                    }
                });
        });
}

template <class T, class Place>
PIPETWIN_SIMD_TARGETS void max_pool_backward(
    const WindowShape& shape, int samples, const Place* places, const T* dy, const T* skip, T* dx) {
    using C = Computed<T>;
    const Window window(shape);
    for_pixels(
        samples, shape.in, [&](int s, int iy, int ix) __attribute__((always_inline)) {
            const Places ys = window.rows.covering(iy);
            const Places xs = window.columns.covering(ix);
            const std::size_t to = window.input(s, iy, ix);
            for_channels<T>(
                window.channels, [&](std::size_t c, auto count) __attribute__((always_inline)) {
                    C sum[channel_block<T>] = {};
                    for (int oy = ys.begin; oy < ys.end; ++oy) {
                        for (int ox = xs.begin; ox < xs.end; ++ox) {
                            const std::size_t from = window.output(s, oy, ox) + c;
                            const int here = (iy - window.rows.first(oy)) * window.columns.kernel +
                                             ix - window.columns.first(ox);
                            for (std::size_t j = 0; j < count; ++j) {
                                sum[j] += static_cast<int>(places[from + j]) == here
                                              ? computed(dy[from + j])
                                              : C(0);
                            }
                        }
                    }
                    store_sums(sum, skip == nullptr ? nullptr : skip + to + c, dx + to + c, count);
                });
        });
}

template <class T>
PIPETWIN_SIMD_TARGETS void average_pool_forward(
    const WindowShape& shape, int samples, const T* x, const T* skip, T* y) {
    using C = Computed<T>;
    const Window window(shape);
    for_pixels(
        samples, shape.out, [&](int s, int oy, int ox) __attribute__((always_inline)) {
            const Places ys = window.rows.inside(oy);
            const Places xs = window.columns.inside(ox);
            const std::size_t to = window.output(s, oy, ox);
            const auto divisor = C(divisor_of(shape, ys, xs));
            for_channels<T>(
                window.channels, [&](std::size_t c, auto count) __attribute__((always_inline)) {
                    C sum[channel_block<T>] = {};
                    for (int ky = ys.begin; ky < ys.end; ++ky) {
                        for (int kx = xs.begin; kx < xs.end; ++kx) {
                            const T* const from =
                                x + c +
                                window.input(
                                    s, window.rows.first(oy) + ky, window.columns.first(ox) + kx);
                            for (std::size_t j = 0; j < count; ++j) {
                                sum[j] += computed(from[j]);
                            }
                        }
                    }
                    for (std::size_t j = 0; j < count; ++j) {
                        sum[j] /= divisor;
                    }
                    store_sums(sum, skip == nullptr ? nullptr : skip + to + c, y + to + c, count);
                });
        });
}

template <class T>
PIPETWIN_SIMD_TARGETS void average_pool_backward(
    const WindowShape& shape, int samples, const T* dy, const T* skip, T* dx) {
    using C = Computed<T>;
    const Window window(shape);
    for_pixels(
        samples, shape.in, [&](int s, int iy, int ix) __attribute__((always_inline)) {
            const Places ys = window.rows.covering(iy);
            const Places xs = window.columns.covering(ix);
            const std::size_t to = window.input(s, iy, ix);
            for_channels<T>(
                window.channels, [&](std::size_t c, auto count) __attribute__((always_inline)) {
                    C sum[channel_block<T>] = {};
                    for (int oy = ys.begin; oy < ys.end; ++oy) {
                        for (int ox = xs.begin; ox < xs.end; ++ox) {
                            const T* const from = dy + c + window.output(s, oy, ox);
                            const auto divisor = C(divisor_of(
                                shape, window.rows.inside(oy), window.columns.inside(ox)));
                            for (std::size_t j = 0; j < count; ++j) {
                                sum[j] += computed(from[j]) / divisor;
                            }
                        }
                    }
                    store_sums(sum, skip == nullptr ? nullptr : skip + to + c, dx + to + c, count);
                });
        });
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

}  // namespace

void CpuWindowKernels::max_pool_forward(
    const WindowShape& shape, ConstView x, ConstView skip, View y, View places) const {
    const int samples = samples_of(shape, x, y);
    with_type(x.dtype, [&](auto zero) {
        using T = decltype(zero);
        with_places(places.dtype, [&](auto none) {
            exec::max_pool_forward(
                shape, samples, x.as<T>(), skip.as<T>(), y.as<T>(), places.as<decltype(none)>());
        });
    });
}

void CpuWindowKernels::max_pool_backward(
    const WindowShape& shape, ConstView places, ConstView dy, ConstView skip, View dx) const {
    const int samples = samples_of(shape, dx, dy);
    with_type(dx.dtype, [&](auto zero) {
        using T = decltype(zero);
        with_places(places.dtype, [&](auto none) {
            exec::max_pool_backward(
                shape, samples, places.as<decltype(none)>(), dy.as<T>(), skip.as<T>(), dx.as<T>());
        });
    });
}

void CpuWindowKernels::average_pool_forward(const WindowShape& shape,
                                            ConstView x,
                                            ConstView skip,
                                            View y) const {
    const int samples = samples_of(shape, x, y);
    with_type(x.dtype, [&](auto zero) {
        using T = decltype(zero);
        exec::average_pool_forward(shape, samples, x.as<T>(), skip.as<T>(), y.as<T>());
    });
}

void CpuWindowKernels::average_pool_backward(const WindowShape& shape,
                                             ConstView dy,
                                             ConstView skip,
                                             View dx) const {
    const int samples = samples_of(shape, dx, dy);
    with_type(dx.dtype, [&](auto zero) {
        using T = decltype(zero);
        exec::average_pool_backward(shape, samples, dy.as<T>(), skip.as<T>(), dx.as<T>());
    });
}

}  // namespace pipetwin::exec
