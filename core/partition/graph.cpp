#include "core/partition/graph.h"

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <optional>
#include <utility>

#include "core/base/as_index.h"
#include "core/base/error.h"
#include "core/partition/chain.h"
#include "core/partition/ideals.h"
#include "core/partition/partition_search.h"

namespace pipetwin {

namespace {

/// Costs of the outputs that cross a boundary with these layers in front of it.
class Crossing {
  public:
    Crossing(const Model& model, const GraphCosts& costs) : costs_(costs) {
        for (int layer = 0; layer < model.layer_count(); ++layer) {
            readers_.push_back(model.readers_of(layer));
        }
    }

    struct Cost {
        Duration sender{};
        Duration receiver{};
    };

    /// in_front(layer) -> bool
    template <class InFront>
    Cost of(const InFront& in_front) const {
        Cost cost;
        for (std::size_t layer = 0; layer < readers_.size(); ++layer) {
            const bool crosses =
                in_front(static_cast<int>(layer)) &&
                std::ranges::any_of(readers_[layer], [&](int reader) { return !in_front(reader); });
            if (crosses) {
                cost.sender += costs_.sender.empty() ? Duration{} : costs_.sender[layer];
                cost.receiver += costs_.receiver.empty() ? Duration{} : costs_.receiver[layer];
            }
        }
        return cost;
    }

  private:
    const GraphCosts& costs_;
    std::vector<std::vector<int>> readers_;  ///< [layer]
};

GraphSplit split_of_chain(const Crossing& crossing, const GraphCosts& costs, int stages) {
    ChainProblem problem{.work = costs.work, .stages = stages};
    for (int boundary = 0; boundary < static_cast<int>(costs.work.size()); ++boundary) {
        const Crossing::Cost cost = crossing.of([&](int layer) { return layer < boundary; });
        problem.sender.push_back(cost.sender);
        problem.receiver.push_back(cost.receiver);
    }
    ChainSplit split = smallest_largest_stage(problem);
    std::vector<int> order(costs.work.size());
    std::iota(order.begin(), order.end(), 0);
    return {.order = std::move(order),
            .partition = std::move(split.partition),
            .largest = split.largest};
}

/// Dynamic programming over ideals, from the whole graph down to the empty one.
///
///     best[K][all] = nothing
///     best[s][I] = min over J that hold I, and more, of max(cost(I, J), best[s + 1][J])
///     cost(I, J) = work(J) - work(I) + receiver(I) + sender(J)
///
/// All stages of an ideal are done together, so that each pair of ideals is compared once.
class IdealTable {
  public:
    IdealTable(const Ideals& ideals, const Crossing& crossing, const GraphCosts& costs, int stages)
        : ideals_(ideals), stages_(as_index(stages)) {
        const auto layers = static_cast<int>(costs.work.size());
        for (int ideal = 0; ideal < ideals.count(); ++ideal) {
            const auto holds = [&](int layer) { return ideals.holds(ideal, layer); };
            Duration work{};
            for (int layer = 0; layer < layers; ++layer) {
                work += holds(layer) ? costs.work[as_index(layer)] : Duration{};
            }
            const Crossing::Cost cost = crossing.of(holds);
            begin_.push_back((work - cost.receiver).count());
            end_.push_back((work + cost.sender).count());
        }
        best_.assign((stages_ + 1) * begin_.size(), never);
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
        return end_[as_index(next)] - begin_[as_index(ideal)];
    }
    bool may_follow(int ideal, int next, std::size_t stage) const {
        return ideals_.size(next) > ideals_.size(ideal) && cost(ideal, next) <= largest() &&
               best_[row(next) + stage + 1] <= largest() && ideals_.is_subset(ideal, next);
    }

    const Ideals& ideals_;
    std::size_t stages_;
    std::vector<std::int64_t>
        begin_;                      ///< [ideal] work in front of a stage, less its receiver's cost
    std::vector<std::int64_t> end_;  ///< [ideal] work up to the end, with the sender's cost
    std::vector<std::int64_t> best_;  ///< [ideal][stage]
};

}  // namespace

GraphSplit graph_partition(const Model& model,
                           const GraphCosts& costs,
                           int stages,
                           int ideal_limit) {
    check_stage_count(stages, model.layer_count());
    const auto has_all = [&](const std::vector<Duration>& entries) {
        return entries.size() == static_cast<std::size_t>(model.layer_count());
    };
    PIPETWIN_EXPECT(has_all(costs.work) && (costs.sender.empty() || has_all(costs.sender)) &&
                        (costs.receiver.empty() || has_all(costs.receiver)),
                    "one cost per layer");
    const Crossing crossing(model, costs);
    GraphSplit along_the_order = split_of_chain(crossing, costs, stages);
    const std::optional<Ideals> ideals = Ideals::of(model, ideal_limit);
    if (!ideals) {
        return along_the_order;
    }
    IdealTable table(*ideals, crossing, costs, stages);
    table.fill(along_the_order.largest.count());
    return table.earliest();
}

}  // namespace pipetwin
