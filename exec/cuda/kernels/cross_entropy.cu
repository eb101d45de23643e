// SPDX-License-Identifier: Apache-2.0
#include <cfloat>

#include "exec/cuda/kernels/cuda_kernels.h"
#include "exec/cuda/kernels/dispatch.h"

// Bound by memory: forward reads a row once, backward reads and writes it once, and both at once
// read and write it once, where a row fits into shared memory. Rows may begin anywhere, since a
// vocabulary has any size: the middle of a row is moved 16 bytes at a time, what lies before and
// behind one by one.
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

template <class T>
__device__ __forceinline__ Pack<float, pack_size<T>> as_floats(const Pack<T>& values) {
    Pack<float, pack_size<T>> numbers;
    PIPETWIN_UNROLL
    for (int k = 0; k < pack_size<T>; ++k) {
        numbers.at[k] = to_float(values.at[k]);
    }
    return numbers;
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

/// Where a gradient goes, and what it is.
template <class T>
struct Gradient {
    T* dx;               ///< may be x
    const float* scale;  ///< in device memory
    float certain;       ///< 1 - smoothing
    float shared;        ///< smoothing / width
};

/// The gradient of one row's numbers.
struct RowGradient {
    std::int64_t target;  ///< -1: there is none, and all are 0
    float log_sum;
    float scale;
    float certain;
    float shared;

    template <class T>
    __device__ __forceinline__ RowGradient(const Gradient<T>& o, std::int64_t of, float sum)
        : target(of),
          log_sum(sum),
          scale(*o.scale),
          certain(__fmul_rn(scale, o.certain)),
          shared(__fmul_rn(scale, o.shared)) {}

    template <class T>
    __device__ __forceinline__ T of(T value, std::int64_t j) const {
        if (target < 0) {
            return from_float<T>(0.0F);
        }
        const float softmax = __expf(to_float(value) - log_sum) * scale;
        return from_float<T>((j == target ? softmax - certain : softmax) - shared);
    }
};

/// How many of its loads a thread waits for at a time.
enum class Loads : std::uint8_t { One, Four };

/// Calls one(j) for each number of a row that is moved alone, and packed(j) for the first of each
/// pack: those of the calling thread, one of `threads` that share the row.
template <int threads, int pack, Loads loads, class One, class Packed>
__device__ __forceinline__ void for_each_of_row(const Cut& cut,
                                                std::int64_t width,
                                                const One& one,
                                                const Packed& packed) {
    const auto thread = static_cast<std::int64_t>(threadIdx.x % threads);
    for (std::int64_t j = thread; j < cut.head; j += threads) {
        one(j);
    }
    if constexpr (loads == Loads::Four) {
        PIPETWIN_UNROLL_4
        for (std::int64_t p = thread; p < cut.packs; p += threads) {
            packed(cut.head + p * pack);
        }
    } else {
        for (std::int64_t p = thread; p < cut.packs; p += threads) {
            packed(cut.head + p * pack);
        }
    }
    for (std::int64_t j = cut.head + cut.packs * pack + thread; j < width; j += threads) {
        one(j);
    }
}

/// The columns of a matrix of logits.
struct LogitColumns {
    std::int64_t width;  ///< of a row's numbers
    std::int64_t step;   ///< from one row to the next: behind a row's numbers may be padding
};

/// dx of a row, whose numbers from `begin` on `load` and `load_all` give, one or a pack of them; 0
/// in the padding.
template <int threads, Loads loads, class T, class Load, class LoadAll>
__device__ __forceinline__ void store_gradient(const RowGradient& gradient,
                                               const Cut& cut,
                                               const LogitColumns& columns,
                                               T* dx,
                                               const Load& load,
                                               const LoadAll& load_all) {
    constexpr int pack = pack_size<T>;
    for_each_of_row<threads, pack, loads>(
        cut,
        columns.width,
        [&](std::int64_t j) { dx[j] = gradient.of(load(j), j); },
        [&](std::int64_t begin) {
            Pack<T> values = load_all(begin);
            PIPETWIN_UNROLL
            for (int k = 0; k < pack; ++k) {
                values.at[k] = gradient.of(values.at[k], begin + k);
            }
            store_pack(dx + begin, values);
        });
    const auto thread = static_cast<std::int64_t>(threadIdx.x % threads);
    for (std::int64_t j = columns.width + thread; j < columns.step; j += threads) {
        dx[j] = from_float<T>(0.0F);
    }
}

/// The block of a kernel that gives it a long row each. As many threads share a row, whether it has
/// its gradient at once or not, so that its sum has the same bits. Two blocks fit a multiprocessor,
/// each with a row in shared memory.
constexpr int long_row_block = 512;

/// Threads of a block whose rows are shared by `threads` threads each.
template <int threads>
constexpr int block_of = threads == warp_lanes ? row_block : threads;

template <class T>
struct Forward {
    std::int64_t rows;
    LogitColumns columns;
    const T* x;
    const std::int32_t* targets;
    float* log_sums;
    double* row_losses;
    double* row_rights;  ///< null: not wanted
    float smoothing;
    bool in_packs;
    Gradient<T> gradient;
};

/// What the forward does about the gradient.
enum class WithGradient : std::uint8_t {
    No,
    ReadsAgain,  ///< reads a row a second time
    KeepsRow     ///< has the row in shared memory in between
};

/// Bytes of shared memory for a row; its numbers lie there as they do behind a multiple of 16.
template <class T>
constexpr std::int64_t kept_row_bytes(std::int64_t width) {
    return ceil_div((width + pack_size<T>)*static_cast<std::int64_t>(sizeof(T)), 16) * 16;
}

/// What a row's loss needs beside its log sum, of numbers that are in a cache by now.
struct RowDetails {
    double mean;
    bool right;
};

template <int threads, class T>
__device__ __forceinline__ RowDetails
details_of(const Forward<T>& o, const T* x, std::int32_t target, float of_target, float largest) {
    const auto thread = static_cast<std::int64_t>(threadIdx.x % threads);
    RowDetails details{0, false};
    if (o.smoothing > 0) {
        double sum = 0;
        for (std::int64_t j = thread; j < o.columns.width; j += threads) {
            sum += static_cast<double>(to_float(x[j]));
        }
        details.mean = group_sum<threads>(sum) / static_cast<double>(o.columns.width);
    }
    if (o.row_rights != nullptr && of_target == largest) {  // for all threads of the row
        float equal_before = 0;
        for (std::int64_t j = thread; j < target; j += threads) {
            equal_before = to_float(x[j]) == largest ? 1.0F : equal_before;
        }
        details.right = group_max<threads>(equal_before) == 0;
    }
    return details;
}

/// The number that the first of the `threads` neighbours that share a row has, in all of them.
/// Behind it any of them may write what another has read before.
template <int threads>
__device__ __forceinline__ float of_first(float value) {
    if constexpr (threads == warp_lanes) {
        __syncwarp();
        return __shfl_sync(all_lanes, value, 0);
    } else {
        PIPETWIN_SHARED(first, float[1]);
        if (threadIdx.x == 0) {
            first[0] = value;
        }
        __syncthreads();
        return first[0];
    }
}

template <class T, int threads, WithGradient with>
__global__ void __launch_bounds__(block_of<threads>, block_of<threads> == long_row_block ? 2 : 1)
    forward_kernel(Forward<T> o) {
    constexpr int pack = pack_size<T>;
    const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * (block_of<threads> / threads) +
                             threadIdx.x / threads;
    if (row >= o.rows) {  // whole warps: where a block has one row, no thread leaves
        return;
    }
    const bool is_first = threadIdx.x % threads == 0;
    const std::int32_t target = o.targets[row];
    const T* const x = o.x + row * o.columns.step;
    const Cut cut = cut_row(x, o.columns.width, o.in_packs);
    if (target < 0) {  // for all threads of the row
        if (is_first) {
            o.log_sums[row] = FLT_MAX;
            o.row_losses[row] = 0;
            if (o.row_rights != nullptr) {
                o.row_rights[row] = 0;
            }
        }
        if constexpr (with != WithGradient::No) {
            const RowGradient none(o.gradient, target, 0.0F);
            store_gradient<threads, Loads::One>(
                none,
                cut,
                o.columns,
                o.gradient.dx + row * o.columns.step,
                [](std::int64_t) { return from_float<T>(0.0F); },
                [](std::int64_t) { return Pack<T>{}; });
        }
        return;
    }
    T* kept = nullptr;  // kept + j: number j of the row
    if constexpr (with == WithGradient::KeepsRow) {
        PIPETWIN_DYNAMIC_SHARED(memory);
        kept = reinterpret_cast<T*>(memory) + (pack - cut.head % pack) % pack;
    }
    const float of_target = to_float(x[target]);
    Exponentials own;
    for_each_of_row<threads, pack, Loads::Four>(
        cut,
        o.columns.width,
        [&](std::int64_t j) {
            const T value = x[j];
            if constexpr (with == WithGradient::KeepsRow) {
                kept[j] = value;
            }
            own.take(Pack<float, 1>{{to_float(value)}});
        },
        [&](std::int64_t begin) {
            const Pack<T> values = load_pack(x + begin);
            if constexpr (with == WithGradient::KeepsRow) {
                keep_pack(kept + begin, values);
            }
            own.take(as_floats(values));
        });
    const float largest = group_max<threads>(own.largest);
    const float sum = group_sum<threads>(own.sum * __expf(own.largest - largest));
    const RowDetails details = details_of<threads>(o, x, target, of_target, largest);
    float log_sum_of_row = 0;
    if (is_first) {
        const double log_sum = static_cast<double>(largest) + log(static_cast<double>(sum));
        log_sum_of_row = static_cast<float>(log_sum);
        o.log_sums[row] = log_sum_of_row;
        auto wanted = static_cast<double>(of_target);
        if (o.smoothing > 0) {
            const auto smoothing = static_cast<double>(o.smoothing);
            wanted = (1 - smoothing) * wanted + smoothing * details.mean;
        }
        o.row_losses[row] = log_sum - wanted;
        if (o.row_rights != nullptr) {
            o.row_rights[row] = details.right ? 1 : 0;
        }
    }
    if constexpr (with != WithGradient::No) {
        const T* const from = with == WithGradient::KeepsRow ? kept : x;
        const RowGradient gradient(o.gradient, target, of_first<threads>(log_sum_of_row));
        store_gradient<threads, Loads::One>(
            gradient,
            cut,
            o.columns,
            o.gradient.dx + row * o.columns.step,
            [=](std::int64_t j) { return from[j]; },
            [=](std::int64_t begin) { return load_pack(from + begin); });
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
    LogitColumns columns;
    const T* x;
    const std::int32_t* targets;
    const float* log_sums;
    bool in_packs;
    Gradient<T> gradient;
    std::int64_t first;  ///< class of the first column
};

/// The column of a row's target: -1 where it has none, and no column's number where another device
/// has it.
__device__ __forceinline__ std::int64_t column_of(std::int32_t target,
                                                  std::int64_t first,
                                                  std::int64_t width) {
    if (target < 0) {
        return -1;
    }
    return target >= first && target - first < width ? target - first : width;
}

template <class T, int threads>
__global__ void __launch_bounds__(row_block) backward_kernel(Backward<T> o) {
    const std::int64_t row = row_of_thread<threads>();
    if (row >= o.rows) {
        return;
    }
    const T* const x = o.x + row * o.columns.step;
    const std::int64_t target = column_of(o.targets[row], o.first, o.columns.width);
    store_gradient<threads, Loads::Four>(
        RowGradient(o.gradient, target, o.log_sums[row]),
        cut_row(x, o.columns.width, o.in_packs),
        o.columns,
        o.gradient.dx + row * o.columns.step,
        [=](std::int64_t j) { return x[j]; },
        [=](std::int64_t begin) { return load_pack(x + begin); });
}

template <class T>
struct ClassParts {
    std::int64_t rows;
    LogitColumns columns;
    std::int64_t first;
    const T* x;
    const std::int32_t* targets;
    bool in_packs;
    float* parts;
};

/// Numbers of a row in the parts.
constexpr std::int64_t numbers_of_part = 4;

template <class T, int threads>
__global__ void __launch_bounds__(row_block) class_parts_kernel(ClassParts<T> o) {
    constexpr int pack = pack_size<T>;
    const std::int64_t row = row_of_thread<threads>();
    if (row >= o.rows) {
        return;
    }
    const T* const x = o.x + row * o.columns.step;
    Exponentials own;
    for_each_of_row<threads, pack, Loads::Four>(
        cut_row(x, o.columns.width, o.in_packs),
        o.columns.width,
        [&](std::int64_t j) { own.take(Pack<float, 1>{{to_float(x[j])}}); },
        [&](std::int64_t begin) { own.take(as_floats(load_pack(x + begin))); });
    const float largest = group_max<threads>(own.largest);
    const float sum = group_sum<threads>(own.sum * __expf(own.largest - largest));
    // The smallest column with the largest number: minus the largest of their opposites.
    auto first_largest = -static_cast<float>(o.columns.width);
    for (std::int64_t j = threadIdx.x % threads; j < o.columns.width; j += threads) {
        if (to_float(x[j]) == largest) {
            first_largest = -static_cast<float>(j);
            break;
        }
    }
    first_largest = group_max<threads>(first_largest);
    if (threadIdx.x % threads == 0) {
        const std::int64_t target = column_of(o.targets[row], o.first, o.columns.width);
        float* const part = o.parts + row * numbers_of_part;
        part[0] = largest;
        part[1] = sum;
        part[2] = target >= 0 && target < o.columns.width ? to_float(x[target]) : 0.0F;
        part[3] = static_cast<float>(o.first) - first_largest;
    }
}

struct PartedRows {
    PartedLoss loss;
    double* row_losses;
    double* row_rights;
};

constexpr int part_block = 256;

__global__ void __launch_bounds__(part_block) parted_forward_kernel(PartedRows o) {
    const PartedLoss& loss = o.loss;
    for (std::int64_t row = thread_of_grid(); row < loss.rows; row += threads_of_grid()) {
        const std::int32_t target = loss.targets[row];
        if (target < 0) {
            loss.log_sums[row] = FLT_MAX;
            o.row_losses[row] = 0;
            o.row_rights[row] = 0;
            continue;
        }
        const float* best = loss.parts + row * numbers_of_part;  // the first of the largest
        for (std::int64_t device = 1; device < loss.devices; ++device) {
            const float* const part = loss.parts + (device * loss.rows + row) * numbers_of_part;
            best = part[0] > best[0] ? part : best;
        }
        const auto largest = static_cast<double>(best[0]);
        double exponentials = 0;
        double wanted = 0;
        for (std::int64_t device = 0; device < loss.devices; ++device) {
            const float* const part = loss.parts + (device * loss.rows + row) * numbers_of_part;
            exponentials +=
                static_cast<double>(part[1]) * exp(static_cast<double>(part[0]) - largest);
            wanted += static_cast<double>(part[2]);
        }
        const double log_sum = largest + log(exponentials);
        loss.log_sums[row] = static_cast<float>(log_sum);
        o.row_losses[row] = log_sum - wanted;
        o.row_rights[row] = best[3] == static_cast<float>(target) ? 1 : 0;
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

/// The gradient of a loss with label smoothing that is `scale` times as large.
template <class T>
Gradient<T> gradient_of(const CrossEntropy& loss, float smoothing, LossGradient gradient) {
    return {static_cast<T*>(gradient.dx),
            gradient.scale,
            1 - smoothing,
            smoothing / static_cast<float>(loss.width)};
}

/// The most dynamic shared memory that a block of the current device can have beside the arrays of
/// the kernels above, which have less than a KiB.
cudaError_t find_most_shared(std::int64_t& bytes) {
    int device = 0;
    int all = 0;
    cudaError_t error = cudaGetDevice(&device);
    if (error == cudaSuccess) {
        error = cudaDeviceGetAttribute(&all, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
    }
    bytes = all - 1024;
    return error;
}

template <class T, int threads, WithGradient with>
cudaError_t launch_forward(const Forward<T>& o, std::int64_t shared_bytes, cudaStream_t stream) {
    constexpr auto* kernel = forward_kernel<T, threads, with>;
    if (shared_bytes > 0) {
        const cudaError_t error = cudaFuncSetAttribute(
            kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shared_bytes));
        if (error != cudaSuccess) {
            return error;
        }
    }
    constexpr int block = block_of<threads>;
    return launch<kernel>(static_cast<unsigned>(ceil_div(o.rows, block / threads)),
                          block,
                          static_cast<std::size_t>(shared_bytes),
                          stream,
                          o);
}

/// Rows of this width, and where `gradient` has a place, theirs.
template <class T>
cudaError_t forward_rows(const Forward<T>& o, cudaStream_t stream) {
    const bool is_short = o.columns.width <= short_row;
    if (o.gradient.dx == nullptr) {
        return is_short ? launch_forward<T, warp_lanes, WithGradient::No>(o, 0, stream)
                        : launch_forward<T, long_row_block, WithGradient::No>(o, 0, stream);
    }
    if (is_short) {  // the first cache has it
        return launch_forward<T, warp_lanes, WithGradient::ReadsAgain>(o, 0, stream);
    }
    std::int64_t most = 0;
    const cudaError_t error = find_most_shared(most);
    if (error != cudaSuccess) {
        return error;
    }
    const std::int64_t wanted = kept_row_bytes<T>(o.columns.width);
    return wanted <= most
               ? launch_forward<T, long_row_block, WithGradient::KeepsRow>(o, wanted, stream)
               : launch_forward<T, long_row_block, WithGradient::ReadsAgain>(o, 0, stream);
}

/// The sums over the rows, and where `gradient` has a place, the gradient.
cudaError_t forward(Real real,
                    const CrossEntropy& loss,
                    float smoothing,
                    float* log_sums,
                    const LossSums& sums,
                    LossGradient gradient,
                    cudaStream_t stream) {
    if (loss.rows > 0) {
        const cudaError_t error = with_real(real, [=](auto zero) {
            using T = decltype(zero);
            const Forward<T> o{loss.rows,
                               {loss.width, loss.width + loss.padding},
                               static_cast<const T*>(loss.x),
                               loss.targets,
                               log_sums,
                               sums.scratch,
                               sums.right != nullptr ? sums.scratch + loss.rows : nullptr,
                               smoothing,
                               are_aligned({loss.x, gradient.dx}),
                               gradient_of<T>(loss, smoothing, gradient)};
            return forward_rows(o, stream);
        });
        if (error != cudaSuccess) {
            return error;
        }
    }
    return add_up(loss.rows, loss.rows, sums, stream);
}

}  // namespace

cudaError_t cross_entropy_forward(Real real,
                                  const CrossEntropy& loss,
                                  float smoothing,
                                  float* log_sums,
                                  const LossSums& sums,
                                  cudaStream_t stream) {
    return forward(real, loss, smoothing, log_sums, sums, {}, stream);
}

cudaError_t cross_entropy_with_gradient(Real real,
                                        const CrossEntropy& loss,
                                        float smoothing,
                                        float* log_sums,
                                        const LossSums& sums,
                                        LossGradient gradient,
                                        cudaStream_t stream) {
    return forward(real, loss, smoothing, log_sums, sums, gradient, stream);
}

cudaError_t cross_entropy_backward(Real real,
                                   const CrossEntropy& loss,
                                   const float* log_sums,
                                   float smoothing,
                                   LossGradient gradient,
                                   cudaStream_t stream) {
    if (loss.rows <= 0) {
        return cudaSuccess;
    }
    return with_rows(real, loss.width, [=](auto zero, auto count) {
        using T = decltype(zero);
        constexpr int threads = decltype(count)::value;
        const Backward<T> o{loss.rows,
                            {loss.width, loss.width + loss.padding},
                            static_cast<const T*>(loss.x),
                            loss.targets,
                            log_sums,
                            are_aligned({loss.x, gradient.dx}),
                            gradient_of<T>(loss, smoothing, gradient),
                            loss.first};
        return launch_rows<backward_kernel<T, threads>, threads>(o, stream);
    });
}

cudaError_t class_parts(Real real, const CrossEntropy& loss, float* parts, cudaStream_t stream) {
    if (loss.rows <= 0) {
        return cudaSuccess;
    }
    return with_rows(real, loss.width, [=](auto zero, auto count) {
        using T = decltype(zero);
        constexpr int threads = decltype(count)::value;
        const ClassParts<T> o{loss.rows,
                              {loss.width, loss.width + loss.padding},
                              loss.first,
                              static_cast<const T*>(loss.x),
                              loss.targets,
                              are_aligned({loss.x}),
                              parts};
        return launch_rows<class_parts_kernel<T, threads>, threads>(o, stream);
    });
}

cudaError_t cross_entropy_of_parts(const PartedLoss& loss,
                                   const LossSums& sums,
                                   cudaStream_t stream) {
    if (loss.rows > 0) {
        const cudaError_t error =
            launch<parted_forward_kernel>(grid_for(loss.rows, part_block),
                                          part_block,
                                          0,
                                          stream,
                                          PartedRows{loss, sums.scratch, sums.scratch + loss.rows});
        if (error != cudaSuccess) {
            return error;
        }
    }
    return add_up(loss.rows, loss.rows, sums, stream);
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

namespace {

CrossEntropy loss_of(exec::ConstView x,
                     exec::ConstView targets,
                     const exec::ClassColumns& columns) {
    return {.rows = x.rows,
            .width = x.columns - columns.padding,
            .x = x.data,
            .targets = targets.as<std::int32_t>(),
            .padding = columns.padding,
            .first = columns.first};
}

LossSums sums_of(CallSite& calls, std::int64_t rows, const exec::LossSums& sums) {
    return {.loss = sums.loss,
            .right = sums.right,
            .scratch = calls.scratch_of<double>(loss_scratch(rows))};
}

}  // namespace

void CudaKernels::cross_entropy_forward(exec::ConstView x,
                                        exec::ConstView targets,
                                        const exec::ClassColumns& columns,
                                        exec::View log_sums,
                                        const exec::LossSums& sums) const {
    call("cross_entropy_forward",
         cuda::cross_entropy_forward,
         real_of(x.dtype),
         loss_of(x, targets, columns),
         static_cast<float>(columns.smoothing),
         log_sums.as<float>(),
         sums_of(calls_, x.rows, sums));
}

void CudaKernels::class_parts(exec::ConstView x,
                              exec::ConstView targets,
                              const exec::ClassColumns& columns,
                              exec::View parts) const {
    call("class_parts",
         cuda::class_parts,
         real_of(x.dtype),
         loss_of(x, targets, columns),
         parts.as<float>());
}

void CudaKernels::cross_entropy_of_parts(exec::ConstView parts,
                                         exec::ConstView targets,
                                         exec::View log_sums,
                                         const exec::LossSums& sums) const {
    call("cross_entropy_of_parts",
         cuda::cross_entropy_of_parts,
         PartedLoss{.rows = targets.rows,
                    .devices = targets.rows == 0 ? 0 : parts.rows / targets.rows,
                    .parts = parts.as<float>(),
                    .targets = targets.as<std::int32_t>(),
                    .log_sums = log_sums.as<float>()},
         sums_of(calls_, targets.rows, sums));
}

// The scale changes from step to step where padding is, so it comes from host memory: see `update`.
void CudaKernels::cross_entropy_backward(exec::ConstView x,
                                         exec::ConstView targets,
                                         exec::ConstView log_sums,
                                         const exec::ClassColumns& columns,
                                         double scale,
                                         exec::View dx) const {
    call("cross_entropy_backward",
         cuda::cross_entropy_backward,
         real_of(x.dtype),
         loss_of(x, targets, columns),
         log_sums.as<float>(),
         static_cast<float>(columns.smoothing),
         LossGradient{.scale = calls_.to_device(static_cast<float>(scale)), .dx = dx.data});
}

void CudaKernels::cross_entropy_with_gradient(exec::ConstView targets,
                                              const exec::ClassColumns& columns,
                                              double scale,
                                              exec::View log_sums,
                                              const exec::LossSums& sums,
                                              exec::View x) const {
    const std::int64_t of_sums = cuda::loss_scratch(x.rows);
    auto* const all = calls_.scratch_of<double>(of_sums + 1);
    const float* const factor =
        calls_.to_device(static_cast<float>(scale), reinterpret_cast<float*>(all + of_sums));
    call("cross_entropy_with_gradient",
         cuda::cross_entropy_with_gradient,
         real_of(x.dtype),
         loss_of(x, targets, columns),
         static_cast<float>(columns.smoothing),
         log_sums.as<float>(),
         LossSums{.loss = sums.loss, .right = sums.right, .scratch = all},
         LossGradient{.scale = factor, .dx = x.data});
}

void CudaKernels::binary_cross_entropy_forward(exec::ConstView x,
                                               exec::ConstView targets,
                                               const exec::LossSums& sums) const {
    call("binary_cross_entropy_forward",
         cuda::binary_cross_entropy_forward,
         real_of(x.dtype),
         x.size(),
         x.data,
         targets.as<std::int32_t>(),
         sums_of(calls_, x.size(), sums));
}

void CudaKernels::binary_cross_entropy_backward(exec::ConstView x,
                                                exec::ConstView targets,
                                                double scale,
                                                exec::View dx) const {
    call("binary_cross_entropy_backward",
         cuda::binary_cross_entropy_backward,
         real_of(x.dtype),
         x.size(),
         x.data,
         targets.as<std::int32_t>(),
         static_cast<float>(scale),
         dx.data);
}

}  // namespace pipetwin::cuda
