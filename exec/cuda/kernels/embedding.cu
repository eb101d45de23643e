// SPDX-License-Identifier: Apache-2.0
#include "exec/cuda/kernels/cuda_kernels.h"
#include "exec/cuda/kernels/dispatch.h"

// Forward is bound by memory: two rows read, one written. Backward reads every row of dy twice,
// once for its token and once for its place, and ids as often as there are different ones.
namespace pipetwin::cuda {
namespace {

constexpr int block_size = 256;
constexpr int block_warps = block_size / warp_lanes;

/// The row's place in the table of positions; below 0, or `count` and more, for a row that is not
/// embedded.
__device__ __forceinline__ std::int64_t place_of(const Embedding& of, std::int64_t row) {
    return row % of.positions - of.first;
}

__device__ __forceinline__ bool is_embedded(const Embedding& of, std::int64_t row) {
    const std::int64_t place = place_of(of, row);
    return place >= 0 && place < of.count;
}

/// Whether a row is embedded with this token. Only rows that have it pay for the division.
__device__ __forceinline__ bool embeds(const Embedding& of, std::int64_t row, int id) {
    return of.ids[row] == id && is_embedded(of, row);
}

/// The row of the table that is here, or -1: another device has the token's numbers.
__device__ __forceinline__ std::int64_t row_of_token(const Embedding& of, std::int64_t id) {
    const std::int64_t row = id - of.first_token;
    return row >= 0 && row < of.tokens ? row : -1;
}

template <class T>
struct Forward {
    Embedding of;
    const T* tokens;
    const T* places;  ///< or null
    T* y;
};

// A warp per row.
template <class T, int pack>
__global__ void __launch_bounds__(block_size) forward_kernel(Forward<T> o) {
    const std::int64_t row =
        static_cast<std::int64_t>(blockIdx.x) * block_warps + threadIdx.x / warp_lanes;
    if (row >= o.of.rows || !is_embedded(o.of, row)) {
        return;
    }
    const std::int64_t width = o.of.width;
    const std::int64_t token_row = row_of_token(o.of, o.of.ids[row]);
    const T* const token = o.tokens + token_row * width;
    const T* const place = o.places == nullptr ? nullptr : o.places + place_of(o.of, row) * width;
    const auto scale = static_cast<float>(o.of.scale);
    T* const y = o.y + row * width;
    constexpr std::int64_t stride = warp_lanes * pack;
    for (std::int64_t j = static_cast<std::int64_t>(threadIdx.x % warp_lanes) * pack; j < width;
         j += stride) {
        Pack<T, pack> result{};
        if (token_row >= 0) {
            result = load_pack<T, pack>(token + j);
        }
        Pack<T, pack> of_place;
        if (place != nullptr) {
            of_place = load_pack<T, pack>(place + j);
        }
        PIPETWIN_UNROLL
        for (int k = 0; k < pack; ++k) {
            const float scaled = __fmul_rn(scale, to_float(result.at[k]));
            result.at[k] = from_float<T>(
                place == nullptr ? scaled : __fadd_rn(scaled, to_float(of_place.at[k])));
        }
        store_pack<T, pack>(y + j, result);
    }
}

/// Number of ids that are searched at once.
constexpr int window = 4 * block_size;

// Whether `id` is among the ids of the first `count` rows that are embedded; the same answer in all
// threads of the block.
__device__ __forceinline__ bool occurs(const Embedding& of, std::int64_t count, int id) {
    PIPETWIN_SHARED(of_warps, unsigned[block_warps]);
    const int warp = static_cast<int>(threadIdx.x) / warp_lanes;
    for (std::int64_t begin = 0; begin < count; begin += window) {
        bool here = false;
        PIPETWIN_UNROLL
        for (int i = 0; i < 4; ++i) {
            const std::int64_t row = begin + i * block_size + threadIdx.x;
            here = here || (row < count && embeds(of, row, id));
        }
        const unsigned votes = __ballot_sync(all_lanes, here);
        __syncthreads();  // all have read what the window before left
        if (threadIdx.x % warp_lanes == 0) {
            of_warps[warp] = votes;
        }
        __syncthreads();
        unsigned found = 0;
        for (const unsigned votes_of_warp : of_warps) {
            found |= votes_of_warp;
        }
        if (found != 0) {
            return true;
        }
    }
    return false;
}

struct Matches {
    std::int32_t offsets[window];  ///< of rows from the window's begin, ascending
    std::int32_t of_warps[block_warps];
};

// The rows of the window at `begin` that have this id, in ascending order; returns their number.
// Warp w searches offsets 128 w ... 128 w + 127. The first barrier also waits for those who still
// read the last window's offsets.
__device__ __forceinline__ int find_matches(const Embedding& of,
                                            std::int64_t begin,
                                            int id,
                                            Matches& matches) {
    const int warp = static_cast<int>(threadIdx.x) / warp_lanes;
    const int lane = static_cast<int>(threadIdx.x) % warp_lanes;
    unsigned votes[4];
    int of_warp = 0;
    PIPETWIN_UNROLL
    for (int i = 0; i < 4; ++i) {
        const std::int64_t row = begin + 4 * warp_lanes * warp + warp_lanes * i + lane;
        votes[i] = __ballot_sync(all_lanes, row < of.rows && embeds(of, row, id) ? 1 : 0);
        of_warp += __popc(votes[i]);
    }
    if (lane == 0) {
        matches.of_warps[warp] = of_warp;
    }
    __syncthreads();
    int place = 0;
    int total = 0;
    PIPETWIN_UNROLL
    for (int other = 0; other < block_warps; ++other) {
        place += other < warp ? matches.of_warps[other] : 0;
        total += matches.of_warps[other];
    }
    PIPETWIN_UNROLL
    for (int i = 0; i < 4; ++i) {
        const unsigned below = (1U << static_cast<unsigned>(lane)) - 1;
        if ((votes[i] >> static_cast<unsigned>(lane) & 1U) != 0) {
            matches.offsets[place + __popc(votes[i] & below)] =
                4 * warp_lanes * warp + warp_lanes * i + lane;
        }
        place += __popc(votes[i]);
    }
    __syncthreads();
    return total;
}

// to[j ...] += scale from of several rows, one after the other; the loads of four rows are in
// flight.
template <class T, int pack, class RowAt>
__device__ __forceinline__ void add_rows(const T* from,
                                         std::int64_t width,
                                         std::int64_t j,
                                         int count,
                                         RowAt row_at,
                                         float scale,
                                         float* to) {
    Pack<float, pack> sums;
    PIPETWIN_UNROLL
    for (int k = 0; k < pack; ++k) {
        sums.at[k] = to[j + k];
    }
    PIPETWIN_UNROLL_4
    for (int i = 0; i < count; ++i) {
        const Pack<T, pack> values = load_pack<T, pack>(from + row_at(i) * width + j);
        PIPETWIN_UNROLL
        for (int k = 0; k < pack; ++k) {
            sums.at[k] += __fmul_rn(scale, to_float(values.at[k]));
        }
    }
    PIPETWIN_UNROLL
    for (int k = 0; k < pack; ++k) {
        to[j + k] = sums.at[k];
    }
}

// A block per row. The block of the first row of a token adds up all its rows, the others do
// nothing: every row of the table has one writer, and an order.
template <class T, int pack>
__global__ void __launch_bounds__(block_size)
    backward_tokens_kernel(Embedding of, const T* dy, float* dtokens) {
    const std::int64_t first = blockIdx.x;
    const int id = of.ids[first];
    const std::int64_t token_row = row_of_token(of, id);
    if (token_row < 0 || !is_embedded(of, first) || occurs(of, first, id)) {
        return;
    }
    PIPETWIN_SHARED(matches, Matches);
    float* const to = dtokens + token_row * of.width;
    const auto scale = static_cast<float>(of.scale);
    for (std::int64_t begin = first; begin < of.rows; begin += window) {
        const int count = find_matches(of, begin, id, matches);
        const auto row_at = [&](int i) { return begin + matches.offsets[i]; };
        for (std::int64_t j = static_cast<std::int64_t>(threadIdx.x) * pack;
             count > 0 && j < of.width;
             j += block_size * pack) {
            add_rows<T, pack>(dy, of.width, j, count, row_at, scale, to);
        }
    }
}

// A thread per position and pack of columns.
template <class T, int pack>
__global__ void __launch_bounds__(block_size)
    backward_places_kernel(Embedding of, const T* dy, float* dplaces) {
    const std::int64_t packs = of.width / pack;
    const std::int64_t thread = thread_of_grid();
    const std::int64_t position = thread / packs;
    const std::int64_t first_row = of.first + position;
    if (position >= of.count || first_row >= of.rows) {
        return;
    }
    const int count = static_cast<int>((of.rows - first_row - 1) / of.positions + 1);
    const auto row_at = [&](int i) { return first_row + i * of.positions; };
    add_rows<T, pack>(
        dy, of.width, thread % packs * pack, count, row_at, 1.0F, dplaces + position * of.width);
}

template <class T, int pack>
cudaError_t backward(
    const Embedding& of, const T* dy, float* dtokens, float* dplaces, cudaStream_t stream) {
    const cudaError_t error = launch<backward_tokens_kernel<T, pack>>(
        static_cast<unsigned>(of.rows), block_size, 0, stream, of, dy, dtokens);
    if (error != cudaSuccess || dplaces == nullptr) {
        return error;
    }
    const std::int64_t threads = of.count * (of.width / pack);
    return launch<backward_places_kernel<T, pack>>(
        static_cast<unsigned>(ceil_div(threads, block_size)),
        block_size,
        0,
        stream,
        of,
        dy,
        dplaces);
}

}  // namespace

cudaError_t embedding_forward(Real real,
                              const Embedding& embedding,
                              const void* tokens,
                              const void* places,
                              void* y,
                              cudaStream_t stream) {
    if (embedding.rows <= 0 || embedding.count <= 0 || embedding.width <= 0) {
        return cudaSuccess;
    }
    return with_real(real, [=](auto zero) {
        using T = decltype(zero);
        constexpr int pack = pack_size<T>;
        const Forward<T> o{embedding,
                           static_cast<const T*>(tokens),
                           static_cast<const T*>(places),
                           static_cast<T*>(y)};
        const auto grid = static_cast<unsigned>(ceil_div(embedding.rows, block_warps));
        return are_aligned({tokens, places, y}) && embedding.width % pack == 0
                   ? launch<forward_kernel<T, pack>>(grid, block_size, 0, stream, o)
                   : launch<forward_kernel<T, 1>>(grid, block_size, 0, stream, o);
    });
}

cudaError_t embedding_backward(Real real,
                               const Embedding& embedding,
                               const void* dy,
                               float* dtokens,
                               float* dplaces,
                               cudaStream_t stream) {
    if (embedding.rows <= 0 || embedding.count <= 0 || embedding.width <= 0) {
        return cudaSuccess;
    }
    return with_real(real, [=](auto zero) {
        using T = decltype(zero);
        constexpr int pack = pack_size<T>;
        const auto* const from = static_cast<const T*>(dy);
        return are_aligned({dy}) && embedding.width % pack == 0
                   ? backward<T, pack>(embedding, from, dtokens, dplaces, stream)
                   : backward<T, 1>(embedding, from, dtokens, dplaces, stream);
    });
}

namespace {

Embedding embedding_of(const exec::EmbeddingRows& rows, exec::ConstView ids, std::int64_t width) {
    return {.rows = ids.rows,
            .positions = rows.positions,
            .width = width,
            .ids = ids.as<std::int32_t>(),
            .first = rows.first,
            .count = rows.count,
            .scale = rows.scale,
            .first_token = rows.first_token,
            .tokens = rows.tokens};
}

}  // namespace

void CudaKernels::embedding_forward(const exec::EmbeddingRows& rows,
                                    exec::ConstView ids,
                                    exec::ConstView tokens,
                                    exec::ConstView places,
                                    exec::View y) const {
    call("embedding_forward",
         cuda::embedding_forward,
         real_of(y.dtype),
         embedding_of(rows, ids, y.columns),
         tokens.data,
         places.data,
         y.data);
}

void CudaKernels::embedding_backward(const exec::EmbeddingRows& rows,
                                     exec::ConstView ids,
                                     exec::ConstView dy,
                                     exec::View dtokens,
                                     exec::View dplaces) const {
    call("embedding_backward",
         cuda::embedding_backward,
         real_of(dy.dtype),
         embedding_of(rows, ids, dy.columns),
         dy.data,
         dtokens.as<float>(),
         dplaces.as<float>());
}

}  // namespace pipetwin::cuda
