// SPDX-License-Identifier: Apache-2.0
#include "exec/cuda/kernels/windows/window_math.h"

// Implicit products: what a window reads is no matrix in memory, but looked up while a tile of it
// is brought into shared memory. One group of channels:
//
//   forward          y (pixels, outputs)    = windows of x (pixels, depth)   w (depth, outputs)
//   gradient by x    dx (pixels, channels)  = windows of dy                  w^T, place by place
//   gradient by w    dw (depth, outputs)   += windows of x, transposed       dy
//
// A block of 256 threads makes 64 x 64 numbers, 16 of the depth at a time; a thread 4 x 4 of them.
// A sum over the depth has one order. The gradient by w is summed over slices of the pixels, which
// a second kernel adds in their order. With groups a thread makes one number by itself.
namespace pipetwin::cuda {
namespace {

constexpr int tile = 64;
constexpr int tile_depth = 16;
constexpr int threads = 256;
constexpr int line = 16;  ///< threads of a line; each makes `each` x `each` numbers
constexpr int each = tile / line;
constexpr int loads = tile * tile_depth / threads;

template <class T>
struct Operands {
    Window window;
    const T* x;
    const T* w;
    const T* dy;
    const T* bias;
    const T* skip;
    T* to;
    float* sums;  ///< (slices, depth, outputs)
    std::int64_t slice_rows;
};

/// What lies on a place of a window: its row and column, and the channel of the image that is read.
struct DepthPlace {
    int ky;
    int kx;
    int channel;
};
__device__ __forceinline__ DepthPlace place_of(int k, int channels, int kernel_width) {
    const int place = k / channels;
    return {place / kernel_width, place % kernel_width, k - place * channels};
}

/// Tiles of both factors, turned so that a thread reads neighbours.
struct Tiles {
    float a[tile_depth][tile + 1];
    float b[tile_depth][tile];
};

struct Sums {
    float at[each][each];
};

__device__ __forceinline__ void multiply_tiles(const Tiles& tiles, Sums& sums) {
    const int row = static_cast<int>(threadIdx.x) / line;
    const int column = static_cast<int>(threadIdx.x) % line;
    PIPETWIN_UNROLL
    for (int k = 0; k < tile_depth; ++k) {
        PIPETWIN_UNROLL
        for (int i = 0; i < each; ++i) {
            const float a = tiles.a[k][row + i * line];
            PIPETWIN_UNROLL
            for (int j = 0; j < each; ++j) {
                sums.at[i][j] += a * tiles.b[k][column + j * line];
            }
        }
    }
}

/// Calls f(row of the tile, column of the tile, sum) for the numbers of the thread.
template <class F>
__device__ __forceinline__ void for_sums(const Sums& sums, F&& f) {
    const int row = static_cast<int>(threadIdx.x) / line;
    const int column = static_cast<int>(threadIdx.x) % line;
    PIPETWIN_UNROLL
    for (int i = 0; i < each; ++i) {
        PIPETWIN_UNROLL
        for (int j = 0; j < each; ++j) {
            f(row + i * line, column + j * line, sums.at[i][j]);
        }
    }
}

// y = skip + x * w + b where `forward`, else dx = skip + the gradient by x.
template <class T, bool forward>
__global__ void __launch_bounds__(threads) image_kernel(Operands<T> o) {
    PIPETWIN_SHARED(tiles, Tiles);
    const Window& w = o.window;
    const WindowAxis rows = rows_of(w);
    const WindowAxis columns = columns_of(w);
    const int to_height = forward ? rows.out : rows.size;
    const int to_width = forward ? columns.out : columns.size;
    const int from_width = forward ? columns.size : columns.out;
    const int from_pixels = from_width * (forward ? rows.size : rows.out);
    const int from_channels = forward ? w.channels : w.outputs;
    const int to_channels = forward ? w.outputs : w.channels;
    const int depth = rows.kernel * columns.kernel * from_channels;
    const std::int64_t pixels = static_cast<std::int64_t>(w.samples) * to_height * to_width;
    const std::int64_t first_row = static_cast<std::int64_t>(blockIdx.x) * tile;
    const int first_column = static_cast<int>(blockIdx.y) * tile;
    const T* const from = forward ? o.x : o.dy;
    const int thread = static_cast<int>(threadIdx.x);

    PixelPlace of_row[loads];  // those that the thread brings
    PIPETWIN_UNROLL
    for (int i = 0; i < loads; ++i) {
        const std::int64_t row = first_row + thread / tile_depth + i * (threads / tile_depth);
        of_row[i] = row < pixels ? pixel_of(row, to_height, to_width) : PixelPlace{-1, 0, 0};
    }
    Sums sums{};
    for (int begin = 0; begin < depth; begin += tile_depth) {
        const int k = begin + thread % tile_depth;
        const DepthPlace place = place_of(k, from_channels, columns.kernel);
        PIPETWIN_UNROLL
        for (int i = 0; i < loads; ++i) {
            const PixelPlace& at = of_row[i];
            const int y = forward ? rows.input_of(at.y, place.ky) : rows.output_of(at.y, place.ky);
            const int x =
                forward ? columns.input_of(at.x, place.kx) : columns.output_of(at.x, place.kx);
            const bool is_there = at.sample >= 0 && k < depth && y >= 0 && x >= 0;
            const std::int64_t pixel = at.sample * from_pixels + y * from_width + x;
            tiles.a[thread % tile_depth][thread / tile_depth + i * (threads / tile_depth)] =
                is_there ? to_float(from[pixel * from_channels + place.channel]) : 0.0F;
        }
        PIPETWIN_UNROLL
        for (int i = 0; i < loads; ++i) {
            // Neighbouring threads read neighbouring outputs: columns forward, the depth backward.
            const int in_depth =
                forward ? thread / tile + i * (threads / tile) : thread % tile_depth;
            const int in_tile =
                forward ? thread % tile : thread / tile_depth + i * (threads / tile_depth);
            const int column = first_column + in_tile;
            const int at_depth = begin + in_depth;
            float value = 0;
            if (at_depth < depth && column < to_channels) {
                if (forward) {
                    value = to_float(o.w[static_cast<std::int64_t>(at_depth) * w.outputs + column]);
                } else {
                    const std::int64_t weight_row =
                        static_cast<std::int64_t>(place.ky * columns.kernel + place.kx) *
                            w.channels +
                        column;
                    value = to_float(o.w[weight_row * w.outputs + place.channel]);
                }
            }
            tiles.b[in_depth][in_tile] = value;
        }
        __syncthreads();
        multiply_tiles(tiles, sums);
        __syncthreads();
    }
    for_sums(sums, [&](int i, int j, float sum) {
        const std::int64_t row = first_row + i;
        const int column = first_column + j;
        if (row < pixels && column < to_channels) {
            const float bias = o.bias == nullptr ? 0.0F : to_float(o.bias[column]);
            store_with_skip(sum + bias, o.skip, row * to_channels + column, o.to);
        }
    });
}

// The sums of the gradient by w over a slice of the pixels.
template <class T>
__global__ void __launch_bounds__(threads) weight_kernel(Operands<T> o) {
    PIPETWIN_SHARED(tiles, Tiles);
    const Window& w = o.window;
    const WindowAxis rows = rows_of(w);
    const WindowAxis columns = columns_of(w);
    const int depth = rows.kernel * columns.kernel * w.channels;
    const std::int64_t pixels = static_cast<std::int64_t>(w.samples) * rows.out * columns.out;
    const int first_row = static_cast<int>(blockIdx.x) * tile;
    const int first_column = static_cast<int>(blockIdx.y) * tile;
    const std::int64_t first = static_cast<std::int64_t>(blockIdx.z) * o.slice_rows;
    const std::int64_t end = first + o.slice_rows < pixels ? first + o.slice_rows : pixels;
    const int in_tile = static_cast<int>(threadIdx.x) % tile;
    const bool has_row = first_row + in_tile < depth;
    const bool has_column = first_column + in_tile < w.outputs;
    const DepthPlace place = place_of(first_row + in_tile, w.channels, columns.kernel);
    Sums sums{};
    for (std::int64_t begin = first; begin < end; begin += tile_depth) {
        PIPETWIN_UNROLL
        for (int i = 0; i < loads; ++i) {
            const int k = static_cast<int>(threadIdx.x) / tile + i * (threads / tile);
            const std::int64_t pixel = begin + k;
            float a = 0;
            float b = 0;
            if (pixel < end) {
                const PixelPlace at = pixel_of(pixel, rows.out, columns.out);
                const int y = rows.input_of(at.y, place.ky);
                const int x = columns.input_of(at.x, place.kx);
                if (has_row && y >= 0 && x >= 0) {
                    const std::int64_t from = (at.sample * rows.size + y) * columns.size + x;
                    a = to_float(o.x[from * w.channels + place.channel]);
                }
                if (has_column) {
                    b = to_float(o.dy[pixel * w.outputs + first_column + in_tile]);
                }
            }
            tiles.a[k][in_tile] = a;
            tiles.b[k][in_tile] = b;
        }
        __syncthreads();
        multiply_tiles(tiles, sums);
        __syncthreads();
    }
    float* const slice = o.sums + static_cast<std::int64_t>(blockIdx.z) * depth * w.outputs;
    for_sums(sums, [&](int i, int j, float sum) {
        if (first_row + i < depth && first_column + j < w.outputs) {
            slice[static_cast<std::int64_t>(first_row + i) * w.outputs + first_column + j] = sum;
        }
    });
}

// One number of y or dx for each thread, of a convolution in groups.
template <class T, bool forward>
__global__ void __launch_bounds__(threads) grouped_image_kernel(Operands<T> o) {
    const Window& w = o.window;
    const WindowAxis rows = rows_of(w);
    const WindowAxis columns = columns_of(w);
    const int channels = w.channels / w.groups;
    const int outputs = w.outputs / w.groups;
    const int to_height = forward ? rows.out : rows.size;
    const int to_width = forward ? columns.out : columns.size;
    const int to_channels = forward ? w.outputs : w.channels;
    const int sources = forward ? channels : outputs;
    const std::int64_t size =
        static_cast<std::int64_t>(w.samples) * to_height * to_width * to_channels;
    for (std::int64_t i = thread_of_grid(); i < size; i += threads_of_grid()) {
        const PixelPlace at = pixel_of(i / to_channels, to_height, to_width);
        const int to = static_cast<int>(i % to_channels);
        const int group = to / (forward ? outputs : channels);
        float sum = forward && o.bias != nullptr ? to_float(o.bias[to]) : 0.0F;
        for (int place = 0; place < rows.kernel * columns.kernel; ++place) {
            const int ky = place / columns.kernel;
            const int kx = place % columns.kernel;
            const int y = forward ? rows.input_of(at.y, ky) : rows.output_of(at.y, ky);
            const int x = forward ? columns.input_of(at.x, kx) : columns.output_of(at.x, kx);
            if (y < 0 || x < 0) {
                continue;
            }
            const int height = forward ? rows.size : rows.out;
            const int width = forward ? columns.size : columns.out;
            const std::int64_t pixel = (at.sample * height + y) * width + x;
            const T* const from = forward ? o.x + pixel * w.channels + group * channels
                                          : o.dy + pixel * w.outputs + group * outputs;
            for (int c = 0; c < sources; ++c) {
                const std::int64_t weight_row =
                    static_cast<std::int64_t>(place) * channels + (forward ? c : to % channels);
                const int output = forward ? to : group * outputs + c;
                sum += to_float(from[c]) * to_float(o.w[weight_row * w.outputs + output]);
            }
        }
        store_with_skip(sum, o.skip, i, o.to);
    }
}

// One number of dw for each thread and slice of the pixels, of a convolution in groups.
template <class T>
__global__ void __launch_bounds__(threads) grouped_weight_kernel(Operands<T> o) {
    const Window& w = o.window;
    const WindowAxis rows = rows_of(w);
    const WindowAxis columns = columns_of(w);
    const int channels = w.channels / w.groups;
    const int outputs = w.outputs / w.groups;
    const std::int64_t size =
        static_cast<std::int64_t>(rows.kernel) * columns.kernel * channels * w.outputs;
    const std::int64_t pixels = static_cast<std::int64_t>(w.samples) * rows.out * columns.out;
    const std::int64_t first = static_cast<std::int64_t>(blockIdx.y) * o.slice_rows;
    const std::int64_t end = first + o.slice_rows < pixels ? first + o.slice_rows : pixels;
    for (std::int64_t i = thread_of_grid(); i < size; i += threads_of_grid()) {
        const int output = static_cast<int>(i % w.outputs);
        const DepthPlace place =
            place_of(static_cast<int>(i / w.outputs), channels, columns.kernel);
        const int channel = output / outputs * channels + place.channel;
        float sum = 0;
        for (std::int64_t pixel = first; pixel < end; ++pixel) {
            const PixelPlace at = pixel_of(pixel, rows.out, columns.out);
            const int y = rows.input_of(at.y, place.ky);
            const int x = columns.input_of(at.x, place.kx);
            if (y >= 0 && x >= 0) {
                const std::int64_t from = (at.sample * rows.size + y) * columns.size + x;
                sum += to_float(o.x[from * w.channels + channel]) *
                       to_float(o.dy[pixel * w.outputs + output]);
            }
        }
        o.sums[static_cast<std::int64_t>(blockIdx.y) * size + i] = sum;
    }
}

// dw += the sums of all slices, in their order.
__global__ void __launch_bounds__(threads)
    totals_kernel(std::int64_t size, std::int64_t slices, const float* sums, float* dw) {
    for (std::int64_t i = thread_of_grid(); i < size; i += threads_of_grid()) {
        float sum = 0;
        for (std::int64_t slice = 0; slice < slices; ++slice) {
            sum += sums[slice * size + i];
        }
        dw[i] += sum;
    }
}

std::int64_t weights_of(const Window& w) {
    return static_cast<std::int64_t>(w.kernel_height) * w.kernel_width * (w.channels / w.groups) *
           w.outputs;
}

/// Enough slices for a thousand blocks, but of 256 pixels or more, and of 16 M numbers in all.
std::int64_t slice_count(const Window& w) {
    const std::int64_t size = weights_of(w);
    const std::int64_t depth = size / w.outputs;
    const std::int64_t blocks =
        w.groups == 1 ? ceil_div(depth, tile) * ceil_div(w.outputs, tile) : ceil_div(size, threads);
    const std::int64_t wanted = ceil_div(1024, blocks);
    const std::int64_t by_rows = ceil_div(out_rows(w), 256);
    const std::int64_t by_room = (std::int64_t{1} << 24U) / size;
    const std::int64_t fewest = wanted < by_rows ? wanted : by_rows;
    const std::int64_t slices = fewest < by_room ? fewest : by_room;
    return slices < 1 ? 1 : slices;
}

template <class T, bool forward>
cudaError_t make_image(const Operands<T>& o, cudaStream_t stream) {
    const Window& w = o.window;
    const std::int64_t rows = forward ? out_rows(w) : in_rows(w);
    const std::int64_t columns = forward ? w.outputs : w.channels;
    if (rows <= 0 || columns <= 0) {
        return cudaSuccess;
    }
    if (w.groups > 1) {
        return launch<grouped_image_kernel<T, forward>>(
            grid_for(rows * columns, threads), threads, 0, stream, o);
    }
    const dim3 grid(static_cast<unsigned>(ceil_div(rows, tile)),
                    static_cast<unsigned>(ceil_div(columns, tile)));
    return launch<image_kernel<T, forward>>(grid, threads, 0, stream, o);
}

}  // namespace

cudaError_t convolution_forward(Real real,
                                const Window& window,
                                const Convolution& operands,
                                cudaStream_t stream) {
    return with_real(real, [=](auto zero) {
        using T = decltype(zero);
        const Operands<T> o{window,
                            static_cast<const T*>(operands.x),
                            static_cast<const T*>(operands.w),
                            nullptr,
                            static_cast<const T*>(operands.bias),
                            static_cast<const T*>(operands.skip),
                            static_cast<T*>(operands.y),
                            nullptr,
                            0};
        return make_image<T, true>(o, stream);
    });
}

cudaError_t convolution_backward_input(Real real,
                                       const Window& window,
                                       const ConvolutionInput& operands,
                                       cudaStream_t stream) {
    return with_real(real, [=](auto zero) {
        using T = decltype(zero);
        const Operands<T> o{window,
                            nullptr,
                            static_cast<const T*>(operands.w),
                            static_cast<const T*>(operands.dy),
                            nullptr,
                            static_cast<const T*>(operands.skip),
                            static_cast<T*>(operands.dx),
                            nullptr,
                            0};
        return make_image<T, false>(o, stream);
    });
}

std::int64_t convolution_scratch(const Window& window) {
    return slice_count(window) * weights_of(window);
}

cudaError_t convolution_backward_weight(Real real,
                                        const Window& window,
                                        const void* x,
                                        const void* dy,
                                        float* dw,
                                        float* scratch,
                                        cudaStream_t stream) {
    const std::int64_t size = weights_of(window);
    const std::int64_t slices = slice_count(window);
    if (size <= 0 || window.samples <= 0) {
        return cudaSuccess;
    }
    const cudaError_t error = with_real(real, [=](auto zero) {
        using T = decltype(zero);
        const Operands<T> o{window,
                            static_cast<const T*>(x),
                            nullptr,
                            static_cast<const T*>(dy),
                            nullptr,
                            nullptr,
                            nullptr,
                            scratch,
                            ceil_div(out_rows(window), slices)};
        if (window.groups > 1) {
            return launch<grouped_weight_kernel<T>>(
                dim3(grid_for(size, threads), static_cast<unsigned>(slices)),
                threads,
                0,
                stream,
                o);
        }
        const dim3 grid(static_cast<unsigned>(ceil_div(size / window.outputs, tile)),
                        static_cast<unsigned>(ceil_div(window.outputs, tile)),
                        static_cast<unsigned>(slices));
        return launch<weight_kernel<T>>(grid, threads, 0, stream, o);
    });
    if (error != cudaSuccess) {
        return error;
    }
    return launch<totals_kernel>(grid_for(size, threads),
                                 threads,
                                 0,
                                 stream,
                                 size,
                                 slices,
                                 static_cast<const float*>(scratch),
                                 dw);
}

}  // namespace pipetwin::cuda
