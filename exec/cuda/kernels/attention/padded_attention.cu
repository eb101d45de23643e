#include <algorithm>
#include <cfloat>
#include <cmath>
#include <limits>

#include "exec/cuda/kernels/attention/padded_attention.h"
#include "exec/cuda/kernels/dispatch.h"

// Three kernels, each with a warp for a row of a head. Two find a row of P or of dS: a lane takes
// every 32nd key. The third, which makes the context, dQ, dK and dV, sums up rows in their order: a
// lane takes every 32nd column. No tile is kept in shared memory: sentences are short beside the
// width of a model, so the products before and behind the attention take most of the time.
namespace pipetwin::cuda {
namespace {

/// Rows of a sample's head, one behind the other in a matrix.
template <class T>
struct HeadRows {
    T* data;              ///< the first row of the first sample, in the columns of the first head
    std::int64_t stride;  ///< numbers from one row to the next
    std::int64_t rows;    ///< of a sample

    __device__ T* row(std::int64_t sample, std::int64_t column, std::int64_t r) const {
        return data + (sample * rows + r) * stride + column;
    }
};

/// One of the rows of all heads; heads are counted sample by sample.
struct RowPlace {
    std::int64_t head;  ///< of samples * heads
    std::int64_t sample;
    std::int64_t column;  ///< the first of the head
    std::int64_t row;     ///< of the head
};

__device__ inline RowPlace place_of(std::int64_t index,
                                    const PaddedAttentionShape& shape,
                                    std::int64_t rows) {
    const std::int64_t head = index / rows;
    const std::int64_t sample = head / shape.heads;
    return {head, sample, (head - sample * shape.heads) * shape.head_size, index - head * rows};
}

/// What a row of P, or of dS, is made of.
template <class T>
struct Scores {
    std::int64_t rows;  ///< samples * heads * positions
    PaddedAttentionShape shape;
    HeadRows<const T> queries;  ///< Q, or dcontext
    HeadRows<const T> keys;     ///< K, or V
    const std::int32_t* lengths;
    float scale;             ///< 1 / sqrt(head_size)
    const T* probabilities;  ///< P, where dS is made
    T* to;                   ///< P, or dS
};

template <class T>
__device__ __forceinline__ float dot(const T* a, const T* b, std::int64_t size) {
    float sum = 0;
    for (std::int64_t c = 0; c < size; ++c) {
        sum = fmaf(to_float(a[c]), to_float(b[c]), sum);
    }
    return sum;
}

/// Calls f(j, product of the warp's query with key j) for the keys of a lane.
template <class T, class F>
__device__ __forceinline__ void for_each_key(const Scores<T>& o, const RowPlace& at, const F& f) {
    const T* const query = o.queries.row(at.sample, at.column, at.row);
    const int keys = o.lengths[at.sample];
    for (int j = static_cast<int>(threadIdx.x) % warp_lanes; j < keys; j += warp_lanes) {
        f(j, dot(query, o.keys.row(at.sample, at.column, j), o.shape.head_size));
    }
}

// P = exp(S - largest) / sum, S = scale Q K^T. Products are made twice: to keep them would take
// memory for all keys.
template <class T>
__global__ void __launch_bounds__(row_block) probabilities_kernel(Scores<T> o) {
    const std::int64_t index = row_of_thread<warp_lanes>();
    if (index >= o.rows) {  // a whole warp
        return;
    }
    const RowPlace at = place_of(index, o.shape, o.shape.positions);
    float own_largest = -FLT_MAX;
    float own_sum = 0;
    for_each_key(o, at, [&](int, float product) {
        const float score = product * o.scale;
        const float now = fmaxf(own_largest, score);
        own_sum = own_sum * expf(own_largest - now) + expf(score - now);
        own_largest = now;
    });
    const float largest = warp_max(own_largest);
    const float factor = 1 / warp_sum(own_sum * expf(own_largest - largest));
    T* const to = o.to + index * o.shape.key_positions;
    for_each_key(o, at, [&](int j, float product) {
        to[j] = from_float<T>(expf(product * o.scale - largest) * factor);
    });
}

// dS = P * (dP - rowsum(P * dP)) scale, dP = dcontext V^T.
template <class T>
__global__ void __launch_bounds__(row_block) score_gradients_kernel(Scores<T> o) {
    const std::int64_t index = row_of_thread<warp_lanes>();
    if (index >= o.rows) {  // a whole warp
        return;
    }
    const RowPlace at = place_of(index, o.shape, o.shape.positions);
    const T* const p = o.probabilities + index * o.shape.key_positions;
    float own_sum = 0;
    for_each_key(
        o, at, [&](int j, float product) { own_sum = fmaf(to_float(p[j]), product, own_sum); });
    const float sum = warp_sum(own_sum);
    T* const to = o.to + index * o.shape.key_positions;
    for_each_key(o, at, [&](int j, float product) {
        to[j] = from_float<T>(to_float(p[j]) * (product - sum) * o.scale);
    });
}

/// What is summed up: a row for each query, of keys' rows, or the reverse.
enum class RowsOf : std::uint8_t { Queries, Keys };

template <class T>
struct RowSums {
    std::int64_t rows;  ///< of all heads that are written
    PaddedAttentionShape shape;
    const T* weights;  ///< P, or dS
    HeadRows<const T> x;
    const std::int32_t* lengths;
    HeadRows<T> y;
};

// y = W x for each query over the keys before the sample's length, or y = W^T x for each of these
// keys over all queries, and 0 for the others.
template <class T, RowsOf of>
__global__ void __launch_bounds__(row_block) row_sums_kernel(RowSums<T> o) {
    const std::int64_t index = row_of_thread<warp_lanes>();
    if (index >= o.rows) {  // a whole warp
        return;
    }
    const RowPlace at = place_of(index, o.shape, o.y.rows);
    const std::int64_t keys = o.shape.key_positions;
    const T* const weights = o.weights + at.head * o.shape.positions * keys +
                             (of == RowsOf::Queries ? at.row * keys : at.row);
    const std::int64_t weight_stride = of == RowsOf::Queries ? 1 : keys;
    const std::int64_t length = o.lengths[at.sample];
    const std::int64_t all = of == RowsOf::Queries ? length
                             : at.row < length     ? o.shape.positions
                                                   : 0;
    T* const y = o.y.row(at.sample, at.column, at.row);
    for (std::int64_t c = threadIdx.x % warp_lanes; c < o.shape.head_size; c += warp_lanes) {
        const T* const x = o.x.row(at.sample, at.column + c, 0);
        float sum = 0;
        PIPETWIN_UNROLL_4
        for (std::int64_t i = 0; i < all; ++i) {
            sum = fmaf(to_float(weights[i * weight_stride]), to_float(x[i * o.x.stride]), sum);
        }
        y[c] = from_float<T>(sum);
    }
}

/// The attention with its operands' type.
template <class T>
class Padded {
  public:
    Padded(const PaddedAttention& attention, cudaStream_t stream)
        : of_(attention), stream_(stream) {}

