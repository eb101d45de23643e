// SPDX-License-Identifier: Apache-2.0
#include "exec/cuda/kernels/cuda_kernels.h"
#include "exec/cuda/kernels/dispatch.h"

// All bound by memory: add reads 2 and writes 1 number per element, the others read and write 1, of
// 4 or 2 bytes each; GELU's gradient reads 2. SwiGLU reads 2 and writes 1, its gradient reads 3 and
// writes 2.
namespace pipetwin::cuda {
namespace {

constexpr int block_size = 256;

struct Normal {
    float distribution;
    float density;
};

// Phi(x) and phi(x) by the formula of exec/cpu/vector_math.h: with t = |x| and u = 1 / (1 + t / 4)
// Phi(-t) = exp(-t^2 / 2) u q(u). erff and expf would take more time than the memory.
__device__ __forceinline__ Normal normal(float x) {
    const float t = fabsf(x);
    const float e = __expf(-0.5F * t * t);
    const float u = __fdividef(1.0F, 1.0F + 0.25F * t);
    float q = 0.0257233237991F;
    q = q * u - 0.152808587704F;
    q = q * u + 0.296120453687F;
    q = q * u - 0.20578185346F;
    q = q * u + 0.201757513961F;
    q = q * u + 0.0329281450566F;
    q = q * u + 0.10374664832F;
    q = q * u + 0.0985168466711F;
    q = q * u + 0.0997974812096F;
    const float tail = e * (q * u);
    return {x < 0.0F ? tail : 1.0F - tail, 0.398942280F * e};
}

/// F(x) and F(x) + x F'(x) of a GELU x F(x).
struct AtGelu {
    float distribution;
    float slope;
};

template <Gelu form>
__device__ __forceinline__ AtGelu at_gelu(float x) {
    if constexpr (form == Gelu::Exact) {
        const Normal at = normal(x);
        return {at.distribution, at.distribution + x * at.density};
    }
    // The formula of exec/cpu/vector_math.h: with t = |x| and z = 2 sqrt(2 / pi) (t + 0.044715 t^3)
    // the tail is exp(-z) / (1 + exp(-z)).
    const float size = fabsf(x);
    const float t = size > 10.0F ? 10.0F : size;
    const float e = __expf(-t * (1.59576912F + 0.0713548163F * (t * t)));
    const float share = __fdividef(1.0F, 1.0F + e);
    const float tail = e * share;
    const float rise = t * (1.59576912F + 0.214064449F * (t * t)) * (tail * share);
    return x < 0.0F ? AtGelu{tail, tail - rise} : AtGelu{share, share + rise};
}

struct Sum {
    static constexpr bool binary = true;
    __device__ float operator()(float a, float b) const { return a + b; }
};
template <Gelu form>
struct GeluForward {
    static constexpr bool binary = false;
    __device__ float operator()(float x, float) const { return x * at_gelu<form>(x).distribution; }
};
template <Gelu form>
struct GeluBackward {
    static constexpr bool binary = true;
    __device__ float operator()(float x, float dy) const { return dy * at_gelu<form>(x).slope; }
};

// y = f(a, b), element by element; y may be a or b. `pack` elements at once, and the few that are
// left over one by one.
template <class T, class Operation, int pack>
__global__ void __launch_bounds__(block_size)
    elementwise_kernel(std::int64_t size, const T* a, const T* b, T* y) {
    const Operation f{};
    const std::int64_t packs = size / pack;
    for (std::int64_t p = thread_of_grid(); p < packs; p += threads_of_grid()) {
        const Pack<T, pack> from_a = load_pack<T, pack>(a + p * pack);
        Pack<T, pack> from_b{};
        if constexpr (Operation::binary) {
            from_b = load_pack<T, pack>(b + p * pack);
        }
        Pack<T, pack> result;
        PIPETWIN_UNROLL
        for (int k = 0; k < pack; ++k) {
            result.at[k] = from_float<T>(f(to_float(from_a.at[k]), to_float(from_b.at[k])));
        }
        store_pack<T, pack>(y + p * pack, result);
    }
    const std::int64_t rest = packs * pack + thread_of_grid();
    if (rest < size) {
        const float of_b = Operation::binary ? to_float(b[rest]) : 0.0F;
        y[rest] = from_float<T>(f(to_float(a[rest]), of_b));
    }
}

template <class Operation>
cudaError_t elementwise(
    Real real, std::int64_t size, const void* a, const void* b, void* y, cudaStream_t stream) {
    if (size <= 0) {
        return cudaSuccess;
    }
    return with_real(real, [=](auto zero) {
        using T = decltype(zero);
        const auto* const from_a = static_cast<const T*>(a);
        const auto* const from_b = static_cast<const T*>(b);
        auto* const to = static_cast<T*>(y);
        constexpr int pack = pack_size<T>;
        if (are_aligned({a, b, y})) {
            return launch<elementwise_kernel<T, Operation, pack>>(
                grid_for(size, block_size * pack), block_size, 0, stream, size, from_a, from_b, to);
        }
        return launch<elementwise_kernel<T, Operation, 1>>(
            grid_for(size, block_size), block_size, 0, stream, size, from_a, from_b, to);
    });
}

// y = scale x
template <class From, class To, int pack>
__global__ void __launch_bounds__(block_size)
    convert_kernel(std::int64_t size, float scale, const From* x, To* y) {
    const std::int64_t packs = size / pack;
    for (std::int64_t p = thread_of_grid(); p < packs; p += threads_of_grid()) {
        const Pack<From, pack> from = load_pack<From, pack>(x + p * pack);
        Pack<To, pack> to;
        PIPETWIN_UNROLL
        for (int k = 0; k < pack; ++k) {
            to.at[k] = from_float<To>(scale * to_float(from.at[k]));
        }
        store_pack<To, pack>(y + p * pack, to);
    }
    const std::int64_t rest = packs * pack + thread_of_grid();
    if (rest < size) {
        y[rest] = from_float<To>(scale * to_float(x[rest]));
    }
}

template <class From, class To>
cudaError_t convert(std::int64_t size, float scale, const From* x, To* y, cudaStream_t stream) {
    if (size <= 0) {
        return cudaSuccess;
    }
    constexpr int pack = 4;  // 16 bytes of fp32, 8 of bf16
    if (are_aligned({x, y})) {
        return launch<convert_kernel<From, To, pack>>(
            grid_for(size, block_size * pack), block_size, 0, stream, size, scale, x, y);
    }
    return launch<convert_kernel<From, To, 1>>(
        grid_for(size, block_size), block_size, 0, stream, size, scale, x, y);
}

// 1 / (1 + exp(-x)); 0 where exp overflows.
__device__ __forceinline__ float logistic(float x) {
    return __fdividef(1.0F, 1.0F + __expf(-x));
}

// A thread of a kernel of rows keeps its columns.
constexpr int column_threads = 32;
constexpr int row_threads = 8;

/// Gates and values side by side, x (rows, 2 width); y or dy (rows, width).
template <class T>
struct Gated {
    std::int64_t rows;
    std::int64_t width;
    const T* x;
};

/// f(row, column) for the thread's `pack` columns of its rows.
template <int pack, class F>
__device__ __forceinline__ void for_own_packs(std::int64_t rows, std::int64_t width, const F& f) {
    const std::int64_t column =
        (static_cast<std::int64_t>(blockIdx.x) * column_threads + threadIdx.x) * pack;
    if (column >= width) {
        return;
    }
    const std::int64_t stride = static_cast<std::int64_t>(gridDim.y) * row_threads;
    std::int64_t row = static_cast<std::int64_t>(blockIdx.y) * row_threads + threadIdx.y;
    for (; row < rows; row += stride) {
        f(row, column);
    }
}

template <class T, int pack>
__global__ void __launch_bounds__(column_threads* row_threads)
    swiglu_forward_kernel(Gated<T> o, T* y) {
    for_own_packs<pack>(o.rows, o.width, [&](std::int64_t row, std::int64_t column) {
        const T* const x = o.x + 2 * row * o.width + column;
        const Pack<T, pack> gates = load_pack<T, pack>(x);
        const Pack<T, pack> values = load_pack<T, pack>(x + o.width);
        Pack<T, pack> result;
        PIPETWIN_UNROLL
        for (int k = 0; k < pack; ++k) {
            const float g = to_float(gates.at[k]);
            result.at[k] = from_float<T>(to_float(values.at[k]) * (g * logistic(g)));
        }
        store_pack<T, pack>(y + row * o.width + column, result);
    });
}

// A number of x and its gradient have one thread, which reads before it writes: dx may be x.
template <class T, int pack>
__global__ void __launch_bounds__(column_threads* row_threads)
    swiglu_backward_kernel(Gated<T> o, const T* dy, T* dx) {
    for_own_packs<pack>(o.rows, o.width, [&](std::int64_t row, std::int64_t column) {
        const std::int64_t at = 2 * row * o.width + column;
        const Pack<T, pack> gates = load_pack<T, pack>(o.x + at);
        const Pack<T, pack> values = load_pack<T, pack>(o.x + at + o.width);
        const Pack<T, pack> from = load_pack<T, pack>(dy + row * o.width + column);
        Pack<T, pack> dgates;
        Pack<T, pack> dvalues;
        PIPETWIN_UNROLL
        for (int k = 0; k < pack; ++k) {
            const float g = to_float(gates.at[k]);
            const float d = to_float(from.at[k]);
            const float s = logistic(g);
            dgates.at[k] =
                from_float<T>(d * to_float(values.at[k]) * (s * (1.0F + g * (1.0F - s))));
            dvalues.at[k] = from_float<T>(d * (g * s));
        }
        store_pack<T, pack>(dx + at, dgates);
        store_pack<T, pack>(dx + at + o.width, dvalues);
    });
}

/// f(std::integral_constant<int, pack>, grid) for a kernel of `for_own_packs`.
template <class T, class F>
cudaError_t with_packs(bool aligned, std::int64_t rows, std::int64_t width, const F& f) {
    const auto start = [&](auto size) {
        const std::int64_t across = ceil_div(width, column_threads * decltype(size)::value);
        return f(size, dim3(static_cast<unsigned>(across), grid_for(rows, row_threads)));
    };
    constexpr int pack = pack_size<T>;
    return aligned && width % pack == 0 ? start(std::integral_constant<int, pack>{})
                                        : start(std::integral_constant<int, 1>{});
}

template <class T>
__global__ void __launch_bounds__(block_size)
    copy_columns_kernel(ColumnCopy copy, const T* x, T* y) {
    const std::int64_t size = copy.rows * copy.columns;
    for (std::int64_t i = thread_of_grid(); i < size; i += threads_of_grid()) {
        const std::int64_t row = i / copy.columns;
        const std::int64_t column = i - row * copy.columns;
        const T from = x[row * copy.x_width + column];
        T& to = y[row * copy.y_width + column];
        to = copy.adds != 0 ? from_float<T>(to_float(to) + to_float(from)) : from;
    }
}

__global__ void __launch_bounds__(block_size) sum_members_kernel(MemberSum o) {
    for (std::int64_t i = thread_of_grid(); i < o.size; i += threads_of_grid()) {
        const float own = o.y[i];
        const float* other = o.x + i;
        float sum = 0.0F;
        for (int member = 0; member < o.members; ++member) {
            float next = own;
            if (member != o.own) {
                next = *other;
                other += o.stride;
            }
            sum = member == 0 ? next : sum + next;
        }
        o.y[i] = sum;
    }
}

template <class T>
__global__ void __launch_bounds__(block_size)
    add_up_kernel(std::int64_t size, Terms terms, const T* skip, T* y) {
    for (std::int64_t i = thread_of_grid(); i < size; i += threads_of_grid()) {
        float sum = to_float(static_cast<const T*>(terms.at[0])[i]);
        for (std::int64_t term = 1; term < terms.count; ++term) {
            sum = __fadd_rn(sum, to_float(static_cast<const T*>(terms.at[term])[i]));
        }
        y[i] = from_float<T>(skip == nullptr ? sum : __fadd_rn(sum, to_float(skip[i])));
    }
}

}  // namespace

cudaError_t add_up(Real real,
                   std::int64_t size,
                   const Terms& terms,
                   const void* skip,
                   void* y,
                   cudaStream_t stream) {
    if (size == 0) {
        return cudaSuccess;
    }
    return with_real(real, [=](auto zero) {
        using T = decltype(zero);
        return launch<add_up_kernel<T>>(grid_for(size, block_size),
                                        block_size,
                                        0,
                                        stream,
                                        size,
                                        terms,
                                        static_cast<const T*>(skip),
                                        static_cast<T*>(y));
    });
}

cudaError_t sum_members(const MemberSum& sum, cudaStream_t stream) {
    if (sum.size == 0) {
        return cudaSuccess;
    }
    return launch<sum_members_kernel>(grid_for(sum.size, block_size), block_size, 0, stream, sum);
}

cudaError_t add(Real real, std::int64_t size, const void* x, void* y, cudaStream_t stream) {
    return elementwise<Sum>(real, size, x, y, y, stream);
}

cudaError_t copy_columns(
    Real real, const ColumnCopy& copy, const void* x, void* y, cudaStream_t stream) {
    const std::int64_t size = copy.rows * copy.columns;
    if (size == 0) {
        return cudaSuccess;
    }
    return with_real(real, [=](auto zero) {
        using T = decltype(zero);
        return launch<copy_columns_kernel<T>>(grid_for(size, block_size),
                                              block_size,
                                              0,
                                              stream,
                                              copy,
                                              static_cast<const T*>(x),
                                              static_cast<T*>(y));
    });
}

cudaError_t convert_from_float(
    Real real, std::int64_t size, float scale, const float* x, void* y, cudaStream_t stream) {
    return with_real(real, [=](auto zero) {
        return convert(size, scale, x, static_cast<decltype(zero)*>(y), stream);
    });
}

cudaError_t gelu_forward(
    Real real, Gelu form, std::int64_t size, const void* x, void* y, cudaStream_t stream) {
    return form == Gelu::Tanh
               ? elementwise<GeluForward<Gelu::Tanh>>(real, size, x, nullptr, y, stream)
               : elementwise<GeluForward<Gelu::Exact>>(real, size, x, nullptr, y, stream);
}

cudaError_t gelu_backward(Real real,
                          Gelu form,
                          std::int64_t size,
                          const void* x,
                          const void* dy,
                          void* dx,
                          cudaStream_t stream) {
    return form == Gelu::Tanh
               ? elementwise<GeluBackward<Gelu::Tanh>>(real, size, x, dy, dx, stream)
               : elementwise<GeluBackward<Gelu::Exact>>(real, size, x, dy, dx, stream);
}

cudaError_t swiglu_forward(
    Real real, std::int64_t rows, std::int64_t width, const void* x, void* y, cudaStream_t stream) {
    if (rows <= 0 || width <= 0) {
        return cudaSuccess;
    }
    return with_real(real, [=](auto zero) {
        using T = decltype(zero);
        const Gated<T> o{rows, width, static_cast<const T*>(x)};
        return with_packs<T>(are_aligned({x, y}), rows, width, [=](auto size, dim3 grid) {
            return launch<swiglu_forward_kernel<T, decltype(size)::value>>(
                grid, dim3(column_threads, row_threads), 0, stream, o, static_cast<T*>(y));
        });
    });
}

cudaError_t swiglu_backward(Real real,
                            std::int64_t rows,
                            std::int64_t width,
                            const void* x,
                            const void* dy,
                            void* dx,
                            cudaStream_t stream) {
    if (rows <= 0 || width <= 0) {
        return cudaSuccess;
    }
    return with_real(real, [=](auto zero) {
        using T = decltype(zero);
        const Gated<T> o{rows, width, static_cast<const T*>(x)};
        return with_packs<T>(are_aligned({x, dy, dx}), rows, width, [=](auto size, dim3 grid) {
            return launch<swiglu_backward_kernel<T, decltype(size)::value>>(
                grid,
                dim3(column_threads, row_threads),
                0,
                stream,
                o,
                static_cast<const T*>(dy),
                static_cast<T*>(dx));
        });
    });
}

namespace {

Gelu gelu_of(GeluForm form) {
    return form == GeluForm::Tanh ? Gelu::Tanh : Gelu::Exact;
}

}  // namespace

void CudaKernels::add(exec::ConstView x, exec::View y) const {
    call("add", cuda::add, real_of(y.dtype), y.size(), x.data, y.data);
}

void CudaKernels::add_up(std::span<const exec::ConstView> terms,
                         exec::ConstView skip,
                         exec::View y) const {
    PIPETWIN_EXPECT(y.dtype == exec::DType::F32 || std::ssize(terms) <= Terms::most,
                    "a sum that is rounded is made at once");
    Terms some;
    for (std::size_t term = 0; term < terms.size(); ++term) {
        some.at[some.count++] = terms[term].data;
        const bool is_last = term + 1 == terms.size();
        if (is_last || some.count == Terms::most) {
            void* const to = is_last ? y.data : calls_.scratch_of<float>(y.size());
            call("add_up",
                 cuda::add_up,
                 real_of(y.dtype),
                 y.size(),
                 some,
                 is_last ? skip.data : nullptr,
                 to);
            some = {.count = 1, .at = {to}};
        }
    }
}

void CudaKernels::copy_columns(const exec::ColumnCopy& columns,
                               exec::ConstView x,
                               exec::View y) const {
    const cuda::ColumnCopy copy{.rows = x.rows,
                                .columns = columns.count,
                                .x_width = x.columns,
                                .y_width = y.columns,
                                .adds = columns.adds ? 1 : 0};
    call("copy_columns",
         cuda::copy_columns,
         real_of(y.dtype),
         copy,
         first_of(exec::ConstColumns{x, columns.from}),
         first_of(exec::Columns{y, columns.to}));
}

void CudaKernels::gelu_forward(GeluForm form, exec::ConstView x, exec::View y) const {
    call("gelu_forward",
         cuda::gelu_forward,
         real_of(x.dtype),
         gelu_of(form),
         x.size(),
         x.data,
         y.data);
}

void CudaKernels::gelu_backward(GeluForm form,
                                exec::ConstView x,
                                exec::ConstView dy,
                                exec::View dx) const {
    call("gelu_backward",
         cuda::gelu_backward,
         real_of(x.dtype),
         gelu_of(form),
         x.size(),
         x.data,
         dy.data,
         dx.data);
}

void CudaKernels::swiglu_forward(exec::ConstView x, exec::View y) const {
    call("swiglu_forward",
         cuda::swiglu_forward,
         real_of(x.dtype),
         y.rows,
         y.columns,
         x.data,
         y.data);
}

void CudaKernels::swiglu_backward(exec::ConstView x, exec::ConstView dy, exec::View dx) const {
    call("swiglu_backward",
         cuda::swiglu_backward,
         real_of(x.dtype),
         dy.rows,
         dy.columns,
         x.data,
         dy.data,
         dx.data);
}

}  // namespace pipetwin::cuda
