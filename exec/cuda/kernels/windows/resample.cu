// SPDX-License-Identifier: Apache-2.0
#include "exec/cuda/kernels/windows/cuda_window_kernels.h"
#include "exec/cuda/kernels/windows/window_math.h"

// Bound by memory: a thread makes one number, neighbours have neighbouring channels.
namespace pipetwin::cuda {
namespace {

/// Where an output of one direction is taken from: `first` and its neighbour, `second`.
struct Taken {
    int first;
    int second;
    float first_share;
    float second_share;
};

// The centre of output o lies at (o + 1/2) / factor - 1/2 of the input, not before its first
// centre.
__device__ __forceinline__ Taken taken_by(int o, int size, const Upsampling& u) {
    if (u.bilinear == 0) {
        return {o / u.factor, o / u.factor, 1.0F, 0.0F};
    }
    const float centre = (static_cast<float>(o) + 0.5F) / static_cast<float>(u.factor) - 0.5F;
    const float place = centre > 0.0F ? centre : 0.0F;
    const int whole = static_cast<int>(place);
    const int first = whole < size - 1 ? whole : size - 1;
    const int second = first + 1 < size - 1 ? first + 1 : size - 1;
    const float share = second == first ? 0.0F : place - static_cast<float>(first);
    return {first, second, 1.0F - share, share};
}

__device__ __forceinline__ float share_of(int i, const Taken& taken) {
    return (taken.first == i ? taken.first_share : 0.0F) +
           (taken.second == i ? taken.second_share : 0.0F);
}

template <class T>
struct Resampled {
    Upsampling of;
    const T* from;
    const T* skip;
    T* to;
};

template <class T>
__global__ void __launch_bounds__(window_block) upsample_kernel(Resampled<T> o) {
    const std::int64_t channels = o.of.channels;
    const int height = o.of.height * o.of.factor;
    const int width = o.of.width * o.of.factor;
    const std::int64_t size = static_cast<std::int64_t>(o.of.samples) * height * width * channels;
    for (std::int64_t i = thread_of_grid(); i < size; i += threads_of_grid()) {
        const PixelPlace at = pixel_of(i / channels, height, width);
        const Taken v = taken_by(at.y, o.of.height, o.of);
        const Taken h = taken_by(at.x, o.of.width, o.of);
        const T* const image =
            o.from + at.sample * o.of.height * o.of.width * channels + i % channels;
        const auto number = [&](int y, int x) {
            return to_float(image[(static_cast<std::int64_t>(y) * o.of.width + x) * channels]);
        };
        float sum = number(v.first, h.first);
        if (o.of.bilinear != 0) {
            sum =
                v.first_share * (h.first_share * sum + h.second_share * number(v.first, h.second)) +
                v.second_share * (h.first_share * number(v.second, h.first) +
                                  h.second_share * number(v.second, h.second));
        }
        store_with_skip(sum, o.skip, i, o.to);
    }
}

template <class T>
__global__ void __launch_bounds__(window_block) upsample_backward_kernel(Resampled<T> o) {
    const std::int64_t channels = o.of.channels;
    const int factor = o.of.factor;
    const int reach = o.of.bilinear != 0 ? 1 : 0;
    const int width = o.of.width * factor;
    const std::int64_t size =
        static_cast<std::int64_t>(o.of.samples) * o.of.height * o.of.width * channels;
    for (std::int64_t i = thread_of_grid(); i < size; i += threads_of_grid()) {
        const PixelPlace at = pixel_of(i / channels, o.of.height, o.of.width);
        const int top = (at.y - reach > 0 ? at.y - reach : 0) * factor;
        const int bottom =
            (at.y + 1 + reach < o.of.height ? at.y + 1 + reach : o.of.height) * factor;
        const int left = (at.x - reach > 0 ? at.x - reach : 0) * factor;
        const int right = (at.x + 1 + reach < o.of.width ? at.x + 1 + reach : o.of.width) * factor;
        const T* const image =
            o.from + at.sample * o.of.height * factor * width * channels + i % channels;
        float sum = 0;
        for (int y = top; y < bottom; ++y) {
            const float down = share_of(at.y, taken_by(y, o.of.height, o.of));
            for (int x = left; x < right; ++x) {
                const float share = down * share_of(at.x, taken_by(x, o.of.width, o.of));
                sum +=
                    share * to_float(image[(static_cast<std::int64_t>(y) * width + x) * channels]);
            }
        }
        store_with_skip(sum, o.skip, i, o.to);
    }
}

template <class T>
struct Padded {
    Padding of;
    const T* x;
    const T* skip;
    T* y;
};

template <class T>
__global__ void __launch_bounds__(window_block) pad_kernel(Padded<T> o) {
    const Padding& p = o.of;
    const std::int64_t channels = p.channels;
    const std::int64_t size =
        static_cast<std::int64_t>(p.samples) * p.out_height * p.out_width * channels;
    for (std::int64_t i = thread_of_grid(); i < size; i += threads_of_grid()) {
        const PixelPlace at = pixel_of(i / channels, p.out_height, p.out_width);
        const int y = at.y - p.top;
        const int x = at.x - p.left;
        const bool inside = y >= 0 && y < p.height && x >= 0 && x < p.width;
        const std::int64_t row = (at.sample * p.height + y) * p.width + x;
        store_with_skip(
            inside ? to_float(o.x[row * channels + i % channels]) : 0.0F, o.skip, i, o.y);
    }
}

std::int64_t numbers_of(const Upsampling& u) {
    return static_cast<std::int64_t>(u.samples) * u.height * u.width * u.channels;
}

}  // namespace

cudaError_t upsample_forward(Real real,
                             const Upsampling& upsampling,
                             const void* x,
                             const void* skip,
                             void* y,
                             cudaStream_t stream) {
    return with_real(real, [=](auto zero) {
        using T = decltype(zero);
        const Resampled<T> o{
            upsampling, static_cast<const T*>(x), static_cast<const T*>(skip), static_cast<T*>(y)};
        const std::int64_t copies =
            static_cast<std::int64_t>(upsampling.factor) * upsampling.factor;
        return launch_numbers<upsample_kernel<T>>(numbers_of(upsampling) * copies, o, stream);
    });
}

cudaError_t upsample_backward(Real real,
                              const Upsampling& upsampling,
                              const void* dy,
                              const void* skip,
                              void* dx,
                              cudaStream_t stream) {
    return with_real(real, [=](auto zero) {
        using T = decltype(zero);
        const Resampled<T> o{upsampling,
                             static_cast<const T*>(dy),
                             static_cast<const T*>(skip),
                             static_cast<T*>(dx)};
        return launch_numbers<upsample_backward_kernel<T>>(numbers_of(upsampling), o, stream);
    });
}

cudaError_t pad(Real real,
                const Padding& padding,
                const void* x,
                const void* skip,
                void* y,
                cudaStream_t stream) {
    return with_real(real, [=](auto zero) {
        using T = decltype(zero);
        const Padded<T> o{
            padding, static_cast<const T*>(x), static_cast<const T*>(skip), static_cast<T*>(y)};
        const std::int64_t size = static_cast<std::int64_t>(padding.samples) * padding.out_height *
                                  padding.out_width * padding.channels;
        return launch_numbers<pad_kernel<T>>(size, o, stream);
    });
}

namespace {

Upsampling upsampling_of(const exec::UpsampleShape& shape, exec::ConstView x) {
    return {.samples = static_cast<std::int32_t>(x.rows / shape.pixels()),
            .height = shape.in.height,
            .width = shape.in.width,
            .channels = static_cast<std::int32_t>(x.columns),
            .factor = shape.factor,
            .bilinear = shape.bilinear ? 1 : 0};
}

}  // namespace

void CudaWindowKernels::upsample_forward(const exec::UpsampleShape& shape,
                                         exec::ConstView x,
                                         exec::ConstView skip,
                                         exec::View y) const {
    calls_.list().add("upsample_forward",
                      cuda::upsample_forward,
                      real_of(x.dtype),
                      upsampling_of(shape, x),
                      x.data,
                      skip.data,
                      y.data);
}

void CudaWindowKernels::upsample_backward(const exec::UpsampleShape& shape,
                                          exec::ConstView dy,
                                          exec::ConstView skip,
                                          exec::View dx) const {
    calls_.list().add("upsample_backward",
                      cuda::upsample_backward,
                      real_of(dy.dtype),
                      upsampling_of(shape, dx),
                      dy.data,
                      skip.data,
                      dx.data);
}

void CudaWindowKernels::pad(
    Pixels from, Margins margins, exec::ConstView x, exec::ConstView skip, exec::View y) const {
    const Padding padding{
        .samples = static_cast<std::int32_t>(x.rows / (std::int64_t{from.height} * from.width)),
        .height = from.height,
        .width = from.width,
        .channels = static_cast<std::int32_t>(x.columns),
        .top = margins.top,
        .left = margins.left,
        .out_height = from.height + margins.top + margins.bottom,
        .out_width = from.width + margins.left + margins.right};
    calls_.list().add("pad", cuda::pad, real_of(x.dtype), padding, x.data, skip.data, y.data);
}

}  // namespace pipetwin::cuda