    const PaddedAttentionShape& shape() const { return of_.shape; }
    HeadRows<const T> q() const { return queries(static_cast<const T*>(of_.q), of_.q_stride); }
    HeadRows<const T> k() const { return keys(static_cast<const T*>(of_.k)); }
    HeadRows<const T> v() const { return keys(static_cast<const T*>(of_.k) + shape().width()); }
    /// Rows of queries in a matrix.
    template <class Number>
    HeadRows<Number> queries(Number* data, std::int64_t stride) const {
        return {data, stride, shape().positions};
    }
    /// Rows of the context, or of what else has its shape.
    template <class Number>
    HeadRows<Number> context(Number* data) const {
        return queries(data, shape().width());
    }
    /// Rows of keys, values or their gradients.
    template <class Number>
    HeadRows<Number> keys(Number* data) const {
        return {data, of_.k_stride, shape().key_positions};
    }

    template <auto kernel>
    cudaError_t scores(HeadRows<const T> left, HeadRows<const T> right, const T* p, T* to) const {
        const auto scale =
            static_cast<float>(1 / std::sqrt(static_cast<double>(shape().head_size)));
        const Scores<T> o{
            rows_of(shape().positions), shape(), left, right, of_.lengths, scale, p, to};
        return launch_rows<kernel, warp_lanes>(o, stream_);
    }

