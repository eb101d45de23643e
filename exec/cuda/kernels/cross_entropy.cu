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
    double* row_rights;  ///< null: not wanted
    float smoothing;
    bool in_packs;
};

/// What a row's loss needs beside its log sum, of numbers that are in a cache by now.
struct RowDetails {
    double mean;
    bool right;
};

template <int threads, class T>
__device__ __forceinline__ RowDetails
details_of(const Forward<T>& o, const T* x, std::int32_t target, float largest) {
    const auto thread = static_cast<std::int64_t>(threadIdx.x % threads);
    RowDetails details{0, false};
    if (o.smoothing > 0) {
        double sum = 0;
        for (std::int64_t j = thread; j < o.width; j += threads) {
            sum += static_cast<double>(to_float(x[j]));
        }
        details.mean = group_sum<threads>(sum) / static_cast<double>(o.width);
    }
    if (o.row_rights != nullptr && to_float(x[target]) == largest) {  // for all threads of the row
        float equal_before = 0;
        for (std::int64_t j = thread; j < target; j += threads) {
            equal_before = to_float(x[j]) == largest ? 1.0F : equal_before;
        }
        details.right = group_max<threads>(equal_before) == 0;
    }
    return details;
}

template <class T, int threads>
__global__ void __launch_bounds__(row_block) forward_kernel(Forward<T> o) {
    constexpr int pack = pack_size<T>;
    const std::int64_t row = row_of_thread<threads>();
    if (row >= o.rows) {  // whole warps: where a block has one row, no thread leaves
        return;
    }
    const auto thread = static_cast<std::int64_t>(threadIdx.x % threads);
    const std::int32_t target = o.targets[row];
    if (target < 0) {  // for all threads of the row
        if (thread == 0) {
            o.log_sums[row] = FLT_MAX;
            o.row_losses[row] = 0;
            if (o.row_rights != nullptr) {
                o.row_rights[row] = 0;
            }
        }
        return;
    }
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
    const RowDetails details = details_of<threads>(o, x, target, largest);
    if (thread == 0) {
        const double log_sum = static_cast<double>(largest) + log(static_cast<double>(sum));
        o.log_sums[row] = static_cast<float>(log_sum);
        double wanted = static_cast<double>(to_float(x[target]));
        if (o.smoothing > 0) {
            const auto smoothing = static_cast<double>(o.smoothing);
            wanted = (1 - smoothing) * wanted + smoothing * details.mean;
        }
        o.row_losses[row] = log_sum - wanted;
        if (o.row_rights != nullptr) {
            o.row_rights[row] = details.right ? 1 : 0;
        }
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
    const float* scale;
    float certain;  ///< 1 - smoothing
    float shared;   ///< smoothing / width
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
    const float scale = *o.scale;
    const float certain = __fmul_rn(scale, o.certain);
    const float shared = __fmul_rn(scale, o.shared);
    const auto gradient = [=](T value, std::int64_t j) {
        if (target < 0) {
            return from_float<T>(0.0F);
        }
        const float softmax = __expf(to_float(value) - log_sum) * scale;
        return from_float<T>((j == target ? softmax - certain : softmax) - shared);
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

/// Rows of the losses that a block adds up.
constexpr std::int64_t rows_of_block = 1024;
constexpr int binary_block = 256;

// A block per `rows_of_block` rows, whose sums it writes.
template <class T>
__global__ void __launch_bounds__(binary_block) binary_forward_kernel(std::int64_t rows,
                                                                      const T* x,
                                                                      const std::int32_t* targets,
                                                                      double* block_losses,
                                                                      double* block_rights) {
    const std::int64_t begin = static_cast<std::int64_t>(blockIdx.x) * rows_of_block;
    const std::int64_t end = begin + rows_of_block < rows ? begin + rows_of_block : rows;
    double loss = 0;
    double right = 0;
    for (std::int64_t row = begin + threadIdx.x; row < end; row += binary_block) {
        const float logit = to_float(x[row]);
        const std::int32_t target = targets[row];
        const float positive = logit > 0 ? logit : 0.0F;
        loss += static_cast<double>(positive - logit * static_cast<float>(target) +
                                    log1pf(expf(-fabsf(logit))));
        right += (logit > 0) == (target == 1) ? 1 : 0;
    }
    loss = block_sum(loss);
    right = block_sum(right);
    if (threadIdx.x == 0) {
        block_losses[blockIdx.x] = loss;
        block_rights[blockIdx.x] = right;
    }
}

template <class T>
__global__ void __launch_bounds__(binary_block) binary_backward_kernel(
    std::int64_t rows, const T* x, const std::int32_t* targets, float scale, T* dx) {
    for (std::int64_t row = thread_of_grid(); row < rows; row += threads_of_grid()) {
        const float logit = to_float(x[row]);
        const float e = expf(-fabsf(logit));
        const float sigmoid = (logit >= 0 ? 1.0F : e) / (1.0F + e);
        dx[row] = from_float<T>((sigmoid - static_cast<float>(targets[row])) * scale);
    }
}

/// Adds up `count` numbers of each kind, those of the right rows `offset` behind the losses.
cudaError_t add_up(std::int64_t count,
                   std::int64_t offset,
                   const LossSums& sums,
                   cudaStream_t stream) {
    const double* const losses = sums.scratch;
    const double* const rights = sums.scratch + offset;
    if (sums.loss != nullptr) {
        const cudaError_t error =
            launch<sum_kernel>(1, sum_block, 0, stream, count, losses, sums.loss);
        if (error != cudaSuccess) {
            return error;
        }
    }
    return sums.right == nullptr
               ? cudaSuccess
               : launch<sum_kernel>(1, sum_block, 0, stream, count, rights, sums.right);
}

}  // namespace

cudaError_t cross_entropy_forward(Real real,
                                  const CrossEntropy& loss,
                                  float smoothing,
                                  float* log_sums,
                                  const LossSums& sums,
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
                               sums.scratch,
                               sums.right != nullptr ? sums.scratch + loss.rows : nullptr,
                               smoothing,
                               are_aligned({loss.x})};
            return launch_rows<forward_kernel<T, threads>, threads>(o, stream);
        });
        if (error != cudaSuccess) {
            return error;
        }
    }
    return add_up(loss.rows, loss.rows, sums, stream);
}

