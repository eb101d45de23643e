#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

#include "core/base/as_index.h"
#include "core/base/error.h"
#include "core/partition/partition_search.h"

/// Splits by any cost of an interval of layers on a stage that only grows with the interval.
namespace pipetwin {

/// Assumptions that a search makes about cost(stage, first, end) of layers `first` to `end` - 1.
enum class LaterStage {
    NeverCheaper,  ///< cost(s, i, j) <= cost(s + 1, i, j): the same layers cost no less further on
    Any,
};

/// The smallest largest cost, and the first of the splits that have it.
struct IntervalSplit {
    std::int64_t largest = 0;
    std::vector<int> layers_per_stage{};
};

/// The search behind `least_largest` and `least_largest_split`.
///
/// `Cost` is called as cost(stage, first, end) and gives a std::int64_t of any one unit, the same
/// for the same arguments. It never falls when `end` grows or `first` shrinks. It may say
/// `never` (or more) where a stage is not allowed.
template <class Cost>
class IntervalSearch {
  public:
    IntervalSearch(int layers, int stages, const Cost& cost, LaterStage later)
        : layers_(layers), stages_(stages), cost_(cost), later_(later) {
        check_stage_count(stages, layers);
    }

    /// Bisection on the limit. What a probe met makes its steps longer: a split that keeps the
    /// limit has a largest stage of its own, which is a limit that can be kept; and filling every
    /// stage as far as it goes, the limit has to rise at least to the smallest cost that it refused
    /// before any stage can become longer. `never` if there is no split.
    std::int64_t least() const {
        std::int64_t high = even_split();
        std::int64_t low = std::min(every_layer_somewhere(), high);
        while (low < high) {
            const std::int64_t middle = low + (high - low) / 2;
            const Probe probe = fill(middle);
            if (probe.kept) {
                high = probe.bound;
            } else {
                low = std::min(probe.bound, high);
            }
        }
        return high;
    }

    /// Stage sizes of the split that keeps `limit` with each stage in turn as short as possible.
    /// Throws InternalError if no split keeps it.
    std::vector<int> earliest(std::int64_t limit) const {
        const std::vector<char> fits = which_fit(limit);
        PIPETWIN_EXPECT(fits.front() != 0, "no split keeps the limit");
        std::vector<int> sizes;
        int first = 0;
        for (int stage = 0; stage < stages_; ++stage) {
            int next = first + 1;
            while (fits[place(stage + 1, next)] == 0) {
                ++next;
            }
            sizes.push_back(next - first);
            first = next;
        }
        return sizes;
    }

  private:
    struct Probe {
        bool kept = false;
        std::int64_t bound = 0;  ///< kept: the largest stage there is; not: no smaller limit can be
    };

    std::size_t place(int stage, int layer) const {
        return as_index(stage) * as_index(layers_ + 1) + static_cast<std::size_t>(layer);
    }

    std::int64_t even_split() const {
        std::int64_t largest = cost_(0, 0, even_end(0));
        for (int stage = 1; stage < stages_; ++stage) {
            largest = std::max(largest, cost_(stage, even_end(stage - 1), even_end(stage)));
        }
        return std::min(largest, never);
    }

    int even_end(int stage) const {
        return static_cast<int>(std::int64_t{layers_} * (stage + 1) / stages_);
    }

    /// Each layer is on one of the stages, and alone costs no more than with others.
    std::int64_t every_layer_somewhere() const {
        std::int64_t bound = std::numeric_limits<std::int64_t>::min();
        for (int layer = 0; layer < layers_; ++layer) {
            std::int64_t least = cost_(0, layer, layer + 1);
            for (int stage = 1; later_ == LaterStage::Any && stage < stages_; ++stage) {
                least = std::min(least, cost_(stage, layer, layer + 1));
            }
            bound = std::max(bound, least);
        }
        return bound;
    }

    /// Fills each stage as far as the limit lets it, but leaves a layer for each stage behind it.
    ///
    /// Where any split keeps the limit, this one has every boundary as late as any; so if a stage
    /// cannot take even its first layer, no split could have put that layer on this stage or on a
    /// later one, unless later stages may be cheaper: then all boundaries have to be looked at.
    Probe fill(std::int64_t limit) const {
        Probe probe{.kept = true, .bound = std::numeric_limits<std::int64_t>::min()};
        std::int64_t refused = std::numeric_limits<std::int64_t>::max();
        int first = 0;
        for (int stage = 0; stage < stages_; ++stage) {
            const int most = layers_ - (stages_ - 1 - stage);
            const bool is_last = stage + 1 == stages_;
            int end = is_last ? most : first + 1;
            std::int64_t cost = cost_(stage, first, end);
            if (cost > limit) {
                if (later_ == LaterStage::Any && !is_last) {
                    const bool kept = which_fit(limit).front() != 0;
                    return {.kept = kept, .bound = kept ? limit : limit + 1};
                }
                return {.kept = false, .bound = std::min(refused, cost)};
            }
            for (int beyond = most + 1; beyond - end > 1;) {
                const int middle = end + (beyond - end) / 2;
                const std::int64_t longer = cost_(stage, first, middle);
                if (longer <= limit) {
                    end = middle;
                    cost = longer;
                } else {
                    beyond = middle;
                    refused = std::min(refused, longer);
                }
            }
            probe.bound = std::max(probe.bound, cost);
            first = end;
        }
        return probe;
    }

    /// [stage][layer]: whether the layers from this one on fit into the stages from this one on. A
    /// stage needs to look at the nearest boundary only from which the rest fits: any other makes
    /// it longer.
    std::vector<char> which_fit(std::int64_t limit) const {
        std::vector<char> fits(place(stages_, layers_) + 1, 0);
        fits.back() = 1;
        for (int stage = stages_; stage-- > 0;) {
            int next = layers_ + 1;  // none yet
            for (int first = layers_ - (stages_ - stage) + 1; first-- > 0;) {
                next = fits[place(stage + 1, first + 1)] != 0 ? first + 1 : next;
                fits[place(stage, first)] =
                    static_cast<char>(next <= layers_ && cost_(stage, first, next) <= limit);
            }
        }
        return fits;
    }

    int layers_;
    int stages_;
    const Cost& cost_;
    LaterStage later_;
};

/// The least that the largest of cost(stage, first, end) can be, over all splits of `layers` layers
/// into exactly `stages` stages, none empty. See `IntervalSearch` for what a cost must be.
///
/// Exact. Throws Error(Infeasible), naming both numbers, if there are fewer layers than stages;
/// gives `never` if every split has a stage that costs as much. Some 10 to 40 probes
/// of O(stages * log(layers)) costs each; with `LaterStage::Any` a probe that meets a stage without
/// room for a layer computes O(stages * layers) costs.
template <class Cost>
std::int64_t least_largest(int layers, int stages, const Cost& cost, LaterStage later) {
    return IntervalSearch<Cost>(layers, stages, cost, later).least();
}

/// As `least_largest`, with the split: of several best ones the lexicographically smallest list of
/// sizes, so that it is unique. The list is empty if the largest is `never`.
template <class Cost>
IntervalSplit least_largest_split(int layers, int stages, const Cost& cost, LaterStage later) {
    const IntervalSearch<Cost> search(layers, stages, cost, later);
    IntervalSplit split{.largest = search.least()};
    if (split.largest < never) {
        split.layers_per_stage = search.earliest(split.largest);
    }
    return split;
}

}  // namespace pipetwin
