// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "core/base/as_index.h"
#include "core/base/simd_targets.h"
#include "exec/cpu/attention_blocks.h"
#include "exec/cpu/cpu_kernels.h"
#include "exec/cpu/loops.h"
#include "exec/cpu/vector_math.h"

// One head after the other. Nothing right of the diagonal is computed, written or read, but for the
// zeros that products with a tile across the diagonal need there.
namespace pipetwin::exec {
namespace {

/// One sample's head inside qkv.
template <class T>
struct Head {
    Block<T> q;
    Block<T> k;
    Block<T> v;
    std::int64_t positions;
    std::int64_t size;
    double scale;  ///< 1 / sqrt(size)
};

template <class T>
Head<T> head_of(const AttentionShape& shape, T* qkv, std::int64_t sample, std::int64_t head) {
    const std::int64_t size = shape.head_size;
    const std::int64_t stride = shape.qkv_width();
    T* const row = qkv + sample * shape.positions * stride;
    T* const k = row + shape.query_width() + head / shape.group() * size;
    return {.q = {row + head * size, stride},
            .k = {k, stride},
            .v = {k + shape.key_width(), stride},
            .positions = shape.positions,
            .size = size,
            .scale = 1.0 / std::sqrt(static_cast<double>(size))};
}

/// Zeros behind the `count` numbers of a row of `positions`.
template <class T>
PIPETWIN_INLINE void end_row(T* row, std::int64_t count, std::int64_t positions) {
    std::fill(row + count, row + std::min(positions, count + causal_margin), T{});
}

/// Numbers of a row that loops go over, so that they end in no part of a vector: a few more than
/// those up to the diagonal, `count`, of `positions`.
PIPETWIN_INLINE std::size_t whole_vectors(std::size_t count, std::int64_t positions) {
    constexpr auto lanes = static_cast<std::size_t>(causal_margin);
    return std::min(as_index(positions), (count + lanes - 1) / lanes * lanes);
}

/// Scores become probabilities, row by row over columns 0..row; both may be one. Numbers right of
/// the diagonal count as the smallest exponential, which no sum notices.
template <class T>
PIPETWIN_SIMD_TARGETS void causal_softmax(Computed<T>* scores,
                                          T* probabilities,
                                          std::int64_t positions,
                                          Computed<T> scale) {
    using C = Computed<T>;
    for (std::int64_t r = 0; r < positions; ++r) {
        C* const row = scores + r * positions;
        T* const p = probabilities + r * positions;
        const std::size_t count = whole_vectors(as_index(r) + 1, positions);
        std::fill(row + r + 1, row + count, -std::numeric_limits<C>::infinity());
        const C largest = largest_of(row, count);
        PIPETWIN_ELEMENTWISE
        for (std::size_t j = 0; j < count; ++j) {
            row[j] = exponential((row[j] - largest) * scale);
        }
        const C factor = C(1) / sum_of<C>(count, [row](std::size_t j) { return row[j]; });
        PIPETWIN_ELEMENTWISE
        for (std::size_t j = 0; j < count; ++j) {
            p[j] = stored<T>(row[j] * factor);
        }
        end_row(p, r + 1, positions);
    }
}

/// dS = P * (dP - rowsum(dP * P)) scale; dS may be in the place of dP.
template <class T>
PIPETWIN_SIMD_TARGETS void causal_softmax_backward(
    const T* probabilities, Computed<T>* dp, T* ds, std::int64_t positions, Computed<T> scale) {
    using C = Computed<T>;
    for (std::int64_t r = 0; r < positions; ++r) {
        const T* const p = probabilities + r * positions;
        C* const row = dp + r * positions;
        T* const to = ds + r * positions;
        const std::size_t count = whole_vectors(as_index(r) + 1, positions);
        std::fill(row + r + 1, row + count, C(0));
        const C dot = sum_of<C>(count, [=](std::size_t j) { return computed(p[j]) * row[j]; });
        PIPETWIN_ELEMENTWISE
        for (std::size_t j = 0; j < count; ++j) {
            to[j] = stored<T>(computed(p[j]) * (row[j] - dot) * scale);
        }
        end_row(to, r + 1, positions);
    }
}

template <class T>
void head_forward(const Head<const T>& head, T* probabilities, Block<T> context) {
    using C = Computed<T>;
    const std::int64_t positions = head.positions;
    C* const scores = scores_of(probabilities, positions);
    // S = Q K^T
    multiply({positions, positions, head.size},
             head.q.factor(),
             head.k.factor(Transposed::Yes),
             Causal::Result,
             Block<C>{scores, positions});
    causal_softmax(scores, probabilities, positions, static_cast<C>(head.scale));
    // c = P V
    multiply({positions, head.size, positions},
             Block<const T>{probabilities, positions}.factor(),
             head.v.factor(),
             Causal::A,
             context);
}

/// Scratch of a backward.
template <class T>
struct BackwardScratch {
    T* ds = nullptr;                ///< (positions, positions)
    T* dq = nullptr;                ///< (positions, size)
    Computed<T>* dk_sum = nullptr;  ///< (positions, size), of a group of several heads
    Computed<T>* dv_sum = nullptr;  ///< as `dk_sum`
};

/// Turns Q into dQ. `dk` and `dv`, which may be K and V themselves, get what this head adds to
/// them: `adds`, to what is there.
template <class T, class Sum>
void head_backward(const Head<T>& head,
                   const T* probabilities,
                   Block<const T> dcontext,
                   const BackwardScratch<T>& scratch,
                   Block<Sum> dk,
                   Block<Sum> dv,
                   bool adds) {
    using C = Computed<T>;
    const std::int64_t positions = head.positions;
    C* const dp = scores_of(scratch.ds, positions);
    const Block<T> ds{scratch.ds, positions};
    const BlockSizes to_head{positions, head.size, positions};
    // dP = dc V^T, then dS
    multiply({positions, positions, head.size},
             dcontext.factor(),
             head.v.factor(Transposed::Yes),
             Causal::Result,
             Block<C>{dp, positions});
    causal_softmax_backward(probabilities, dp, scratch.ds, positions, static_cast<C>(head.scale));
    // dV = P^T dc; this head does not need V any more
    multiply(to_head,
             Block<const T>{probabilities, positions}.factor(Transposed::Yes),
             dcontext.factor(),
             Causal::ATransposed,
             dv,
             adds);
    // dQ = dS K, beside Q, which is needed for dK
    multiply(to_head, ds.factor(), head.k.factor(), Causal::A, Block<T>{scratch.dq, head.size});
    // dK = dS^T Q
    multiply(to_head, ds.factor(Transposed::Yes), head.q.factor(), Causal::ATransposed, dk, adds);
    for (std::int64_t r = 0; r < positions; ++r) {
        std::copy_n(scratch.dq + r * head.size, head.size, head.q.data + r * head.q.stride);
    }
}

/// Rounds the sums of a group into the place of its keys or values.
template <class T>
void store_sums(const Computed<T>* sums, const Head<T>& head, Block<T> place) {
    for (std::int64_t r = 0; r < head.positions; ++r) {
        for (std::int64_t j = 0; j < head.size; ++j) {
            place.data[r * place.stride + j] = stored<T>(sums[r * head.size + j]);
        }
    }
}

/// The scratch of a backward, in memory of `attention_scratch` bytes.
template <class T>
BackwardScratch<T> scratch_of(const AttentionShape& shape, std::byte* memory) {
    const std::int64_t positions = shape.positions;
    BackwardScratch<T> scratch;
    auto* next = reinterpret_cast<Computed<T>*>(memory);
    if (shape.group() > 1) {
        scratch.dk_sum = next;
        scratch.dv_sum = next + positions * shape.head_size;
        next = scratch.dv_sum + positions * shape.head_size;
    }
    scratch.ds = reinterpret_cast<T*>(next);
    scratch.dq = scratch.ds + positions * positions;
    return scratch;
}

/// Pairs whose sines and cosines are found at a time.
constexpr int pairs_at_once = 64;
/// Positions after which sines and cosines are found anew: between them each follows from the one
/// before, which adds an error of 2e-16 each time.
constexpr int positions_between = 32;

/// Sines and cosines of some pairs at one position after the other, in double.
class RotaryAngles {
  public:
    RotaryAngles(const Rotary& rotary, int begin, int end, int head_size)
        : count_(as_index(end - begin)) {
        for (std::size_t i = 0; i < count_; ++i) {
            frequencies_[i] = rotary_frequency(rotary, begin + static_cast<int>(i), head_size);
            step_cosines_[i] = std::cos(frequencies_[i]);
            step_sines_[i] = std::sin(frequencies_[i]);
        }
    }

