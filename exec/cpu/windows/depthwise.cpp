// SPDX-License-Identifier: Apache-2.0
#include "exec/cpu/products/product_scratch.h"
#include "exec/cpu/windows/window_loops.h"

namespace pipetwin::exec {

template <class T>
PIPETWIN_SIMD_TARGETS void depthwise_forward(const WindowShape& shape,
                                             int samples,
                                             const DepthwiseOperands<T>& o,
                                             T* y) {
    using C = Computed<T>;
    const WindowAxis rows = rows_axis(shape);
    const WindowAxis columns = columns_axis(shape);
    const auto channels = as_index(shape.channels);
    std::size_t to = 0;
    for (int s = 0; s < samples; ++s) {
        const T* const image = o.x + as_index(shape.in_rows(s)) * channels;
        for (int oy = 0; oy < rows.out; ++oy) {
            for (int ox = 0; ox < columns.out; ++ox, to += channels) {
                for_channels<T>(
                    channels, [&](std::size_t c, auto count) __attribute__((always_inline)) {
                        C sum[channel_block<T>];
                        for (std::size_t j = 0; j < count; ++j) {
                            sum[j] = o.bias == nullptr ? C(0) : computed(o.bias[c + j]);
                        }
                        for (int ky = 0; ky < rows.kernel; ++ky) {
                            const int iy = rows.first(oy) + ky * rows.dilation;
                            if (iy < 0 || iy >= rows.size) {
                                continue;
                            }
                            for (int kx = 0; kx < columns.kernel; ++kx) {
                                const int ix = columns.first(ox) + kx * columns.dilation;
                                if (ix < 0 || ix >= columns.size) {
                                    continue;
                                }
                                const T* const from =
                                    image +
                                    as_index(std::int64_t{iy} * columns.size + ix) * channels + c;
                                const T* const w =
                                    o.w + as_index(ky * columns.kernel + kx) * channels + c;
                                for (std::size_t j = 0; j < count; ++j) {
                                    sum[j] += computed(from[j]) * computed(w[j]);
                                }
                            }
                        }
                        store_sums(
                            sum, o.skip == nullptr ? nullptr : o.skip + to + c, y + to + c, count);
                    });
            }
        }
    }
}

template <class T>
PIPETWIN_SIMD_TARGETS void depthwise_backward_input(const WindowShape& shape,
                                                    int samples,
                                                    const DepthwiseOperands<T>& o,
                                                    T* dx) {
    using C = Computed<T>;
    const WindowAxis rows = rows_axis(shape);
    const WindowAxis columns = columns_axis(shape);
    const auto channels = as_index(shape.channels);
    std::size_t to = 0;
    for (int s = 0; s < samples; ++s) {
        const T* const image = o.dy + as_index(shape.out_rows(s)) * channels;
        for (int iy = 0; iy < rows.size; ++iy) {
            for (int ix = 0; ix < columns.size; ++ix, to += channels) {
                for_channels<T>(
                    channels, [&](std::size_t c, auto count) __attribute__((always_inline)) {
                        C sum[channel_block<T>] = {};
                        for (int ky = 0; ky < rows.kernel; ++ky) {
                            const int oy = rows.output_of(iy, ky);
                            for (int kx = 0; oy >= 0 && kx < columns.kernel; ++kx) {
                                const int ox = columns.output_of(ix, kx);
                                if (ox < 0) {
                                    continue;
                                }
                                const T* const from =
                                    image +
                                    as_index(std::int64_t{oy} * columns.out + ox) * channels + c;
                                const T* const w =
                                    o.w + as_index(ky * columns.kernel + kx) * channels + c;
                                for (std::size_t j = 0; j < count; ++j) {
                                    sum[j] += computed(from[j]) * computed(w[j]);
                                }
                            }
                        }
                        store_sums(
                            sum, o.skip == nullptr ? nullptr : o.skip + to + c, dx + to + c, count);
                    });
            }
        }
    }
}

// Sums of some rows are added to the gradient, as products do it.
template <class T>
PIPETWIN_SIMD_TARGETS void depthwise_backward_weight(const WindowShape& shape,
                                                     int samples,
                                                     const DepthwiseOperands<T>& o,
                                                     Computed<T>* sums,
                                                     Computed<T>* dw) {
    const WindowAxis rows = rows_axis(shape);
    const WindowAxis columns = columns_axis(shape);
    const auto channels = as_index(shape.channels);
    const std::size_t numbers = as_index(shape.places()) * channels;
    std::fill_n(sums, numbers, Computed<T>(0));
    const std::int64_t all_rows = shape.out_rows(samples);
    const std::int64_t out_pixels = shape.out_rows(1);
    for (std::int64_t r = 0; r < all_rows; ++r) {
        const T* const image =
            o.x + as_index(shape.in_rows(static_cast<int>(r / out_pixels))) * channels;
        const int oy = static_cast<int>(r % out_pixels / columns.out);
        const int ox = static_cast<int>(r % columns.out);
        const T* const dy = o.dy + as_index(r) * channels;
        for (int ky = 0; ky < rows.kernel; ++ky) {
            const int iy = rows.first(oy) + ky * rows.dilation;
            for (int kx = 0; kx < columns.kernel && iy >= 0 && iy < rows.size; ++kx) {
                const int ix = columns.first(ox) + kx * columns.dilation;
                if (ix < 0 || ix >= columns.size) {
                    continue;
                }
                const T* const from =
                    image + as_index(std::int64_t{iy} * columns.size + ix) * channels;
                Computed<T>* const sum = sums + as_index(ky * columns.kernel + kx) * channels;
                PIPETWIN_ELEMENTWISE
                for (std::size_t c = 0; c < channels; ++c) {
                    sum[c] += computed(from[c]) * computed(dy[c]);
                }
            }
        }
        if ((r + 1) % block_depth == 0 || r + 1 == all_rows) {
            PIPETWIN_ELEMENTWISE
            for (std::size_t i = 0; i < numbers; ++i) {
                dw[i] += sums[i];
                sums[i] = 0;
            }
        }
    }
}

#define PIPETWIN_DEPTHWISE(T)                                                                  \
    template void depthwise_forward(const WindowShape&, int, const DepthwiseOperands<T>&, T*); \
    template void depthwise_backward_input(                                                    \
        const WindowShape&, int, const DepthwiseOperands<T>&, T*);                             \
    template void depthwise_backward_weight(                                                   \
        const WindowShape&, int, const DepthwiseOperands<T>&, Computed<T>*, Computed<T>*);

PIPETWIN_DEPTHWISE(float)
PIPETWIN_DEPTHWISE(double)
PIPETWIN_DEPTHWISE(BFloat16)
#undef PIPETWIN_DEPTHWISE

}  // namespace pipetwin::exec
