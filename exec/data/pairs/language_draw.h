// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <mutex>
#include <vector>

#include "exec/base/random.h"

namespace pipetwin::exec {

/// Draws pairs of several languages, without end. Each draw takes a language with a probability
/// that grows as D^(1/T), where D is the number of its pairs and T the temperature (Arivazhagan et
/// al. 2019, arXiv 1907.05019): T = 1 draws as the data has them, a large T all languages alike.
/// Within a language every pair comes once before one comes again. What draw n gives depends on
/// `random` and n alone.
class LanguageDraw {
  public:
    struct Place {
        std::size_t language = 0;
        std::uint64_t pair = 0;

        bool operator==(const Place&) const = default;
    };

    /// `sizes`: [language], the number of its pairs, at least 1; `temperature` is above 0.
    LanguageDraw(std::vector<std::uint64_t> sizes, double temperature, const RandomStream& random);

    /// [language]: the probability of its being drawn.
    std::vector<double> probabilities() const;

    /// Draws `first` to `first + count - 1`, counted from 0. It takes as long as all draws before
    /// them, unless they follow the last ones that were asked for. Safe from several threads.
    std::vector<Place> draws(std::uint64_t first, std::uint64_t count) const;

  private:
    std::size_t language_of(std::uint64_t draw) const;

    std::vector<std::uint64_t> sizes_;
    std::vector<double> up_to_;  ///< [language]: probability of it or one before it
    RandomStream random_;

    mutable std::mutex mutex_;
    mutable std::uint64_t drawn_ = 0;           ///< draws that `times_` has counted
    mutable std::vector<std::uint64_t> times_;  ///< [language]: how often it was drawn
};

}  // namespace pipetwin::exec
