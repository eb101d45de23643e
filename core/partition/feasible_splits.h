// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/base/as_index.h"

namespace pipetwin {

/// Every split of a chain into exactly `stages` stages, none empty, of which each satisfies a
/// condition of its own. Dead ends are known beforehand: a table tells from which layer on the
/// stages behind can still be completed.
class FeasibleSplits {
  public:
    /// `feasible(stage, first, end)` is asked about layers `first` to `end` - 1, at most once for
    /// each, and only where the layers from `end` on can be completed; where it says no, it would
    /// say no to every longer stage that begins there. Throws Error(Infeasible), naming both
    /// numbers, if there are fewer layers than stages. As many questions as are said yes to, and
    /// O(stages * layers); as many bits.
    template <class Feasible>
    FeasibleSplits(int layers, int stages, const Feasible& feasible)
        : FeasibleSplits(layers, stages) {
        for (int stage = stages_; stage-- > 0;) {
            for (int first = stage; first <= last_first_of(stage); ++first) {
                for (int end = first + 1; end <= layers_; ++end) {
                    if (count_from(stage + 1, end) == 0) {
                        continue;
                    }
                    if (!feasible(stage, first, end)) {
                        break;
                    }
                    allow(stage, first, end);
                }
            }
        }
    }

    /// How many there are; the largest std::uint64_t stands for "at least as many".
    std::uint64_t count() const { return count_from(0, 0); }

    /// In how many ways the layers from `first` on can be split over the stages from `stage` on; 0
    /// is a dead end, the largest std::uint64_t as in `count`.
    std::uint64_t count_from(int stage, int first) const { return counts_[place(stage, first)]; }

    /// Whether the stage may hold these layers and the layers behind them can be completed.
    bool allows(int stage, int first, int end) const {
        const std::size_t bit = as_index(end);
        return ((row(stage, first)[bit / 64] >> (bit % 64)) & 1U) != 0;
    }

    /// Calls visit(std::span<const int> sizes) with each split, in lexicographic order. Nothing is
    /// tried that cannot be completed.
    template <class Visit>
    void for_each(const Visit& visit) const {
        std::vector<int> sizes;
        sizes.reserve(as_index(stages_));
        if (count() > 0) {
            visit_from(0, sizes, visit);
        }
    }

  private:
    FeasibleSplits(int layers, int stages);

    std::size_t place(int stage, int layer) const {
        return as_index(stage) * as_index(layers_ + 1) + static_cast<std::size_t>(layer);
    }
    /// Before a stage there is a layer for each stage, and before stage 0 there is nothing.
    int last_first_of(int stage) const { return stage == 0 ? 0 : layers_ - (stages_ - stage); }
    const std::uint64_t* row(int stage, int first) const {
        return ends_.data() + place(stage, first) * words_;
    }
    void allow(int stage, int first, int end);

    template <class Visit>
    void visit_from(int first, std::vector<int>& sizes, const Visit& visit) const {
        const int stage = static_cast<int>(sizes.size());
        if (stage == stages_) {
            visit(std::span<const int>(sizes));
            return;
        }
        for (int end = first + 1; end <= layers_; ++end) {
            if (allows(stage, first, end)) {
                sizes.push_back(end - first);
                visit_from(end, sizes, visit);
                sizes.pop_back();
            }
        }
    }

    int layers_;
    int stages_;
    std::size_t words_;                  ///< of a row
    std::vector<std::uint64_t> counts_;  ///< [stage][first layer]
    std::vector<std::uint64_t> ends_;    ///< [stage][first layer]: bit `end`
};

}  // namespace pipetwin
