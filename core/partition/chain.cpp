// SPDX-License-Identifier: Apache-2.0
#include "core/partition/chain.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

#include "core/base/as_index.h"
#include "core/base/error.h"
#include "core/partition/partition_search.h"

namespace pipetwin {

namespace {

using Numbers = std::vector<std::int64_t>;

/// What each boundary costs, [0 .. layers]: nothing at both ends of the chain.
Numbers boundary_costs(const std::vector<Duration>& costs, std::size_t layers) {
    PIPETWIN_EXPECT(costs.empty() || costs.size() == layers, "one cost per boundary");
    Numbers numbers(layers + 1, 0);
    for (std::size_t boundary = 1; boundary < costs.size(); ++boundary) {
        numbers[boundary] = costs[boundary].count();
        PIPETWIN_EXPECT(numbers[boundary] >= 0, "the cost of a layer is negative");
    }
    return numbers;
}

/// Doubles may be off by a few thousand here, which does not matter beside what is left above.
std::int64_t bounded(double time) {
    if (time > 0.99 * static_cast<double>(never)) {
        throw Error(ErrorKind::BadInput,
                    "partition",
                    "the times of all stages add up to more than 73 years",
                    "check the unit of the costs");
    }
    return static_cast<std::int64_t>(1.001 * time) + 1;
}

/// Times of stages of layers i to j - 1. Each is the difference of two terms, since work
/// is a difference of sums:
///
///     cost(i, j)  = (work before j + sender(j)) - (work before i - receiver(i))
///                 = end(j) - start(i)
///     least(i, j) = smallest end from j on - largest start up to i
///
/// which never falls when the stage grows. No time is above most().
class ChainTimes {
  public:
    explicit ChainTimes(const ChainProblem& problem)
        : layers_(static_cast<int>(problem.work.size())), stages_(problem.stages) {
        check_stage_count(stages_, layers_);
        const std::size_t layers = problem.work.size();
        const Numbers work = prefix_sums(problem.work);
        const Numbers sender = boundary_costs(problem.sender, layers);
        const Numbers receiver = boundary_costs(problem.receiver, layers);
        const double largest = static_cast<double>(work.back()) +
                               static_cast<double>(std::ranges::max(sender)) +
                               static_cast<double>(std::ranges::max(receiver));
        bounded(stages_ * largest);
        most_ = bounded(largest);
        for (std::size_t layer = 0; layer <= layers; ++layer) {
            starts_.push_back(work[layer] - receiver[layer]);
            ends_.push_back(work[layer] + sender[layer]);
        }
        set_bounds();
    }

    class Row {
      public:
        Row(const ChainTimes& times, int first)
            : start_(times.starts_[as_index(first)]),
              latest_start_(times.latest_start_[as_index(first)]),
              ends_(times.ends_.data()),
              least_ends_(times.least_ends_.data()) {}

        std::int64_t least(int end) const { return least_ends_[end] - latest_start_; }
        std::int64_t cost(int end) const { return ends_[end] - start_; }

      private:
        std::int64_t start_;
        std::int64_t latest_start_;
        const std::int64_t* ends_;
        const std::int64_t* least_ends_;
    };

    int layers() const { return layers_; }
    int stages() const { return stages_; }
    std::int64_t most() const { return most_; }
    /// The stages that begin with this layer.
    Row row(int first) const { return {*this, first}; }

  private:
    /// Sets the bounds of both ends of the chain, which are no boundaries: the first start is for
    /// stage 0 alone, the last end for the last stage.
    void set_bounds() {
        latest_start_ = starts_;
        for (std::size_t layer = 2; layer < starts_.size(); ++layer) {
            latest_start_[layer] = std::max(starts_[layer], latest_start_[layer - 1]);
        }
        least_ends_ = ends_;
        for (std::size_t layer = ends_.size() - 2; layer-- > 1;) {
            least_ends_[layer] = std::min(ends_[layer], least_ends_[layer + 1]);
        }
    }

