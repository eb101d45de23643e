#include "core/partition/chain.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <utility>

#include <fmt/format.h>

#include "core/base/error.h"
#include "core/partition/chain_stages.h"
#include "core/partition/split_table.h"

namespace pipetwin {

namespace {

ChainSplit split_of(const ChainTimes& times, const std::vector<int>& sizes) {
    ChainSplit split{.partition = Partition(sizes, times.layers()), .recomputes = {}};
    for (int stage = 0; stage < split.partition.stage_count(); ++stage) {
        const int first = split.partition.first_layer(stage);
        const int end = first + split.partition.layers_in(stage);
        const ChainTimes::Row row = times.row(stage, first);
        const Duration cost{row.cost(end)};
        split.recomputes.push_back(row.recomputes(end));
        split.largest = std::max(split.largest, cost);
        split.sum += cost;
    }
    return split;
}

/// The split whose largest excess is smallest, where no split fits.
MemoryGap gap_of(const ChainTimes& times) {
    PIPETWIN_EXPECT(times.bytes().has_value(), "only memory forbids a split");
    const ChainExcess costs(*times.bytes(), times.layers(), times.stages());
    SplitTable table(costs);
    const LeastLargest closest = least_largest_of_table(table, costs);
    MemoryGap gap{.excess = Bytes{closest.largest},
                  .partition = Partition(closest.layers_per_stage, times.layers())};
    const auto excess = [&](int stage) {
        const int first = gap.partition.first_layer(stage);
        return costs.row(stage, first).cost(first + gap.partition.layers_in(stage));
    };
    while (excess(gap.stage) < closest.largest) {
        ++gap.stage;
    }
    return gap;
}

/// Minimises sum + weight * largest by asking for the smallest sum under a limit on the largest
/// stage. That sum falls in steps as the limit rises:
///
///     sum  |###
///          |   ########
///          |           #####
///          |                #############
///          +------------------------------ limit
///           least largest
///
/// A table made for a limit shows the left end of the step that the limit is on: the largest stage
/// of its split. Everything further left has at least this sum, so it is of interest only as far as
/// limits go that are smaller by more than the best value allows: the walk from right to left takes
/// long steps.
class ShortestSum {
  public:
    ShortestSum(const ChainTimes& times, std::int64_t weight)
        : times_(times), table_(times), weight_(weight) {}

    /// Empty if no split is allowed.
    std::vector<int> find() {
        const std::int64_t least = least_largest_of_table(table_, times_).largest;
        if (least < never) {
            look_at(least);
            look_right_of(least);
            walk(least + 1);
        }
        return best_sizes_;
    }

  private:
    struct Step {
        std::int64_t left = 0;
        std::int64_t sum = 0;
    };

    /// The step that a limit is on, remembered if it is better than the best, or as good and
    /// earlier.
    Step look_at(std::int64_t limit) {
        const std::int64_t sum = table_.fill_sum(limit);
        PIPETWIN_EXPECT(sum < never, "above the least largest stage there are splits");
        std::vector<int> sizes = table_.earliest_of_sums(limit);
        const Step step{.left = split_of(times_, sizes).largest.count(), .sum = sum};
        const std::int64_t value = step.sum + weight_ * step.left;
        if (value < best_ || (value == best_ && sizes < best_sizes_)) {
            best_ = value;
            best_sizes_ = std::move(sizes);
        }
        return step;
    }

    /// No limit above this is of interest, if the sums are at least `sum`.
    std::int64_t last_limit(std::int64_t sum) const {
        return weight_ == 0 ? times_.most() : std::min(times_.most(), (best_ - sum) / weight_);
    }

    /// Goes away from `least` as long as that pays: a good value early spares tables later.
    void look_right_of(std::int64_t least) {
        std::int64_t before = best_ + 1;
        for (std::int64_t step = std::max<std::int64_t>(1, least / 64);
             best_ < before && least + step < last_limit(times_.least_sum());
             step *= 2) {
            before = best_;
            look_at(least + step);
        }
    }

    /// Every limit from `low` on.
    void walk(std::int64_t low) {
        std::int64_t sum = times_.least_sum();
        std::int64_t limit = last_limit(sum);
        while (limit >= low && sum <= best_) {
            const Step step = look_at(limit);
            sum = step.sum;
            limit = weight_ == 0 ? 0 : std::min(step.left - 1, last_limit(sum));
        }
    }

    const ChainTimes& times_;
    SplitTable<ChainTimes> table_;
    std::int64_t weight_;
    std::int64_t best_ = std::numeric_limits<std::int64_t>::max();
    std::vector<int> best_sizes_;
};

ChainAnswer answer_of(const ChainTimes& times, const std::vector<int>& sizes) {
    if (sizes.empty()) {
        return {.split = std::nullopt, .gap = gap_of(times)};
    }
    return {.split = split_of(times, sizes), .gap = std::nullopt};
}

}  // namespace

ChainAnswer smallest_largest_stage(const ChainProblem& problem) {
    const ChainTimes times(problem);
    SplitTable table(times);
    return answer_of(times, least_largest_of_table(table, times).layers_per_stage);
}

ChainAnswer shortest_pipeline(const ChainProblem& problem, int micro_batches) {
    PIPETWIN_EXPECT(micro_batches >= 1, "at least one micro-batch");
    const ChainTimes times(problem);
    if (times.most() > never / micro_batches) {
        throw Error(ErrorKind::BadInput,
                    "partition",
                    fmt::format("{} micro-batches last more than 73 years", micro_batches),
                    "check the unit of the costs");
    }
    return answer_of(times, ShortestSum(times, micro_batches - 1).find());
}

}  // namespace pipetwin
