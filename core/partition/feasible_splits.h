#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/base/as_index.h"

namespace pipetwin {

/// Conclusion from a stage that does not fit about longer ones with the same first layer.
enum class LongerStage {
    NeverFits,
    MayFit,
};

/// Continuation of a walk over splits.
enum class Walk {
    Into,  ///< on to the splits that begin like this one
    Past,  ///< none of those
    Stop,
};

/// Every split of a chain into exactly `stages` stages, none empty, of which each satisfies a
/// condition of its own. Dead ends are known beforehand: a table tells from which layer on the
/// stages behind can still be completed.
class FeasibleSplits {
  public:
    /// `feasible(stage, first, end)` is asked about layers `first` to `end` - 1, at most once for
    /// each, and only where the layers from `end` on can be completed. Throws Error(Infeasible),
    /// naming both numbers, if there are fewer layers than stages. O(stages * layers^2) questions,
    /// or as many as are said yes to where a longer stage `NeverFits`; as many bits.
    template <class Feasible>
    FeasibleSplits(int layers, int stages, const Feasible& feasible, LongerStage longer)
        : FeasibleSplits(layers, stages) {
        for (int stage = stages_; stage-- > 0;) {
            for (int first = stage; first <= last_first_of(stage); ++first) {
                for (int end = first + 1; end <= layers_; ++end) {
                    if (count_from(stage + 1, end) == 0) {
                        continue;
                    }
                    if (feasible(stage, first, end)) {
                        allow(stage, first, end);
                    } else if (longer == LongerStage::NeverFits) {
                        break;
                    }
                }
            }
        }
    }

    /// Number of feasible splits; the largest std::uint64_t stands for "at least as many".
    std::uint64_t count() const { return count_from(0, 0); }

    /// In how many ways the layers from `first` on can be split over the stages from `stage` on; 0
    /// is a dead end, the largest std::uint64_t as in `count`.
    std::uint64_t count_from(int stage, int first) const { return counts_[place(stage, first)]; }

    /// Whether the stage may hold these layers and the layers behind them can be completed.
    bool allows(int stage, int first, int end) const {
        const std::size_t bit = as_index(end);
        return ((row(stage, first)[bit / 64] >> (bit % 64)) & 1U) != 0;
    }

    /// Calls visit(std::span<const int> sizes) -> Walk with each beginning of a split, one stage or
    /// more, and with each whole split (as many sizes as stages), in lexicographic order: depth
    /// first, shorter stages before longer ones. Nothing is visited that cannot be completed.
    /// Returns false if a visit said `Stop`.
    template <class Visit>
    bool walk(const Visit& visit) const {
        std::vector<int> sizes;
        sizes.reserve(as_index(stages_));
        return count() == 0 || walk_from(0, sizes, visit);
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
    bool walk_from(int first, std::vector<int>& sizes, const Visit& visit) const {
        const int stage = static_cast<int>(sizes.size());
        if (stage == stages_) {
            return true;
        }
        for (int end = first + 1; end <= layers_; ++end) {
            if (!allows(stage, first, end)) {
                continue;
            }
            sizes.push_back(end - first);
            const Walk how = visit(std::span<const int>(sizes));
            const bool goes_on =
                how == Walk::Past || (how == Walk::Into && walk_from(end, sizes, visit));
            sizes.pop_back();
            if (!goes_on) {
                return false;
            }
        }
        return true;
    }

    int layers_;
    int stages_;
    std::size_t words_;                  ///< of a row
    std::vector<std::uint64_t> counts_;  ///< [stage][first layer]
    std::vector<std::uint64_t> ends_;    ///< [stage][first layer]: bit `end`
};

}  // namespace pipetwin