    template <RowsOf of>
    cudaError_t sums(const T* weights, HeadRows<const T> x, HeadRows<T> y) const {
        const RowSums<T> o{rows_of(y.rows), shape(), weights, x, of_.lengths, y};
        return launch_rows<row_sums_kernel<T, of>, warp_lanes>(o, stream_);
    }

  private:
    std::int64_t rows_of(std::int64_t rows) const { return shape().samples * shape().heads * rows; }

    PaddedAttention of_;
    cudaStream_t stream_;
};

template <class T>
cudaError_t forward(const Padded<T>& call, T* p, T* context) {
    const cudaError_t error =
        call.template scores<probabilities_kernel<T>>(call.q(), call.k(), nullptr, p);
    return error == cudaSuccess
               ? call.template sums<RowsOf::Queries>(p, call.v(), call.context(context))
               : error;
}

// dV takes the place of V once dS is there, and dK that of K once dQ is there.
template <class T>
cudaError_t gradients(
    const Padded<T>& call, const T* p, HeadRows<const T> dc, T* dk, T* ds, T* dq) {
    T* const dv = dk + call.shape().width();
    cudaError_t error = call.template scores<score_gradients_kernel<T>>(dc, call.v(), p, ds);
    if (error == cudaSuccess) {
        error = call.template sums<RowsOf::Keys>(p, dc, call.keys(dv));
    }
    if (error == cudaSuccess) {
        error = call.template sums<RowsOf::Queries>(ds, call.k(), call.context(dq));
    }
    return error == cudaSuccess ? call.template sums<RowsOf::Keys>(ds, call.q(), call.keys(dk))
                                : error;
}

bool accepted(const PaddedAttentionShape& shape) {
    if (shape.samples < 0 || shape.positions < 0 || shape.key_positions < 0 || shape.heads < 1 ||
        shape.head_size < 1) {
        return false;
    }
    // A grid has at most 2^31 - 1 blocks.
    constexpr std::int64_t most = std::numeric_limits<int>::max();
    const std::int64_t heads = shape.samples * shape.heads;
    return heads <= most && std::max(shape.positions, shape.key_positions) <=
                                most / std::max<std::int64_t>(heads, 1);
}

bool empty(const PaddedAttentionShape& shape) {
    return shape.samples == 0 || shape.positions == 0 || shape.key_positions == 0;
}

}  // namespace

cudaError_t padded_attention_forward(Real real,
                                     const PaddedAttention& attention,
                                     void* probabilities,
                                     void* context,
                                     cudaStream_t stream) {
    if (!accepted(attention.shape)) {
        return cudaErrorInvalidValue;
    }
    if (empty(attention.shape)) {
        return cudaSuccess;
    }
    return with_real(real, [=](auto zero) {
        using T = decltype(zero);
        return forward(
            Padded<T>(attention, stream), static_cast<T*>(probabilities), static_cast<T*>(context));
    });
}

cudaError_t padded_attention_backward(Real real,
                                      const PaddedAttention& attention,
                                      const void* probabilities,
                                      const void* dcontext,
                                      void* dq,
                                      void* dk,
                                      void* scratch,
                                      cudaStream_t stream) {
    const PaddedAttentionShape& shape = attention.shape;
    if (!accepted(shape)) {
        return cudaErrorInvalidValue;
    }
    if (empty(shape)) {
        return cudaSuccess;
    }
    return with_real(real, [=](auto zero) {
        using T = decltype(zero);
        const Padded<T> call(attention, stream);
        T* const ds = static_cast<T*>(scratch);
        T* const dq_beside_q = ds + shape.scores();
        const cudaError_t error = gradients(call,
                                            static_cast<const T*>(probabilities),
                                            call.context(static_cast<const T*>(dcontext)),
                                            static_cast<T*>(dk),
                                            ds,
                                            dq_beside_q);
        ColumnCopy copy;
        copy.rows = shape.samples * shape.positions;
        copy.columns = shape.width();
        copy.x_width = shape.width();
        copy.y_width = attention.q_stride;
        return error == cudaSuccess ? copy_columns(real, copy, dq_beside_q, dq, stream) : error;
    });
}

}  // namespace pipetwin::cuda
