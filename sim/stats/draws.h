// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "core/base/simd_targets.h"

/// Random numbers that depend on nothing but what they are for: a draw is a function of a seed, a
/// sample and a counter. Integers only, so they are the same bits everywhere.
namespace pipetwin::sim {

/// A bijection on 32 bits in which every bit of the result depends on every bit of x; also for
/// vectors of them. Source: Chris Wellons, hash-prospector, "lowbias32".
template <class Bits>
PIPETWIN_INLINE constexpr void mix(Bits& x) {
    x ^= x >> 16U;
    x *= 0x7feb352dU;
    x ^= x >> 15U;
    x *= 0x846ca68bU;
    x ^= x >> 16U;
}

/// The bits of x after `mix`.
constexpr std::uint32_t mixed(std::uint32_t x) {
    mix(x);
    return x;
}

/// Spreads a counter over all bits.
constexpr std::uint32_t spread(std::uint32_t counter) {
    return counter * 0x9e3779b1U;
}

/// Key of a sample's draws for one purpose: draw n is mixed(spread(n) ^ key).
constexpr std::uint32_t key_of(std::uint64_t seed, std::uint32_t sample, std::uint32_t purpose) {
    const auto low = static_cast<std::uint32_t>(seed);
    const auto high = static_cast<std::uint32_t>(seed >> 32U);
    return mixed(mixed(mixed(mixed(low) + high) + sample) + purpose);
}

/// Numbers between 0 and 1, one after the other.
class Draws {
  public:
    Draws(std::uint64_t seed, std::uint32_t sample)
        : high_(key_of(seed, sample, 2)), low_(key_of(seed, sample, 3)) {}

    /// The next number; never 0 and never 1.
    double uniform() {
        const std::uint32_t counter = spread(++count_);
        constexpr double step = 1.0 / 4294967296.0;
        return (mixed(counter ^ high_) + (mixed(counter ^ low_) + 0.5) * step) * step;
    }

  private:
    std::uint32_t high_;
    std::uint32_t low_;
    std::uint32_t count_ = 0;
};

}  // namespace pipetwin::sim
