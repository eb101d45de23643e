// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "exec/base/random.h"

namespace pipetwin::exec {

/// A random order of the numbers 0 .. count-1 that needs no memory: place n holds `at(n)`. A
/// Feistel network on the next power of four, walked until it comes back into the range (Black and
/// Rogaway, "Ciphers with arbitrary finite domains", CT-RSA 2002).
class Shuffle {
  public:
    Shuffle(const RandomStream& random, std::uint64_t count) : random_(random), count_(count) {
        while (half_bits_ < 32U && (std::uint64_t{1} << (2 * half_bits_)) < count) {
            ++half_bits_;
        }
    }

    /// The number at place `n`, which is below the count. Takes two steps on average.
    std::uint64_t at(std::uint64_t n) const {
        do {
            n = once(n);
        } while (n >= count_);
        return n;
    }

  private:
    std::uint64_t once(std::uint64_t n) const {
        const std::uint64_t mask = (std::uint64_t{1} << half_bits_) - 1;
        std::uint64_t left = n >> half_bits_;
        std::uint64_t right = n & mask;
        for (std::uint64_t round = 0; round < rounds; ++round) {
            const std::uint64_t mixed = left ^ (random_.of(round).bits(right) & mask);
            left = right;
            right = mixed;
        }
        return left << half_bits_ | right;
    }

    static constexpr std::uint64_t rounds = 6;
    RandomStream random_;
    std::uint64_t count_;
    unsigned half_bits_ = 1;
};

}  // namespace pipetwin::exec
