// SPDX-License-Identifier: Apache-2.0
#include "exec/cuda/kernels/windows/cuda_window_kernels.h"
#include "exec/cuda/kernels/windows/window_math.h"

// Bound by memory: a thread makes one number, neighbours have neighbouring channels. A pixel is
// read by as many windows as hold it, from the caches.
namespace pipetwin::cuda {
namespace {

template <class T, class Place>
struct Maxima {
    Window window;
    const T* x;
    const T* dy;
    const T* skip;
    T* to;
    Place* places;
};

template <class T, class Place>
__global__ void __launch_bounds__(window_block) max_forward_kernel(Maxima<T, Place> o) {
    const WindowAxis rows = rows_of(o.window);
    const WindowAxis columns = columns_of(o.window);
    const std::int64_t channels = o.window.channels;
    const std::int64_t size =
        static_cast<std::int64_t>(o.window.samples) * rows.out * columns.out * channels;
    for (std::int64_t i = thread_of_grid(); i < size; i += threads_of_grid()) {
        const PixelPlace at = pixel_of(i / channels, rows.out, columns.out);
        const T* const image = o.x + at.sample * rows.size * columns.size * channels + i % channels;
        float best = 0;
        int place = -1;
        for (int ky = 0; ky < rows.kernel; ++ky) {
            const int y = rows.input_of(at.y, ky);
            for (int kx = 0; y >= 0 && kx < columns.kernel; ++kx) {
                const int x = columns.input_of(at.x, kx);
                if (x < 0) {
                    continue;
                }
                const float value =
                    to_float(image[(static_cast<std::int64_t>(y) * columns.size + x) * channels]);
                if (place < 0 || value > best || value != value) {
                    best = value;
                    place = ky * columns.kernel + kx;
                }
            }
        }
        store_with_skip(best, o.skip, i, o.to);
        o.places[i] = static_cast<Place>(place);
    }
}

template <class T, class Place>
__global__ void __launch_bounds__(window_block) max_backward_kernel(Maxima<T, Place> o) {
    const WindowAxis rows = rows_of(o.window);
    const WindowAxis columns = columns_of(o.window);
    const std::int64_t channels = o.window.channels;
    const std::int64_t size =
        static_cast<std::int64_t>(o.window.samples) * rows.size * columns.size * channels;
    for (std::int64_t i = thread_of_grid(); i < size; i += threads_of_grid()) {
        const PixelPlace at = pixel_of(i / channels, rows.size, columns.size);
        const std::int64_t image = at.sample * rows.out * columns.out * channels + i % channels;
        float sum = 0;
        for (int y = rows.first_output(at.y); y < rows.end_output(at.y); ++y) {
            for (int x = columns.first_output(at.x); x < columns.end_output(at.x); ++x) {
                const std::int64_t from =
                    image + (static_cast<std::int64_t>(y) * columns.out + x) * channels;
                const int here = (at.y + rows.before - y * rows.stride) * columns.kernel + at.x +
                                 columns.before - x * columns.stride;
                if (static_cast<int>(o.places[from]) == here) {
                    sum += to_float(o.dy[from]);
                }
            }
        }
        store_with_skip(sum, o.skip, i, o.to);
    }
}

template <class T>
struct Averages {
    Window window;
    const T* from;
    const T* skip;
    T* to;
};

__device__ __forceinline__ float divisor_of(
    const Window& w, const WindowAxis& rows, const WindowAxis& columns, int y, int x) {
    if (w.count_padding != 0) {
        return static_cast<float>(rows.kernel * columns.kernel);
    }
    const int pixels = rows.pixels(y) * columns.pixels(x);
    return static_cast<float>(pixels > 0 ? pixels : 1);
}

template <class T>
__global__ void __launch_bounds__(window_block) average_forward_kernel(Averages<T> o) {
    const WindowAxis rows = rows_of(o.window);
    const WindowAxis columns = columns_of(o.window);
    const std::int64_t channels = o.window.channels;
    const std::int64_t size =
        static_cast<std::int64_t>(o.window.samples) * rows.out * columns.out * channels;
    for (std::int64_t i = thread_of_grid(); i < size; i += threads_of_grid()) {
        const PixelPlace at = pixel_of(i / channels, rows.out, columns.out);
        const T* const image =
            o.from + at.sample * rows.size * columns.size * channels + i % channels;
        float sum = 0;
        for (int ky = 0; ky < rows.kernel; ++ky) {
            const int y = rows.input_of(at.y, ky);
            for (int kx = 0; y >= 0 && kx < columns.kernel; ++kx) {
                const int x = columns.input_of(at.x, kx);
                if (x >= 0) {
                    sum += to_float(
                        image[(static_cast<std::int64_t>(y) * columns.size + x) * channels]);
                }
            }
        }
        store_with_skip(sum / divisor_of(o.window, rows, columns, at.y, at.x), o.skip, i, o.to);
    }
}

template <class T>
__global__ void __launch_bounds__(window_block) average_backward_kernel(Averages<T> o) {
    const WindowAxis rows = rows_of(o.window);
    const WindowAxis columns = columns_of(o.window);
    const std::int64_t channels = o.window.channels;
    const std::int64_t size =
        static_cast<std::int64_t>(o.window.samples) * rows.size * columns.size * channels;
    for (std::int64_t i = thread_of_grid(); i < size; i += threads_of_grid()) {
        const PixelPlace at = pixel_of(i / channels, rows.size, columns.size);
        const T* const image =
            o.from + at.sample * rows.out * columns.out * channels + i % channels;
        float sum = 0;
        for (int y = rows.first_output(at.y); y < rows.end_output(at.y); ++y) {
            for (int x = columns.first_output(at.x); x < columns.end_output(at.x); ++x) {
                sum +=
                    to_float(image[(static_cast<std::int64_t>(y) * columns.out + x) * channels]) /
                    divisor_of(o.window, rows, columns, y, x);
            }
        }
        store_with_skip(sum, o.skip, i, o.to);
    }
}

/// f(T{}, Place{}).
template <class F>
cudaError_t with_places(Real real, std::int32_t bytes, F&& f) {
    return with_real(real, [&](auto zero) {
        return bytes == 1 ? f(zero, std::uint8_t{}) : f(zero, std::int32_t{});
    });
}

}  // namespace

cudaError_t max_pool_forward(Real real,
                             const Window& window,
                             std::int32_t bytes,
                             const void* x,
                             const void* skip,
                             void* y,
                             void* places,
                             cudaStream_t stream) {
    return with_places(real, bytes, [=](auto zero, auto place) {
        using T = decltype(zero);
        using Place = decltype(place);
        const Maxima<T, Place> o{window,
                                 static_cast<const T*>(x),
                                 nullptr,
                                 static_cast<const T*>(skip),
                                 static_cast<T*>(y),
                                 static_cast<Place*>(places)};
        return launch_numbers<max_forward_kernel<T, Place>>(
            out_rows(window) * window.channels, o, stream);
    });
}

cudaError_t max_pool_backward(Real real,
                              const Window& window,
                              std::int32_t bytes,
                              const void* places,
                              const void* dy,
                              const void* skip,
                              void* dx,
                              cudaStream_t stream) {
    return with_places(real, bytes, [=](auto zero, auto place) {
        using T = decltype(zero);
        using Place = decltype(place);
        const Maxima<T, Place> o{window,
                                 nullptr,
                                 static_cast<const T*>(dy),
                                 static_cast<const T*>(skip),
                                 static_cast<T*>(dx),
                                 const_cast<Place*>(static_cast<const Place*>(places))};
        return launch_numbers<max_backward_kernel<T, Place>>(
            in_rows(window) * window.channels, o, stream);
    });
}

cudaError_t average_pool_forward(Real real,
                                 const Window& window,
                                 const void* x,
                                 const void* skip,
                                 void* y,
                                 cudaStream_t stream) {
    return with_real(real, [=](auto zero) {
        using T = decltype(zero);
        const Averages<T> o{
            window, static_cast<const T*>(x), static_cast<const T*>(skip), static_cast<T*>(y)};
        return launch_numbers<average_forward_kernel<T>>(
            out_rows(window) * window.channels, o, stream);
    });
}

cudaError_t average_pool_backward(Real real,
                                  const Window& window,
                                  const void* dy,
                                  const void* skip,
                                  void* dx,
                                  cudaStream_t stream) {
    return with_real(real, [=](auto zero) {
        using T = decltype(zero);
        const Averages<T> o{
            window, static_cast<const T*>(dy), static_cast<const T*>(skip), static_cast<T*>(dx)};
        return launch_numbers<average_backward_kernel<T>>(
            in_rows(window) * window.channels, o, stream);
    });
}

namespace {

std::int32_t bytes_of(exec::DType type) {
    return static_cast<std::int32_t>(exec::size_of(type));
}

}  // namespace

void CudaWindowKernels::max_pool_forward(const exec::WindowShape& shape,
                                         exec::ConstView x,
                                         exec::ConstView skip,
                                         exec::View y,
                                         exec::View places) const {
    calls_.list().add("max_pool_forward",
                      cuda::max_pool_forward,
                      real_of(x.dtype),
                      window_of(shape, x),
                      bytes_of(places.dtype),
                      x.data,
                      skip.data,
                      y.data,
                      places.data);
}

void CudaWindowKernels::max_pool_backward(const exec::WindowShape& shape,
                                          exec::ConstView places,
                                          exec::ConstView dy,
                                          exec::ConstView skip,
                                          exec::View dx) const {
    calls_.list().add("max_pool_backward",
                      cuda::max_pool_backward,
                      real_of(dy.dtype),
                      window_of(shape, dx),
                      bytes_of(places.dtype),
                      places.data,
                      dy.data,
                      skip.data,
                      dx.data);
}

void CudaWindowKernels::average_pool_forward(const exec::WindowShape& shape,
                                             exec::ConstView x,
                                             exec::ConstView skip,
                                             exec::View y) const {
    calls_.list().add("average_pool_forward",
                      cuda::average_pool_forward,
                      real_of(x.dtype),
                      window_of(shape, x),
                      x.data,
                      skip.data,
                      y.data);
}

void CudaWindowKernels::average_pool_backward(const exec::WindowShape& shape,
                                              exec::ConstView dy,
                                              exec::ConstView skip,
                                              exec::View dx) const {
    calls_.list().add("average_pool_backward",
                      cuda::average_pool_backward,
                      real_of(dy.dtype),
                      window_of(shape, dx),
                      dy.data,
                      skip.data,
                      dx.data);
}

}  // namespace pipetwin::cuda