    int layers_;
    int stages_;
    std::int64_t most_ = 0;
    Numbers starts_;        ///< [0 .. layers]
    Numbers ends_;          ///< [0 .. layers]
    Numbers latest_start_;  ///< [0 .. layers] the largest up to here
    Numbers least_ends_;    ///< [0 .. layers] the smallest from here on
};

/// Dynamic programming over stages and boundaries, for times that need not grow with the stage.
///
/// `ChainTimes::Row::least` is what keeps the table small. Under a limit on the cost of a stage a
/// boundary can be neither too early nor too late, and a stage not too long:
///
///     boundary 1          |--------|
///     boundary 2                  |-----------|
///     boundary 3                           |---------|
///              layer 0 ............................................ layers
///
/// so that with many stages, and a limit near the best, few cells are left.
class SplitTable {
  public:
    explicit SplitTable(const ChainTimes& times)
        : times_(times),
          layers_(times.layers()),
          stages_(times.stages()),
          boundaries_(as_index(stages_) + 1),
          cells_(boundaries_.size() * as_index(layers_ + 1)) {}

    /// No smaller limit leaves a place for every boundary, as far as `least` tells, and none below
    /// 0 is looked at; `never` if none does.
    std::int64_t lower_bound() {
        const auto leaves_places = [this](std::int64_t limit) { return narrow(limit); };
        const std::int64_t most = times_.most();
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

    /// The split that `fill_largest` found, with each stage in turn as short as it may be.
    std::vector<int> earliest_of_largest(std::int64_t largest) const {
        std::vector<int> sizes;
        int first = 0;
        for (int stage = 0; stage < stages_; ++stage) {
            const ChainTimes::Row row = times_.row(first);
            const Place& next = boundary(stage + 1);
            int end = std::max(first + 1, next.earliest);
            while (row.cost(end) > largest || cell(stage + 1, end) > largest) {
                ++end;
                PIPETWIN_EXPECT(end <= next.latest, "the table has no such split");
            }
            sizes.push_back(end - first);
            first = end;
        }
        return sizes;
    }

  private:
    /// Where a boundary may be: before the stage of its number.
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
            const auto row = times_.row(from);
            const int most = layers_ - (stages_ - 1 - stage);
            boundaries_[as_index(stage) + 1].latest =
                last_that(from, most, [&](int end) { return row.least(end) <= limit; });
        }
        for (int stage = stages_ - 1; stage > 0; --stage) {
            const int to = boundary(stage + 1).earliest;
            const int earliest = to - last_that(0, to - stage, [&](int size) {
                                     return times_.row(to - size).least(to) <= limit;
                                 });
            boundaries_[as_index(stage)].earliest = earliest;
            if (earliest > boundary(stage).latest) {
                return false;
            }
        }
        return times_.row(0).least(boundary(1).earliest) <= limit;
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

    std::int64_t least_of_largest(int stage, int first, std::int64_t limit) const {
        std::int64_t best = never;
        const ChainTimes::Row row = times_.row(first);
        const Place& next = boundary(stage + 1);
        const std::int64_t* const rests = &cells_[place(stage + 1, 0)];
        for (int end = std::max(first + 1, next.earliest); end <= next.latest; ++end) {
            if (row.least(end) > limit) {
                break;
            }
            const std::int64_t largest = std::max(row.cost(end), rests[end]);
            if (largest <= limit) {
                best = largest;
                limit = best - 1;  // only a better one is of interest
            }
        }
        return best;
    }

    const ChainTimes& times_;
    int layers_;
    int stages_;
    std::vector<Place> boundaries_;
    std::vector<std::int64_t> cells_;
};

/// The limit rises from the lower bound in doubling steps until the table holds a split, so that
/// all tables together are about as large as the last.
ChainSplit least_largest(const ChainTimes& times) {
    SplitTable table(times);
    const std::int64_t bound = table.lower_bound();
    std::int64_t limit = bound;
    std::int64_t largest = table.fill_largest(limit);
    for (std::int64_t step = std::max<std::int64_t>(1, bound / 64); largest == never; step *= 2) {
        PIPETWIN_EXPECT(limit < times.most(), "a limit above all times leaves a split");
        limit = std::min(times.most(), bound + step);
        largest = table.fill_largest(limit);
    }
    return {.partition = Partition(table.earliest_of_largest(largest), times.layers()),
            .largest = Duration{largest}};
}

}  // namespace

ChainSplit smallest_largest_stage(const ChainProblem& problem) {
    return least_largest(ChainTimes(problem));
}

}  // namespace pipetwin
