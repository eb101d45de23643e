#include <cfloat>

#include "exec/cuda/kernels/dispatch.h"

// Bound by memory: forward reads a row once, backward reads and writes it once. Rows may begin
// anywhere, since a vocabulary has any size: the middle of a row is moved 16 bytes at a time, what
// lies before and behind one by one.
namespace pipetwin::cuda {
namespace {

struct Cut {
    std::int64_t head;   ///< elements before the first multiple of 16 bytes
    std::int64_t packs;  ///< of 16 bytes, behind them
};

template <class T>
__device__ __forceinline__ Cut cut_row(const T* row, std::int64_t width, bool in_packs) {
    if (!in_packs) {
        return {width, 0};
    }
    constexpr std::int64_t pack = pack_size<T>;
    const auto past =
        static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(row) % 16 / sizeof(T));
    const std::int64_t to_multiple = (pack - past) % pack;
    const std::int64_t head = to_multiple < width ? to_multiple : width;
    return {head, (width - head) / pack};
}

/// sum of exp(x - largest) over the x seen so far.
struct Exponentials {
    float largest = -FLT_MAX;  // a number: minus infinity from itself would be none
    float sum = 0;

    template <int count>
    __device__ __forceinline__ void take(const Pack<float, count>& x) {
        float now = largest;
        PIPETWIN_UNROLL
        for (int k = 0; k < count; ++k) {
            now = fmaxf(now, x.at[k]);
        }
        sum *= __expf(largest - now);
        PIPETWIN_UNROLL
        for (int k = 0; k < count; ++k) {
            sum += __expf(x.at[k] - now);
        }
        largest = now;
    }
};

template <class T>
struct Forward {
    std::int64_t rows;
    std::int64_t width;
    const T* x;
    const std::int32_t* targets;
    float* log_sums;
    double* row_losses;
    bool in_packs;
};

template <class T, int threads>
__global__ void __launch_bounds__(row_block) forward_kernel(Forward<T> o) {
    constexpr int pack = pack_size<T>;
    const std::int64_t row = row_of_thread<threads>();
    if (row >= o.rows) {  // whole warps: where a block has one row, no thread leaves
        return;
    }
    const auto thread = static_cast<std::int64_t>(threadIdx.x % threads);
    const T* const x = o.x + row * o.width;
    const Cut cut = cut_row(x, o.width, o.in_packs);
    Exponentials own;
    for (std::int64_t j = thread; j < cut.head; j += threads) {
        own.take(Pack<float, 1>{{to_float(x[j])}});
    }
    PIPETWIN_UNROLL_4
    for (std::int64_t p = thread; p < cut.packs; p += threads) {
        const Pack<T> values = load_pack(x + cut.head + p * pack);
        Pack<float, pack> numbers;
        PIPETWIN_UNROLL
        for (int k = 0; k < pack; ++k) {
            numbers.at[k] = to_float(values.at[k]);
        }
        own.take(numbers);
    }
    for (std::int64_t j = cut.head + cut.packs * pack + thread; j < o.width; j += threads) {
        own.take(Pack<float, 1>{{to_float(x[j])}});
    }
    const float largest = group_max<threads>(own.largest);
    const float sum = group_sum<threads>(own.sum * __expf(own.largest - largest));
    if (thread == 0) {
        const double log_sum = static_cast<double>(largest) + log(static_cast<double>(sum));
        o.log_sums[row] = static_cast<float>(log_sum);
        o.row_losses[row] = log_sum - static_cast<double>(to_float(x[o.targets[row]]));
    }
}

// One block, as large as possible: it waits for memory only.
constexpr int sum_block = 1024;

__global__ void __launch_bounds__(sum_block)
    sum_kernel(std::int64_t count, const double* values, double* total) {
    double sum = 0;
    PIPETWIN_UNROLL_4
    for (std::int64_t i = threadIdx.x; i < count; i += sum_block) {
        sum += values[i];
    }
    sum = block_sum(sum);
    if (threadIdx.x == 0) {
        *total = sum;
    }
}

template <class T>
struct Backward {
    std::int64_t rows;
    std::int64_t width;
    const T* x;
    const std::int32_t* targets;
    const float* log_sums;
    float scale;
    T* dx;
    bool in_packs;
};

template <class T, int threads>
__global__ void __launch_bounds__(row_block) backward_kernel(Backward<T> o) {
    constexpr int pack = pack_size<T>;
    const std::int64_t row = row_of_thread<threads>();
    if (row >= o.rows) {
        return;
    }
    const auto thread = static_cast<std::int64_t>(threadIdx.x % threads);
    const T* const x = o.x + row * o.width;
    T* const dx = o.dx + row * o.width;
    const std::int64_t target = o.targets[row];
    const float log_sum = o.log_sums[row];
    const float scale = o.scale;
    const auto gradient = [=](T value, std::int64_t j) {
        const float softmax = __expf(to_float(value) - log_sum) * scale;
        return from_float<T>(j == target ? softmax - scale : softmax);
    };
    const Cut cut = cut_row(x, o.width, o.in_packs);
    for (std::int64_t j = thread; j < cut.head; j += threads) {
        dx[j] = gradient(x[j], j);
    }
    for (std::int64_t p = thread; p < cut.packs; p += threads) {
        const std::int64_t begin = cut.head + p * pack;
        Pack<T> values = load_pack(x + begin);
        PIPETWIN_UNROLL
        for (int k = 0; k < pack; ++k) {
            values.at[k] = gradient(values.at[k], begin + k);
        }
        store_pack(dx + begin, values);
    }
    for (std::int64_t j = cut.head + cut.packs * pack + thread; j < o.width; j += threads) {
        dx[j] = gradient(x[j], j);
    }
}

}  // namespace

cudaError_t cross_entropy_forward(Real real,
                                  const CrossEntropy& loss,
                                  float* log_sums,
                                  double* row_losses,
                                  double* sum,
                                  cudaStream_t stream) {
    if (loss.rows > 0) {
        const cudaError_t error = with_rows(real, loss.width, [=](auto zero, auto count) {
            using T = decltype(zero);
            constexpr int threads = decltype(count)::value;
            const Forward<T> o{loss.rows,
                               loss.width,
                               static_cast<const T*>(loss.x),
                               loss.targets,
                               log_sums,
                               row_losses,
                               are_aligned({loss.x})};
            return launch_rows<forward_kernel<T, threads>, threads>(o, stream);
        });
        if (error != cudaSuccess) {
            return error;
        }
    }
    if (sum == nullptr) {
        return cudaSuccess;
    }
    const double* const losses = row_losses;
    return launch<sum_kernel>(1, sum_block, 0, stream, loss.rows, losses, sum);
}

cudaError_t cross_entropy_backward(Real real,
                                   const CrossEntropy& loss,
                                   const float* log_sums,
                                   float scale,
                                   void* dx,
                                   cudaStream_t stream) {
    if (loss.rows <= 0) {
        return cudaSuccess;
    }
    return with_rows(real, loss.width, [=](auto zero, auto count) {
        using T = decltype(zero);
        constexpr int threads = decltype(count)::value;
        const Backward<T> o{loss.rows,
                            loss.width,
                            static_cast<const T*>(loss.x),
                            loss.targets,
                            log_sums,
                            scale,
                            static_cast<T*>(dx),
                            are_aligned({loss.x, dx})};
        return launch_rows<backward_kernel<T, threads>, threads>(o, stream);
    });
}

}  // namespace pipetwin::cuda