    /// Goes to the next position, which is `position`.
    template <class C>
    PIPETWIN_SIMD_TARGETS void advance(int position, double sign, C* cosines, C* sines) {
        if (position % positions_between == 0) {
            for (std::size_t i = 0; i < count_; ++i) {
                cosines_[i] = std::cos(position * frequencies_[i]);
                sines_[i] = std::sin(position * frequencies_[i]);
            }
        } else {
            PIPETWIN_ELEMENTWISE
            for (std::size_t i = 0; i < count_; ++i) {
                const double c = cosines_[i];
                const double s = sines_[i];
                cosines_[i] = c * step_cosines_[i] - s * step_sines_[i];
                sines_[i] = s * step_cosines_[i] + c * step_sines_[i];
            }
        }
        PIPETWIN_ELEMENTWISE
        for (std::size_t i = 0; i < count_; ++i) {
            cosines[i] = static_cast<C>(cosines_[i]);
            sines[i] = static_cast<C>(sign * sines_[i]);
        }
    }

  private:
    std::size_t count_;
    std::array<double, pairs_at_once> frequencies_{};
    std::array<double, pairs_at_once> step_cosines_{};
    std::array<double, pairs_at_once> step_sines_{};
    std::array<double, pairs_at_once> cosines_{};
    std::array<double, pairs_at_once> sines_{};
};

/// Turns pairs `begin` to `end` - 1 of every head that has a position's row: queries and keys stand
/// side by side.
template <class T>
PIPETWIN_SIMD_TARGETS void turn_row(const AttentionShape& shape,
                                    const Computed<T>* cosines,
                                    const Computed<T>* sines,
                                    int begin,
                                    int end,
                                    T* row) {
    const int half = shape.head_size / 2;
    for (int head = 0; head < shape.heads + shape.key_value_heads; ++head) {
        T* const first = row + std::int64_t{head} * shape.head_size + begin;
        T* const second = first + half;
        PIPETWIN_ELEMENTWISE
        for (int i = 0; i < end - begin; ++i) {
            const Computed<T> a = computed(first[i]);
            const Computed<T> b = computed(second[i]);
            first[i] = stored<T>(a * cosines[i] - b * sines[i]);
            second[i] = stored<T>(b * cosines[i] + a * sines[i]);
        }
    }
}

template <class T>
void rotate(const AttentionShape& shape, const Rotary& rotary, Turn turn, T* qkv) {
    const int half = shape.head_size / 2;
    const double sign = turn == Turn::Forward ? 1 : -1;
    std::array<Computed<T>, pairs_at_once> cosines{};
    std::array<Computed<T>, pairs_at_once> sines{};
    for (int begin = 0; begin < half; begin += pairs_at_once) {
        const int end = std::min(half, begin + pairs_at_once);
        RotaryAngles angles(rotary, begin, end, shape.head_size);
        for (int position = 0; position < shape.positions; ++position) {
            angles.advance(position, sign, cosines.data(), sines.data());
            for (int s = 0; s < shape.samples; ++s) {
                T* const row =
                    qkv + (std::int64_t{s} * shape.positions + position) * shape.qkv_width();
                turn_row(shape, cosines.data(), sines.data(), begin, end, row);
            }
        }
    }
}

template <class T>
void attention_forward(const AttentionShape& shape, const T* qkv, T* probabilities, T* context) {
    const std::int64_t positions = shape.positions;
    const std::int64_t width = shape.query_width();
    for (std::int64_t s = 0; s < shape.samples; ++s) {
        for (std::int64_t h = 0; h < shape.heads; ++h) {
            const Head<const T> head = head_of(shape, qkv, s, h);
            head_forward(head,
                         probabilities + (s * shape.heads + h) * positions * positions,
                         Block<T>{context + s * positions * width + h * head.size, width});
        }
    }
}

// A group's keys and values stay until its last head is done: its gradients are summed beside them.
template <class T>
void attention_backward(const AttentionShape& shape,
                        const T* probabilities,
                        const T* dcontext,
                        T* qkv,
                        std::byte* memory) {
    const std::int64_t positions = shape.positions;
    const std::int64_t width = shape.query_width();
    const std::int64_t group = shape.group();
    const BackwardScratch<T> scratch = scratch_of<T>(shape, memory);
    for (std::int64_t s = 0; s < shape.samples; ++s) {
        for (std::int64_t h = 0; h < shape.heads; ++h) {
            const Head<T> head = head_of(shape, qkv, s, h);
            const T* const p = probabilities + (s * shape.heads + h) * positions * positions;
            const Block<const T> dc{dcontext + s * positions * width + h * head.size, width};
            if (group == 1) {
                head_backward(head, p, dc, scratch, head.k, head.v, false);
                continue;
            }
            const Block<Computed<T>> dk{scratch.dk_sum, head.size};
            const Block<Computed<T>> dv{scratch.dv_sum, head.size};
            head_backward(head, p, dc, scratch, dk, dv, h % group != 0);
            if (h % group == group - 1) {
                store_sums(scratch.dk_sum, head, head.k);
                store_sums(scratch.dv_sum, head, head.v);
            }
        }
    }
}

}  // namespace

void CpuKernels::rotate(const AttentionShape& shape,
                        const Rotary& rotary,
                        Turn turn,
                        View qkv) const {
    with_type(qkv.dtype, [&](auto zero) {
        using T = decltype(zero);
        exec::rotate(shape, rotary, turn, qkv.as<T>());
    });
}

void CpuKernels::attention_forward(const AttentionShape& shape,
                                   ConstView qkv,
                                   View softmax,
                                   View context) const {
    with_type(qkv.dtype, [&](auto zero) {
        using T = decltype(zero);
        exec::attention_forward(shape, qkv.as<T>(), softmax.as<T>(), context.as<T>());
    });
}

void CpuKernels::attention_backward(const AttentionShape& shape,
                                    ConstView softmax,
                                    ConstView /*context*/,
                                    ConstView dcontext,
                                    View& qkv,
                                    std::byte* scratch) const {
    with_type(qkv.dtype, [&](auto zero) {
        using T = decltype(zero);
        exec::attention_backward(shape, softmax.as<T>(), dcontext.as<T>(), qkv.as<T>(), scratch);
    });
}

}  // namespace pipetwin::exec
