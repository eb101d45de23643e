// SPDX-License-Identifier: Apache-2.0
#include "exec/cpu/windows/cpu_window_kernels.h"
#include "exec/cpu/windows/window_loops.h"

namespace pipetwin::exec {
namespace {

/// Where output `o` of one direction is taken from: `first` and its neighbour, `second`.
template <class C>
struct Taken {
    int first = 0;
    int second = 0;
    C first_share = 1;
    C second_share = 0;
};

/// The centre of output `o` lies at (o + 1/2) / factor - 1/2 of the input, not before its first
/// centre; the share of a neighbour is its nearness.
template <class C>
PIPETWIN_INLINE Taken<C> taken_by(int o, int size, const UpsampleShape& shape) {
    if (!shape.bilinear) {
        return {.first = o / shape.factor, .second = o / shape.factor};
    }
    const C place = std::max((C(o) + C(0.5)) / C(shape.factor) - C(0.5), C(0));
    const int first = std::min(static_cast<int>(place), size - 1);
    const int second = std::min(first + 1, size - 1);
    const C share = second == first ? C(0) : place - C(first);
    return {.first = first, .second = second, .first_share = 1 - share, .second_share = share};
}

/// Outputs that may take from input `i`.
PIPETWIN_INLINE Places takers_of(int i, int size, const UpsampleShape& shape) {
    const int reach = shape.bilinear ? 1 : 0;
    return {.begin = std::max(i - reach, 0) * shape.factor,
            .end = std::min(i + 1 + reach, size) * shape.factor};
}

template <class C>
PIPETWIN_INLINE C share_of(int i, const Taken<C>& taken) {
    return (taken.first == i ? taken.first_share : C(0)) +
           (taken.second == i ? taken.second_share : C(0));
}

template <class T>
PIPETWIN_SIMD_TARGETS void upsample_forward(const UpsampleShape& shape,
                                            int samples,
                                            std::size_t channels,
                                            const T* x,
                                            const T* skip,
                                            T* y) {
    using C = Computed<T>;
    const auto [height, width] = shape.in;
    std::size_t to = 0;
    for (int s = 0; s < samples; ++s) {
        const T* const image = x + as_index(s * shape.pixels()) * channels;
        const auto pixel = [&](int iy, int ix) {
            return image + as_index(std::int64_t{iy} * width + ix) * channels;
        };
        for (int oy = 0; oy < height * shape.factor; ++oy) {
            const Taken<C> v = taken_by<C>(oy, height, shape);
            for (int ox = 0; ox < width * shape.factor; ++ox, to += channels) {
                const Taken<C> h = taken_by<C>(ox, width, shape);
                const T* const skipped = skip == nullptr ? nullptr : skip + to;
                const T* const top = pixel(v.first, h.first);
                const T* const top_right = pixel(v.first, h.second);
                const T* const bottom = pixel(v.second, h.first);
                const T* const bottom_right = pixel(v.second, h.second);
                for_channels<T>(
                    channels, [&](std::size_t c, auto count) __attribute__((always_inline)) {
                        C sum[channel_block<T>];
                        for (std::size_t j = 0; j < count; ++j) {
                            sum[j] = shape.bilinear
                                         ? v.first_share *
                                                   (h.first_share * computed(top[c + j]) +
                                                    h.second_share * computed(top_right[c + j])) +
                                               v.second_share *
                                                   (h.first_share * computed(bottom[c + j]) +
                                                    h.second_share * computed(bottom_right[c + j]))
                                         : computed(top[c + j]);
                        }
                        store_sums(sum, skip == nullptr ? nullptr : skipped + c, y + to + c, count);
                    });
            }
        }
    }
}

template <class T>
PIPETWIN_SIMD_TARGETS void upsample_backward(const UpsampleShape& shape,
                                             int samples,
                                             std::size_t channels,
                                             const T* dy,
                                             const T* skip,
                                             T* dx) {
    using C = Computed<T>;
    const auto [height, width] = shape.in;
    const std::int64_t out_width = std::int64_t{width} * shape.factor;
    const std::int64_t out_pixels = out_width * height * shape.factor;
    std::size_t to = 0;
    for (int s = 0; s < samples; ++s) {
        const T* const image = dy + as_index(s * out_pixels) * channels;
        for (int iy = 0; iy < height; ++iy) {
            const Places ys = takers_of(iy, height, shape);
            for (int ix = 0; ix < width; ++ix, to += channels) {
                const Places xs = takers_of(ix, width, shape);
                for_channels<T>(
                    channels, [&](std::size_t c, auto count) __attribute__((always_inline)) {
                        C sum[channel_block<T>] = {};
                        for (int oy = ys.begin; oy < ys.end; ++oy) {
                            const C down = share_of(iy, taken_by<C>(oy, height, shape));
                            for (int ox = xs.begin; ox < xs.end; ++ox) {
                                const C share = down * share_of(ix, taken_by<C>(ox, width, shape));
                                const T* const from =
                                    image + as_index(oy * out_width + ox) * channels + c;
                                for (std::size_t j = 0; j < count; ++j) {
                                    sum[j] += share * computed(from[j]);
                                }
                            }
                        }
                        store_sums(
                            sum, skip == nullptr ? nullptr : skip + to + c, dx + to + c, count);
                    });
            }
        }
    }
}

}  // namespace

void CpuWindowKernels::upsample_forward(const UpsampleShape& shape,
                                        ConstView x,
                                        ConstView skip,
                                        View y) const {
    const int samples = samples_of(x, shape.in);
    with_type(x.dtype, [&](auto zero) {
        using T = decltype(zero);
        exec::upsample_forward(
            shape, samples, as_index(x.columns), x.as<T>(), skip.as<T>(), y.as<T>());
    });
}

void CpuWindowKernels::upsample_backward(const UpsampleShape& shape,
                                         ConstView dy,
                                         ConstView skip,
                                         View dx) const {
    const int samples = samples_of(dx, shape.in);
    with_type(dx.dtype, [&](auto zero) {
        using T = decltype(zero);
        exec::upsample_backward(
            shape, samples, as_index(dx.columns), dy.as<T>(), skip.as<T>(), dx.as<T>());
    });
}

}  // namespace pipetwin::exec
