// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>

/// Counter-based random numbers: the n-th number of a stream is a function of (key, n) and of
/// nothing drawn before, so it depends neither on the order of drawing nor on how a model is cut
/// into stages.
namespace pipetwin::exec {

/// Mixes 64 bits well (the finaliser of SplitMix64; Steele, Lea, Flood: Fast splittable
/// pseudorandom number generators).
constexpr std::uint64_t mix(std::uint64_t x) {
    x = (x ^ (x >> 30U)) * 0xbf58476d1ce4e5b9U;
    x = (x ^ (x >> 27U)) * 0x94d049bb133111ebU;
    return x ^ (x >> 31U);
}

/// A stream of random numbers, named by what it is for:
/// `RandomStream(seed).of(layer).of(parameter)`.
class RandomStream {
  public:
    constexpr explicit RandomStream(std::uint64_t seed) : key_(mix(seed + golden)) {}

    /// What tells this stream from every other; `with_key` makes it again.
    constexpr std::uint64_t key() const { return key_; }
    /// The stream whose `key()` this is.
    static constexpr RandomStream with_key(std::uint64_t key) {
        RandomStream stream(0);
        stream.key_ = key;
        return stream;
    }

    /// The independent stream number `index` beneath this one.
    constexpr RandomStream of(std::uint64_t index) const {
        RandomStream stream(0);
        stream.key_ = mix(key_ ^ mix(index + golden));
        return stream;
    }

    /// The n-th number, 64 random bits.
    constexpr std::uint64_t bits(std::uint64_t n) const { return mix(key_ + (n + 1) * golden); }

    /// In [0, 1), 53 random bits.
    constexpr double uniform(std::uint64_t n) const {
        return static_cast<double>(bits(n) >> 11U) * 0x1p-53;
    }

    /// In [0, below), by multiplication: the bias is below 2^-32 for every range an int can tell.
    constexpr std::uint64_t below(std::uint64_t n, std::uint64_t limit) const {
        return ((bits(n) >> 32U) * limit) >> 32U;
    }

    /// Standard normal, element n of the stream (Box and Muller: elements 2k and 2k+1 share two
    /// uniform numbers).
    double normal(std::uint64_t n) const;

  private:
    static constexpr std::uint64_t golden = 0x9e3779b97f4a7c15U;
    std::uint64_t key_ = 0;
};

}  // namespace pipetwin::exec
