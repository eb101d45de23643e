#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

#include "core/base/as_index.h"
#include "core/base/error.h"
#include "core/partition/partition_search.h"

namespace pipetwin {

/// Dynamic programming over stages and boundaries, for costs that need not grow with the stage.
///
/// `Costs` has layers(), stages(), most() (no cost is above it but `never`) and row(stage, first),
/// whose result has
///
///     cost(end)    of layers first to end - 1, or `never` where that is not allowed
///     least(end)   at most cost(end); never falls when `end` grows or `first` shrinks
///
/// The last is what keeps the table small. Under a limit on the cost of a stage a boundary can be
/// neither too early nor too late, and a stage not too long:
///
///     boundary 1          |--------|
///     boundary 2                  |-----------|
///     boundary 3                           |---------|
///              layer 0 ............................................ layers
///
/// so that with many stages, and a limit near the best, few cells are left.
template <class Costs>
class SplitTable {
  public:
    explicit SplitTable(const Costs& costs)
        : costs_(costs),
          layers_(costs.layers()),
          stages_(costs.stages()),
          boundaries_(as_index(stages_) + 1),
          cells_(boundaries_.size() * as_index(layers_ + 1)) {}

    /// A lower bound of the largest stage: the smallest limit, 0 or more, that leaves a place for
    /// every boundary as far as `least` tells; `never` if there is none.
    std::int64_t lower_bound() {
        const auto leaves_places = [this](std::int64_t limit) { return narrow(limit); };
        const std::int64_t most = costs_.most();
        return leaves_places(most) ? smallest_limit(most, leaves_places) : never;
    }

    /// The smallest largest stage, if it is at most `limit`; `never` if not.
    ///
    ///     best[K][L] = nothing
    ///     best[s][i] = min over j > i of max(cost(s, i, j), best[s + 1][j])
    ///
    /// Source: linear partition problem.
    std::int64_t fill_largest(std::int64_t limit) {
        if (!narrow(limit)) {
            return never;
        }
        cell(stages_, layers_) = std::numeric_limits<std::int64_t>::min();
        for (int stage = stages_; stage-- > 0;) {
            for (int first = boundary(stage).earliest; first <= boundary(stage).latest; ++first) {
                cell(stage, first) = least_of_largest(stage, first, limit);
            }
        }
        return cell(0, 0);
    }

    /// The smallest sum of all stages of which none is above `limit`; `never` if there is none.
    ///
    ///     sum[K][L] = 0
    ///     sum[s][i] = min over j > i with cost(s, i, j) <= limit of cost(s, i, j) + sum[s + 1][j]
    std::int64_t fill_sum(std::int64_t limit) {
        if (!narrow(limit)) {
            return never;
        }
        cell(stages_, layers_) = 0;
        for (int stage = stages_; stage-- > 0;) {
            for (int first = boundary(stage).earliest; first <= boundary(stage).latest; ++first) {
                cell(stage, first) = least_of_sums(stage, first, limit);
            }
        }
        return cell(0, 0);
    }

    /// Stage sizes of the split that `fill_largest` found, with each stage in turn as short as
    /// possible. `largest` is what it returned.
    std::vector<int> earliest_of_largest(std::int64_t largest) const {
        return earliest([&](int, int, std::int64_t cost, std::int64_t rest) {
            return cost <= largest && rest <= largest;
        });
    }

    /// Stage sizes of the split that `fill_sum` found for this limit, with each stage in turn as
    /// short as possible.
    std::vector<int> earliest_of_sums(std::int64_t limit) const {
        return earliest([&](int stage, int first, std::int64_t cost, std::int64_t rest) {
            return cost <= limit && rest < never && cost + rest == cell(stage, first);
        });
    }

  private:
    /// Range of a boundary: of the one before the stage of its number.
    struct Place {
        int earliest = 0;
        int latest = 0;
    };

    const Place& boundary(int stage) const { return boundaries_[as_index(stage)]; }
    std::int64_t& cell(int stage, int layer) { return cells_[place(stage, layer)]; }
    std::int64_t cell(int stage, int layer) const { return cells_[place(stage, layer)]; }
    std::size_t place(int stage, int layer) const {
        return as_index(stage) * as_index(layers_ + 1) + static_cast<std::size_t>(layer);
    }