cudaError_t cross_entropy_backward(Real real,
                                   const CrossEntropy& loss,
                                   const float* log_sums,
                                   float smoothing,
                                   const float* scale,
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
                            1 - smoothing,
                            smoothing / static_cast<float>(loss.width),
                            static_cast<T*>(dx),
                            are_aligned({loss.x, dx})};
        return launch_rows<backward_kernel<T, threads>, threads>(o, stream);
    });
}

cudaError_t binary_cross_entropy_forward(Real real,
                                         std::int64_t rows,
                                         const void* x,
                                         const std::int32_t* targets,
                                         const LossSums& sums,
                                         cudaStream_t stream) {
    const std::int64_t blocks = ceil_div(rows, rows_of_block);
    if (blocks > 0) {
        const cudaError_t error = with_real(real, [=](auto zero) {
            using T = decltype(zero);
            return launch<binary_forward_kernel<T>>(static_cast<unsigned>(blocks),
                                                    binary_block,
                                                    0,
                                                    stream,
                                                    rows,
                                                    static_cast<const T*>(x),
                                                    targets,
                                                    sums.scratch,
                                                    sums.scratch + blocks);
        });
        if (error != cudaSuccess) {
            return error;
        }
    }
    return add_up(blocks, blocks, sums, stream);
}

cudaError_t binary_cross_entropy_backward(Real real,
                                          std::int64_t rows,
                                          const void* x,
                                          const std::int32_t* targets,
                                          float scale,
                                          void* dx,
                                          cudaStream_t stream) {
    if (rows <= 0) {
        return cudaSuccess;
    }
    return with_real(real, [=](auto zero) {
        using T = decltype(zero);
        return launch<binary_backward_kernel<T>>(grid_for(rows, binary_block),
                                                 binary_block,
                                                 0,
                                                 stream,
                                                 rows,
                                                 static_cast<const T*>(x),
                                                 targets,
                                                 scale,
                                                 static_cast<T*>(dx));
    });
}

}  // namespace pipetwin::cuda
