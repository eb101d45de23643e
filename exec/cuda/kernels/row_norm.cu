// SPDX-License-Identifier: Apache-2.0
#include "exec/cuda/kernels/cuda_kernels.h"
#include "exec/cuda/kernels/dispatch.h"

// Layer norm, and RMS norm, which is not centred. Bound by memory: forward reads and writes a row
// once, backward reads two or three and writes one. A row is read again for every sum, from the
// first cache: that is faster than to hold it in registers of a number which must be known when
// this is compiled.
namespace pipetwin::cuda {
namespace {

template <class T>
struct Forward {
    std::int64_t rows;
    std::int64_t width;
    const T* x;
    const T* gain;
    const T* bias;
    T* y;
    float* statistics;
    float epsilon;
};

// Two passes for the statistics: the variance of large means would drown in one.
template <class T, bool centred, int pack, int threads>
__global__ void __launch_bounds__(row_block) forward_kernel(Forward<T> o) {
    const std::int64_t row = row_of_thread<threads>();
    if (row >= o.rows) {  // whole warps: where a block has one row, no thread leaves
        return;
    }
    const std::int64_t begin = static_cast<std::int64_t>(threadIdx.x % threads) * pack;
    constexpr std::int64_t stride = threads * pack;
    const T* const x = o.x + row * o.width;
    const float count = static_cast<float>(o.width);
    float mean = 0;
    if constexpr (centred) {
        float sum = 0;
        PIPETWIN_UNROLL_4
        for (std::int64_t j = begin; j < o.width; j += stride) {
            const Pack<T, pack> values = load_pack<T, pack>(x + j);
            PIPETWIN_UNROLL
            for (int k = 0; k < pack; ++k) {
                sum += to_float(values.at[k]);
            }
        }
        mean = group_sum<threads>(sum) / count;
    }
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
    const float s = 1.0F / sqrtf(group_sum<threads>(squares) / count + o.epsilon);
    T* const y = o.y + row * o.width;
    for (std::int64_t j = begin; j < o.width; j += stride) {
        const Pack<T, pack> values = load_pack<T, pack>(x + j);
        const Pack<T, pack> gain = load_pack<T, pack>(o.gain + j);
        Pack<T, pack> bias{};
        if constexpr (centred) {
            bias = load_pack<T, pack>(o.bias + j);
        }
        Pack<T, pack> result;
        PIPETWIN_UNROLL
        for (int k = 0; k < pack; ++k) {
            const float z = (to_float(values.at[k]) - mean) * s;
            if constexpr (centred) {
                result.at[k] = from_float<T>(to_float(gain.at[k]) * z + to_float(bias.at[k]));
            } else {
                result.at[k] = from_float<T>(to_float(gain.at[k]) * z);
            }
        }
        store_pack<T, pack>(y + j, result);
    }
    if (threadIdx.x % threads == 0) {
        if constexpr (centred) {
            o.statistics[2 * row] = mean;
            o.statistics[2 * row + 1] = s;
        } else {
            o.statistics[row] = s;
        }
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
template <class T, bool centred, int pack, int threads>
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
    const float mean = centred ? o.statistics[2 * row] : 0.0F;
    const float s = centred ? o.statistics[2 * row + 1] : o.statistics[row];
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
    const float mean_g = centred ? group_sum<threads>(sum_g) / count : 0.0F;
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

/// f(T{}, threads, pack, centred), all but the first std::integral_constants.
template <class F>
cudaError_t with_norm(Real real, const RowNorm& norm, bool in_packs, const F& f) {
    if (norm.rows <= 0 || norm.width <= 0) {
        return cudaSuccess;
    }
    return with_rows(real, norm.width, [&](auto zero, auto threads) {
        const auto with_pack = [&](auto pack) {
            return norm.centred != 0 ? f(zero, threads, pack, std::true_type{})
                                     : f(zero, threads, pack, std::false_type{});
        };
        constexpr int pack = pack_size<decltype(zero)>;
        return in_packs && norm.width % pack == 0 ? with_pack(std::integral_constant<int, pack>{})
                                                  : with_pack(std::integral_constant<int, 1>{});
    });
}

}  // namespace

cudaError_t row_norm_forward(Real real,
                             const RowNorm& norm,
                             const void* bias,
                             void* y,
                             float* statistics,
                             cudaStream_t stream) {
    const bool in_packs = are_aligned({norm.x, norm.gain, bias, y});
    return with_norm(real, norm, in_packs, [&](auto zero, auto count, auto size, auto centred) {
        using T = decltype(zero);
        constexpr int threads = decltype(count)::value;
        const Forward<T> o{norm.rows,
                           norm.width,
                           static_cast<const T*>(norm.x),
                           static_cast<const T*>(norm.gain),
                           static_cast<const T*>(bias),
                           static_cast<T*>(y),
                           statistics,
                           static_cast<float>(norm.epsilon)};
        return launch_rows<
            forward_kernel<T, decltype(centred)::value, decltype(size)::value, threads>,
            threads>(o, stream);
    });
}

cudaError_t row_norm_backward_input(Real real,
                                    const RowNorm& norm,
                                    const float* statistics,
                                    const void* dy,
                                    const void* skip,
                                    void* dx,
                                    cudaStream_t stream) {
    const bool in_packs = are_aligned({norm.x, norm.gain, dy, skip, dx});
    return with_norm(real, norm, in_packs, [&](auto zero, auto count, auto size, auto centred) {
        using T = decltype(zero);
        constexpr int threads = decltype(count)::value;
        const BackwardInput<T> o{norm.rows,
                                 norm.width,
                                 static_cast<const T*>(norm.x),
                                 static_cast<const T*>(norm.gain),
                                 statistics,
                                 static_cast<const T*>(dy),
                                 static_cast<const T*>(skip),
                                 static_cast<T*>(dx)};
        return launch_rows<
            backward_input_kernel<T, decltype(centred)::value, decltype(size)::value, threads>,
            threads>(o, stream);
    });
}

namespace {

RowNorm norm_of(const exec::RowNormRule& rule, exec::ConstView x, exec::ConstView gain) {
    return {.rows = x.rows,
            .width = x.columns,
            .x = x.data,
            .gain = gain.data,
            .centred = rule.centred ? 1 : 0,
            .epsilon = rule.epsilon};
}

/// Where the gradients of gain and bias go.
ColumnTotals norm_totals(const exec::GradientSum& dgain, const exec::GradientSum& dbias) {
    PIPETWIN_EXPECT(dbias.empty() || dgain.adds == dbias.adds,
                    "both gradients of a norm have as many terms");
    exec::View gain_sums = dgain.view;
    exec::View bias_sums = dbias.view;
    return {.first = gain_sums.as<float>(),
            .second = bias_sums.as<float>(),
            .adds = dgain.adds ? 1 : 0};
}

/// Sums per column of a backward.
int sums_of(const exec::RowNormRule& rule) {
    return rule.centred ? 2 : 1;
}

}  // namespace

void CudaKernels::row_norm_forward(const exec::RowNormRule& rule,
                                   exec::ConstView x,
                                   exec::ConstView gain,
                                   exec::ConstView bias,
                                   exec::View y,
                                   exec::View statistics) const {
    call("row_norm_forward",
         cuda::row_norm_forward,
         real_of(x.dtype),
         norm_of(rule, x, gain),
         bias.data,
         y.data,
         statistics.as<float>());
}

void CudaKernels::row_norm_backward_input(const exec::RowNormRule& rule,
                                          exec::ConstView x,
                                          exec::ConstView gain,
                                          exec::ConstView statistics,
                                          exec::ConstView dy,
                                          exec::ConstView skip,
                                          exec::View dx) const {
    call("row_norm_backward_input",
         cuda::row_norm_backward_input,
         real_of(x.dtype),
         norm_of(rule, x, gain),
         statistics.as<float>(),
         dy.data,
         skip.data,
         dx.data);
}

void CudaKernels::row_norm_backward_weight(const exec::RowNormRule& rule,
                                           exec::ConstView x,
                                           exec::ConstView statistics,
                                           exec::ConstView dy,
                                           const exec::GradientSum& dgain,
                                           const exec::GradientSum& dbias) const {
    call("row_norm_backward_weight",
         cuda::row_norm_backward_weight,
         real_of(x.dtype),
         norm_of(rule, x, {}),
         statistics.as<float>(),
         dy.data,
         norm_totals(dgain, dbias),
         calls_.scratch_of<float>(sums_of(rule) * column_sums_scratch(x.rows, x.columns)));
}

void CudaKernels::row_norm_backward(const exec::RowNormRule& rule,
                                    exec::ConstView x,
                                    exec::ConstView gain,
                                    exec::ConstView statistics,
                                    exec::ConstView dy,
                                    exec::ConstView skip,
                                    exec::View dx,
                                    const exec::GradientSum& dgain,
                                    const exec::GradientSum& dbias) const {
    call("row_norm_backward",
         cuda::row_norm_backward,
         real_of(x.dtype),
         norm_of(rule, x, gain),
         statistics.as<float>(),
         dy.data,
         skip.data,
         dx.data,
         norm_totals(dgain, dbias),
         calls_.scratch_of<float>(norm_backward_scratch(x.rows, x.columns, sums_of(rule))));
}

}  // namespace pipetwin::cuda