    /// Filling from the front what `least` lets a stage hold gives the latest places, from the back
    /// the earliest. A stage without room for its first layer leaves the boundary where it is: the
    /// layer then has to be part of a stage that begins earlier, or there is no split.
    bool narrow(std::int64_t limit) {
        boundaries_.front() = {0, 0};
        boundaries_.back() = {layers_, layers_};
        for (int stage = 0; stage + 1 < stages_; ++stage) {
            const int from = boundary(stage).latest;
            const auto row = costs_.row(stage, from);
            const int most = layers_ - (stages_ - 1 - stage);
            boundaries_[as_index(stage) + 1].latest =
                last_that(from, most, [&](int end) { return row.least(end) <= limit; });
        }
        for (int stage = stages_ - 1; stage > 0; --stage) {
            const int to = boundary(stage + 1).earliest;
            const int earliest = to - last_that(0, to - stage, [&](int size) {
                                     return costs_.row(stage, to - size).least(to) <= limit;
                                 });
            boundaries_[as_index(stage)].earliest = earliest;
            if (earliest > boundary(stage).latest) {
                return false;
            }
        }
        return costs_.row(0, 0).least(boundary(1).earliest) <= limit;
    }

    /// The last of `from`, `from` + 1, ... `most` that it says yes to; it is not asked about
    /// `from`, and says no after the first no.
    template <class Says>
    static int last_that(int from, int most, Says says) {
        int beyond = most + 1;
        while (beyond - from > 1) {
            const int middle = from + (beyond - from) / 2;
            if (says(middle)) {
                from = middle;
            } else {
                beyond = middle;
            }
        }
        return from;
    }

    /// Calls take(cost of the stage, value of the rest behind it) for every end that keeps `limit`
    /// and whose rest is worth it. `limit` may fall meanwhile.
    template <class Worth, class Take>
    void for_each_end(
        int stage, int first, const std::int64_t& limit, Worth worth, Take take) const {
        const auto row = costs_.row(stage, first);
        const Place& next = boundary(stage + 1);
        const std::int64_t* const rests = &cells_[place(stage + 1, 0)];
        for (int end = std::max(first + 1, next.earliest); end <= next.latest; ++end) {
            if (row.least(end) > limit) {
                break;
            }
            if (!worth(rests[end])) {
                continue;
            }
            const std::int64_t cost = row.cost(end);
            if (cost <= limit) {
                take(cost, rests[end]);
            }
        }
    }

    std::int64_t least_of_largest(int stage, int first, std::int64_t limit) const {
        std::int64_t best = never;
        const auto worth = [&limit](std::int64_t rest) { return rest <= limit; };
        for_each_end(stage, first, limit, worth, [&](std::int64_t cost, std::int64_t rest) {
            best = std::max(cost, rest);
            limit = best - 1;  // only a better one is of interest
        });
        return best;
    }

    std::int64_t least_of_sums(int stage, int first, std::int64_t limit) const {
        std::int64_t best = never;
        const auto worth = [&best](std::int64_t rest) { return rest < best; };
        for_each_end(stage, first, limit, worth, [&best](std::int64_t cost, std::int64_t rest) {
            best = std::min(best, cost + rest);
        });
        return best;
    }

    template <class Keeps>
    std::vector<int> earliest(Keeps keeps) const {
        std::vector<int> sizes;
        int first = 0;
        for (int stage = 0; stage < stages_; ++stage) {
            const auto row = costs_.row(stage, first);
            const Place& next = boundary(stage + 1);
            int end = std::max(first + 1, next.earliest);
            while (!keeps(stage, first, row.cost(end), cell(stage + 1, end))) {
                ++end;
                PIPETWIN_EXPECT(end <= next.latest, "the table has no such split");
            }
            sizes.push_back(end - first);
            first = end;
        }
        return sizes;
    }

    const Costs& costs_;
    int layers_;
    int stages_;
    std::vector<Place> boundaries_;
    std::vector<std::int64_t> cells_;
};

/// The smallest largest stage, with the first of its splits; `never` and no sizes if no split is
/// allowed.
struct LeastLargest {
    std::int64_t largest = never;
    std::vector<int> layers_per_stage{};
};

/// The limit rises from the lower bound in doubling steps until the table holds a split, so that
/// all tables together are about as large as the last.
template <class Costs>
LeastLargest least_largest_of_table(SplitTable<Costs>& table, const Costs& costs) {
    const std::int64_t bound = table.lower_bound();
    std::int64_t limit = bound;
    for (std::int64_t step = std::max<std::int64_t>(1, bound / 64); limit < never; step *= 2) {
        const std::int64_t largest = table.fill_largest(limit);
        if (largest < never) {
            return {.largest = largest, .layers_per_stage = table.earliest_of_largest(largest)};
        }
        limit = limit < costs.most() ? std::min(costs.most(), bound + step) : never;
    }
    return {};
}

}  // namespace pipetwin
