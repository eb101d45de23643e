// SPDX-License-Identifier: Apache-2.0
#include "core/partition/graph.h"

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <optional>
#include <utility>

#include "core/base/as_index.h"
#include "core/base/error.h"
#include "core/model/model.h"
#include "core/partition/chain.h"
#include "core/partition/ideals.h"
#include "core/partition/partition_search.h"

namespace pipetwin {

namespace {

GraphSplit split_of_chain(const std::vector<Duration>& work, int stages) {
    ChainSplit split = smallest_largest_stage({.work = work, .stages = stages});
    std::vector<int> order(work.size());
    std::iota(order.begin(), order.end(), 0);
    return {.order = std::move(order),
            .partition = std::move(split.partition),
            .largest = split.largest};
}

/// Dynamic programming over ideals, from the whole graph down to the empty one.
///
///     best[K][all] = nothing
///     best[s][I] = min over J that hold I, and more, of max(cost(I, J), best[s + 1][J])
///     cost(I, J) = work(J) - work(I)
///
/// All stages of an ideal are done together, so that each pair of ideals is compared once.
class IdealTable {
  public:
    IdealTable(const Ideals& ideals, const std::vector<Duration>& work, int stages)
        : ideals_(ideals), stages_(as_index(stages)) {
        for (int ideal = 0; ideal < ideals.count(); ++ideal) {
            Duration sum{};
            for (std::size_t layer = 0; layer < work.size(); ++layer) {
                sum += ideals.holds(ideal, static_cast<int>(layer)) ? work[layer] : Duration{};
            }
            work_.push_back(sum.count());
        }
        best_.assign((stages_ + 1) * work_.size(), never);
        best_.back() = 0;
    }

    /// No stage of a best split is above `limit`.
    void fill(std::int64_t limit) {
        for (int ideal = ideals_.count(); ideal-- > 0;) {
            std::int64_t* const best = &best_[row(ideal)];
            for (int next = ideals_.count() - 1; ideals_.size(next) > ideals_.size(ideal); --next) {
                const std::int64_t stage = cost(ideal, next);
                if (stage > limit || !ideals_.is_subset(ideal, next)) {
                    continue;
                }
                const std::int64_t* const rest = &best_[row(next)] + 1;
                for (std::size_t s = 0; s < stages_; ++s) {
                    best[s] = std::min(best[s], std::max(stage, rest[s]));
                }
            }
        }
    }

    std::int64_t largest() const { return best_.front(); }

    /// Each stage in turn is the first that will do.
    GraphSplit earliest() const {
        std::vector<int> order;
        std::vector<int> sizes;
        int ideal = 0;
        for (std::size_t stage = 0; stage < stages_; ++stage) {
            int next = ideal + 1;
            while (!may_follow(ideal, next, stage)) {
                ++next;
            }
            for (int layer = 0; layer < layers(); ++layer) {
                if (ideals_.holds(next, layer) && !ideals_.holds(ideal, layer)) {
                    order.push_back(layer);
                }
            }
            sizes.push_back(ideals_.size(next) - ideals_.size(ideal));
            ideal = next;
        }
        return {.order = std::move(order),
                .partition = Partition(std::move(sizes), layers()),
                .largest = Duration{largest()},
                .is_exact = true,
                .ideals = ideals_.count()};
    }

  private:
    int layers() const { return ideals_.size(ideals_.count() - 1); }
    std::size_t row(int ideal) const { return as_index(ideal) * (stages_ + 1); }
    std::int64_t cost(int ideal, int next) const {
        return work_[as_index(next)] - work_[as_index(ideal)];
    }
    bool may_follow(int ideal, int next, std::size_t stage) const {
        return ideals_.size(next) > ideals_.size(ideal) && cost(ideal, next) <= largest() &&
               best_[row(next) + stage + 1] <= largest() && ideals_.is_subset(ideal, next);
    }

    const Ideals& ideals_;
    std::size_t stages_;
    std::vector<std::int64_t> work_;  ///< [ideal] of all its layers
    std::vector<std::int64_t> best_;  ///< [ideal][stage]
};

}  // namespace

GraphSplit graph_partition(const Model& model,
                           const std::vector<Duration>& work,
                           int stages,
                           int ideal_limit) {
    check_stage_count(stages, model.layer_count());
    PIPETWIN_EXPECT(work.size() == as_index(model.layer_count()), "one time per layer");
    GraphSplit along_the_order = split_of_chain(work, stages);
    const std::optional<Ideals> ideals = Ideals::of(model, ideal_limit);
    if (!ideals) {
        return along_the_order;
    }
    IdealTable table(*ideals, work, stages);
    table.fill(along_the_order.largest.count());
    return table.earliest();
}

}  // namespace pipetwin
