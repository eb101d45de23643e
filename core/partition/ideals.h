// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "core/base/as_index.h"

namespace pipetwin {

class Model;

/// The ideals (down-sets) of a model's graph: sets of layers that hold with each layer all that it
/// reads. In ascending size, and among those of one size in the lexicographic order of their
/// layers; the first is empty, the last holds all. What runs in front of a boundary is an ideal,
/// and every ideal can be in front of one.
class Ideals {
  public:
    /// All ideals of the model's graph; none if there are more than `most`, where it stops.
    ///
    /// Layers are in topological order, so an ideal without its last layer is an ideal again: each
    /// is made once, by adding a layer behind all of a smaller one's.
    static std::optional<Ideals> of(const Model& model, int most);

    int count() const { return static_cast<int>(sizes_.size()); }
    /// Number of layers in an ideal.
    int size(int ideal) const { return sizes_[as_index(ideal)]; }
    /// True if the layer is in the ideal.
    bool holds(int ideal, int layer) const {
        const std::size_t bit = as_index(layer);
        return ((words_[place(ideal) + bit / 64] >> (bit % 64)) & 1U) != 0;
    }
    /// True if all layers of `ideal` are in `of`.
    bool is_subset(int ideal, int of) const {
        std::uint64_t missing = 0;
        for (std::size_t word = 0; word < words_per_ideal_; ++word) {
            missing |= words_[place(ideal) + word] & ~words_[place(of) + word];
        }
        return missing == 0;
    }

  private:
    explicit Ideals(int layers) : words_per_ideal_(as_index(layers) / 64 + 1) {}

    std::size_t place(int ideal) const { return as_index(ideal) * words_per_ideal_; }
    /// The ideal and one more layer.
    void append(int ideal, int layer);

    std::size_t words_per_ideal_;
    std::vector<std::uint64_t> words_;  ///< [ideal][word]
    std::vector<int> sizes_;            ///< [ideal]
};

}  // namespace pipetwin
