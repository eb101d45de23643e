// SPDX-License-Identifier: Apache-2.0
#include "exec/cuda/kernels/cuda_kernels.h"
#include "exec/cuda/kernels/dispatch.h"

// Layer norm, and RMS norm behind it. Bound by memory: forward reads and writes a row once,
// backward reads two or three and writes one. A row is read again for every sum, from the first
// cache: that is faster than to hold it in registers of a number which must be known when this is
// compiled.
namespace pipetwin::cuda {
namespace {

constexpr float epsilon = 1e-5F;

template <class T>
struct Forward {
    std::int64_t rows;
    std::int64_t width;
    const T* x;
    const T* gain;
    const T* bias;
    T* y;
    float* statistics;
};

// Two passes for the statistics: the variance of large means would drown in one.
template <class T, int pack, int threads>
__global__ void __launch_bounds__(row_block) forward_kernel(Forward<T> o) {
    const std::int64_t row = row_of_thread<threads>();
    if (row >= o.rows) {  // whole warps: where a block has one row, no thread leaves
        return;
    }
    const std::int64_t begin = static_cast<std::int64_t>(threadIdx.x % threads) * pack;
    constexpr std::int64_t stride = threads * pack;
    const T* const x = o.x + row * o.width;
    const float count = static_cast<float>(o.width);
    float sum = 0;
    PIPETWIN_UNROLL_4
    for (std::int64_t j = begin; j < o.width; j += stride) {
        const Pack<T, pack> values = load_pack<T, pack>(x + j);
        PIPETWIN_UNROLL
        for (int k = 0; k < pack; ++k) {
            sum += to_float(values.at[k]);
        }
    }
    const float mean = group_sum<threads>(sum) / count;
    float squares = 0;
    PIPETWIN_UNROLL_4
    for (std::int64_t j = begin; j < o.width; j += stride) {
        const Pack<T, pack> values = load_pack<T, pack>(x + j);
        PIPETWIN_UNROLL
        for (int k = 0; k < pack; ++k) {
            const float off = to_float(values.at[k]) - mean;
            squares += off * off;
        }
    }
    const float s = 1.0F / sqrtf(group_sum<threads>(squares) / count + epsilon);
    T* const y = o.y + row * o.width;
    for (std::int64_t j = begin; j < o.width; j += stride) {
        const Pack<T, pack> values = load_pack<T, pack>(x + j);
        const Pack<T, pack> gain = load_pack<T, pack>(o.gain + j);
        const Pack<T, pack> bias = load_pack<T, pack>(o.bias + j);
        Pack<T, pack> result;
        PIPETWIN_UNROLL
        for (int k = 0; k < pack; ++k) {
            const float z = (to_float(values.at[k]) - mean) * s;
            result.at[k] = from_float<T>(to_float(gain.at[k]) * z + to_float(bias.at[k]));
        }
        store_pack<T, pack>(y + j, result);
    }
    if (threadIdx.x % threads == 0) {
        o.statistics[2 * row] = mean;
        o.statistics[2 * row + 1] = s;
    }
}

template <class T>
struct BackwardInput {
    std::int64_t rows;
    std::int64_t width;
    const T* x;
    const T* gain;
    const float* statistics;
    const T* dy;
    const T* skip;  ///< or null
    T* dx;
};

// A number is read and written by one thread only, so dx may be x, dy or skip.
template <class T, int pack, int threads>
__global__ void __launch_bounds__(row_block) backward_input_kernel(BackwardInput<T> o) {
    const std::int64_t row = row_of_thread<threads>();
    if (row >= o.rows) {
        return;
    }
    const std::int64_t begin = static_cast<std::int64_t>(threadIdx.x % threads) * pack;
    constexpr std::int64_t stride = threads * pack;
    const T* const x = o.x + row * o.width;
    const T* const dy = o.dy + row * o.width;
    const float count = static_cast<float>(o.width);
    const float mean = o.statistics[2 * row];
    const float s = o.statistics[2 * row + 1];
    float sum_g = 0;
    float sum_gz = 0;
    PIPETWIN_UNROLL_4
    for (std::int64_t j = begin; j < o.width; j += stride) {
        const Pack<T, pack> of_x = load_pack<T, pack>(x + j);
        const Pack<T, pack> of_dy = load_pack<T, pack>(dy + j);
        const Pack<T, pack> gain = load_pack<T, pack>(o.gain + j);
        PIPETWIN_UNROLL
        for (int k = 0; k < pack; ++k) {
            const float g = to_float(gain.at[k]) * to_float(of_dy.at[k]);
            sum_g += g;
            sum_gz += g * ((to_float(of_x.at[k]) - mean) * s);
        }
    }
    const float mean_g = group_sum<threads>(sum_g) / count;
    const float mean_gz = group_sum<threads>(sum_gz) / count;
    const T* const skip = o.skip == nullptr ? nullptr : o.skip + row * o.width;
    T* const dx = o.dx + row * o.width;
    for (std::int64_t j = begin; j < o.width; j += stride) {
        const Pack<T, pack> of_x = load_pack<T, pack>(x + j);
        const Pack<T, pack> of_dy = load_pack<T, pack>(dy + j);
        const Pack<T, pack> gain = load_pack<T, pack>(o.gain + j);
        Pack<T, pack> of_skip{};
        if (skip != nullptr) {
            of_skip = load_pack<T, pack>(skip + j);
        }
        Pack<T, pack> result;
        PIPETWIN_UNROLL
        for (int k = 0; k < pack; ++k) {
            const float g = to_float(gain.at[k]) * to_float(of_dy.at[k]);
            const float z = (to_float(of_x.at[k]) - mean) * s;
            const float own = s * (g - mean_g - z * mean_gz);
            result.at[k] = from_float<T>(skip == nullptr ? own : to_float(of_skip.at[k]) + own);
        }
        store_pack<T, pack>(dx + j, result);
    }
}

template <class T>
struct RmsForward {
    std::int64_t rows;
    std::int64_t width;
    const T* x;
    const T* gain;
    T* y;
    float* roots;
    float epsilon;
};

template <class T, int pack, int threads>
__global__ void __launch_bounds__(row_block) rms_forward_kernel(RmsForward<T> o) {
    const std::int64_t row = row_of_thread<threads>();
    if (row >= o.rows) {
        return;
    }
    const std::int64_t begin = static_cast<std::int64_t>(threadIdx.x % threads) * pack;
    constexpr std::int64_t stride = threads * pack;
    const T* const x = o.x + row * o.width;
    float squares = 0;
    PIPETWIN_UNROLL_4
    for (std::int64_t j = begin; j < o.width; j += stride) {
        const Pack<T, pack> values = load_pack<T, pack>(x + j);
        PIPETWIN_UNROLL
        for (int k = 0; k < pack; ++k) {
            const float value = to_float(values.at[k]);
            squares += value * value;
        }
    }
    const float mean_square = group_sum<threads>(squares) / static_cast<float>(o.width);
    const float s = 1.0F / sqrtf(mean_square + o.epsilon);
    T* const y = o.y + row * o.width;
    for (std::int64_t j = begin; j < o.width; j += stride) {
        const Pack<T, pack> values = load_pack<T, pack>(x + j);
        const Pack<T, pack> gain = load_pack<T, pack>(o.gain + j);
        Pack<T, pack> result;
        PIPETWIN_UNROLL
        for (int k = 0; k < pack; ++k) {
            result.at[k] = from_float<T>(to_float(gain.at[k]) * (to_float(values.at[k]) * s));
        }
        store_pack<T, pack>(y + j, result);
    }
    if (threadIdx.x % threads == 0) {
        o.roots[row] = s;
    }
}

template <class T>
struct RmsBackwardInput {
    std::int64_t rows;
    std::int64_t width;
    const T* x;
    const T* gain;
    const float* roots;
    const T* dy;
    const T* skip;  ///< or null
    T* dx;
};

// A number is read and written by one thread only, so dx may be x, dy or skip.
template <class T, int pack, int threads>
__global__ void __launch_bounds__(row_block) rms_backward_input_kernel(RmsBackwardInput<T> o) {
    const std::int64_t row = row_of_thread<threads>();
    if (row >= o.rows) {
        return;
    }
    const std::int64_t begin = static_cast<std::int64_t>(threadIdx.x % threads) * pack;
    constexpr std::int64_t stride = threads * pack;
    const T* const x = o.x + row * o.width;
    const T* const dy = o.dy + row * o.width;
    const float s = o.roots[row];
    float sum_gz = 0;
    PIPETWIN_UNROLL_4
    for (std::int64_t j = begin; j < o.width; j += stride) {
        const Pack<T, pack> of_x = load_pack<T, pack>(x + j);
        const Pack<T, pack> of_dy = load_pack<T, pack>(dy + j);
        const Pack<T, pack> gain = load_pack<T, pack>(o.gain + j);
        PIPETWIN_UNROLL
        for (int k = 0; k < pack; ++k) {
            sum_gz += to_float(gain.at[k]) * to_float(of_dy.at[k]) * (to_float(of_x.at[k]) * s);
        }
    }
    const float mean_gz = group_sum<threads>(sum_gz) / static_cast<float>(o.width);
    const T* const skip = o.skip == nullptr ? nullptr : o.skip + row * o.width;
    T* const dx = o.dx + row * o.width;
    for (std::int64_t j = begin; j < o.width; j += stride) {
        const Pack<T, pack> of_x = load_pack<T, pack>(x + j);
        const Pack<T, pack> of_dy = load_pack<T, pack>(dy + j);
        const Pack<T, pack> gain = load_pack<T, pack>(o.gain + j);
        Pack<T, pack> of_skip{};
        if (skip != nullptr) {
            of_skip = load_pack<T, pack>(skip + j);
        }
        Pack<T, pack> result;
        PIPETWIN_UNROLL
        for (int k = 0; k < pack; ++k) {
            const float g = to_float(gain.at[k]) * to_float(of_dy.at[k]);
            const float own = s * (g - to_float(of_x.at[k]) * s * mean_gz);
            result.at[k] = from_float<T>(skip == nullptr ? own : to_float(of_skip.at[k]) + own);
        }
        store_pack<T, pack>(dx + j, result);
    }
}

}  // namespace

cudaError_t layer_norm_forward(Real real,
                               const LayerNorm& norm,
                               const void* bias,
                               void* y,
                               float* statistics,
                               cudaStream_t stream) {
    if (norm.rows <= 0 || norm.width <= 0) {
        return cudaSuccess;
    }
    const bool in_packs = are_aligned({norm.x, norm.gain, bias, y});
    return with_rows(real, norm.width, [=](auto zero, auto count) {
        using T = decltype(zero);
        constexpr int threads = decltype(count)::value;
        constexpr int pack = pack_size<T>;
        const Forward<T> o{norm.rows,
                           norm.width,
                           static_cast<const T*>(norm.x),
                           static_cast<const T*>(norm.gain),
                           static_cast<const T*>(bias),
                           static_cast<T*>(y),
                           statistics};
        return in_packs && norm.width % pack == 0
                   ? launch_rows<forward_kernel<T, pack, threads>, threads>(o, stream)
                   : launch_rows<forward_kernel<T, 1, threads>, threads>(o, stream);
    });
}

cudaError_t layer_norm_backward_input(Real real,
                                      const LayerNorm& norm,
                                      const float* statistics,
                                      const void* dy,
                                      const void* skip,
                                      void* dx,
                                      cudaStream_t stream) {
    if (norm.rows <= 0 || norm.width <= 0) {
        return cudaSuccess;
    }
    const bool in_packs = are_aligned({norm.x, norm.gain, dy, skip, dx});
    return with_rows(real, norm.width, [=](auto zero, auto count) {
        using T = decltype(zero);
        constexpr int threads = decltype(count)::value;
        constexpr int pack = pack_size<T>;
        const BackwardInput<T> o{norm.rows,
                                 norm.width,
                                 static_cast<const T*>(norm.x),
                                 static_cast<const T*>(norm.gain),
                                 statistics,
                                 static_cast<const T*>(dy),
                                 static_cast<const T*>(skip),
                                 static_cast<T*>(dx)};
        return in_packs && norm.width % pack == 0
                   ? launch_rows<backward_input_kernel<T, pack, threads>, threads>(o, stream)
                   : launch_rows<backward_input_kernel<T, 1, threads>, threads>(o, stream);
    });
}

cudaError_t rms_norm_forward(
    Real real, const RmsNorm& norm, float epsilon, void* y, float* roots, cudaStream_t stream) {
    if (norm.rows <= 0 || norm.width <= 0) {
        return cudaSuccess;
    }
    const bool in_packs = are_aligned({norm.x, norm.gain, y});
    return with_rows(real, norm.width, [=](auto zero, auto count) {
        using T = decltype(zero);
        constexpr int threads = decltype(count)::value;
        constexpr int pack = pack_size<T>;
        const RmsForward<T> o{norm.rows,
                              norm.width,
                              static_cast<const T*>(norm.x),
                              static_cast<const T*>(norm.gain),
                              static_cast<T*>(y),
                              roots,
                              epsilon};
        return in_packs && norm.width % pack == 0
                   ? launch_rows<rms_forward_kernel<T, pack, threads>, threads>(o, stream)
                   : launch_rows<rms_forward_kernel<T, 1, threads>, threads>(o, stream);
    });
}

cudaError_t rms_norm_backward_input(Real real,
                                    const RmsNorm& norm,
                                    const float* roots,
                                    const void* dy,
                                    const void* skip,
                                    void* dx,
                                    cudaStream_t stream) {
    if (norm.rows <= 0 || norm.width <= 0) {
        return cudaSuccess;
    }
    const bool in_packs = are_aligned({norm.x, norm.gain, dy, skip, dx});
    return with_rows(real, norm.width, [=](auto zero, auto count) {
        using T = decltype(zero);
        constexpr int threads = decltype(count)::value;
        constexpr int pack = pack_size<T>;
        const RmsBackwardInput<T> o{norm.rows,
                                    norm.width,
                                    static_cast<const T*>(norm.x),
                                    static_cast<const T*>(norm.gain),
                                    roots,
                                    static_cast<const T*>(dy),
                                    static_cast<const T*>(skip),
                                    static_cast<T*>(dx)};
        return in_packs && norm.width % pack == 0
                   ? launch_rows<rms_backward_input_kernel<T, pack, threads>, threads>(o, stream)
                   : launch_rows<rms_backward_input_kernel<T, 1, threads>, threads>(o, stream);
    });
}

namespace {

LayerNorm norm_of(exec::ConstView x, exec::ConstView gain) {
    return {.rows = x.rows, .width = x.columns, .x = x.data, .gain = gain.data};
}

/// Where the gradients of gain and bias go.
ColumnTotals norm_totals(const exec::GradientSum& dgain, const exec::GradientSum& dbias) {
    PIPETWIN_EXPECT(dgain.adds == dbias.adds, "both gradients of a norm have as many terms");
    exec::View gain_sums = dgain.view;
    exec::View bias_sums = dbias.view;
    return {.first = gain_sums.as<float>(),
            .second = bias_sums.as<float>(),
            .adds = dgain.adds ? 1 : 0};
}

RmsNorm rms_norm_of(exec::ConstView x, exec::ConstView gain) {
    return {.rows = x.rows, .width = x.columns, .x = x.data, .gain = gain.data};
}

}  // namespace

void CudaKernels::layer_norm_forward(exec::ConstView x,
                                     exec::ConstView gain,
                                     exec::ConstView bias,
                                     exec::View y,
                                     exec::View statistics) const {
    call("layer_norm_forward",
         cuda::layer_norm_forward,
         real_of(x.dtype),
         norm_of(x, gain),
         bias.data,
         y.data,
         statistics.as<float>());
}

void CudaKernels::layer_norm_backward_input(exec::ConstView x,
                                            exec::ConstView gain,
                                            exec::ConstView statistics,
                                            exec::ConstView dy,
                                            exec::ConstView skip,
                                            exec::View dx) const {
    call("layer_norm_backward_input",
         cuda::layer_norm_backward_input,
         real_of(x.dtype),
         norm_of(x, gain),
         statistics.as<float>(),
         dy.data,
         skip.data,
         dx.data);
}

void CudaKernels::layer_norm_backward_weight(exec::ConstView x,
                                             exec::ConstView statistics,
                                             exec::ConstView dy,
                                             const exec::GradientSum& dgain,
                                             const exec::GradientSum& dbias) const {
    call("layer_norm_backward_weight",
         cuda::layer_norm_backward_weight,
         real_of(x.dtype),
         norm_of(x, {}),
         statistics.as<float>(),
         dy.data,
         norm_totals(dgain, dbias),
         calls_.scratch_of<float>(layer_norm_scratch(x.rows, x.columns)));
}

void CudaKernels::layer_norm_backward(exec::ConstView x,
                                      exec::ConstView gain,
                                      exec::ConstView statistics,
                                      exec::ConstView dy,
                                      exec::ConstView skip,
                                      exec::View dx,
                                      const exec::GradientSum& dgain,
                                      const exec::GradientSum& dbias) const {
    call("layer_norm_backward",
         cuda::layer_norm_backward,
         real_of(x.dtype),
         norm_of(x, gain),
         statistics.as<float>(),
         dy.data,
         skip.data,
         dx.data,
         norm_totals(dgain, dbias),
         calls_.scratch_of<float>(norm_backward_scratch(x.rows, x.columns, 2)));
}

void CudaKernels::rms_norm_forward(
    exec::ConstView x, exec::ConstView gain, double epsilon, exec::View y, exec::View roots) const {
    call("rms_norm_forward",
         cuda::rms_norm_forward,
         real_of(x.dtype),
         rms_norm_of(x, gain),
         static_cast<float>(epsilon),
         y.data,
         roots.as<float>());
}

void CudaKernels::rms_norm_backward_input(exec::ConstView x,
                                          exec::ConstView gain,
                                          exec::ConstView roots,
                                          exec::ConstView dy,
                                          exec::ConstView skip,
                                          exec::View dx) const {
    call("rms_norm_backward_input",
         cuda::rms_norm_backward_input,
         real_of(x.dtype),
         rms_norm_of(x, gain),
         roots.as<float>(),
         dy.data,
         skip.data,
         dx.data);
}

void CudaKernels::rms_norm_backward_weight(exec::ConstView x,
                                           exec::ConstView roots,
                                           exec::ConstView dy,
                                           const exec::GradientSum& dgain) const {
    exec::View sums = dgain.view;
    call("rms_norm_backward_weight",
         cuda::rms_norm_backward_weight,
         real_of(x.dtype),
         rms_norm_of(x, {}),
         roots.as<float>(),
         dy.data,
         ColumnTotals{.first = sums.as<float>(), .adds = dgain.adds ? 1 : 0},
         calls_.scratch_of<float>(column_sums_scratch(x.rows, x.columns)));
}

void CudaKernels::rms_norm_backward(exec::ConstView x,
                                    exec::ConstView gain,
                                    exec::ConstView roots,
                                    exec::ConstView dy,
                                    exec::ConstView skip,
                                    exec::View dx,
                                    const exec::GradientSum& dgain) const {
    exec::View sums = dgain.view;
    call("rms_norm_backward",
         cuda::rms_norm_backward,
         real_of(x.dtype),
         rms_norm_of(x, gain),
         roots.as<float>(),
         dy.data,
         skip.data,
         dx.data,
         ColumnTotals{.first = sums.as<float>(), .adds = dgain.adds ? 1 : 0},
         calls_.scratch_of<float>(norm_backward_scratch(x.rows, x.columns, 1)));
}

}  // namespace pipetwin::cuda
