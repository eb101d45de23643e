// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <cmath>

#include "core/base/as_index.h"
#include "core/base/simd_targets.h"
#include "exec/cpu/cpu_kernels.h"

// Rotary positions (core/model/rotary.h).
namespace pipetwin::exec {
namespace {

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

}  // namespace pipetwin::exec
