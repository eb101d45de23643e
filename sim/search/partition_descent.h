// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <oneapi/tbb/enumerable_thread_specific.h>

#include <compare>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "core/base/units.h"
#include "core/costs/profile.h"
#include "core/model/model.h"
#include "core/partition/rank_partition.h"
#include "core/plan/plan.h"
#include "core/scenario/planner.h"
#include "core/scenario/settled_scenario.h"
#include "core/timeline/timeline.h"
#include "sim/explain/causes.h"
#include "sim/search/step_paths.h"

/// Descents to the best partition at one set of costs: layers move from piece to piece while that
/// makes the simulated step shorter.
namespace pipetwin::sim {

/// How good a partition is; the least is the best.
struct PartitionScore {
    std::int64_t excess = 0;  ///< bytes above the limits of all ranks together
    Duration step{};
    Bytes peak{};
    std::int64_t unevenness = 0;

    auto operator<=>(const PartitionScore&) const = default;
};

/// A partition that was tried at some costs.
struct TriedPartition {
    std::vector<int> sizes{};  ///< layers of each piece
    PartitionScore score{};
    std::int64_t excess_without_room = 0;  ///< as `excess`, with no room for messages
    std::vector<Bytes> peaks{};            ///< [rank]
    std::optional<StepPath> path{};        ///< none: it was not simulated
};

/// The partitions of one scenario that were tried at one set of costs, by their sizes.
using TriedPartitions = std::map<std::vector<int>, TriedPartition>;

/// What searches of one scenario's partition at one set of costs have in common.
struct KnownSearch {
    TriedPartitions tried{};
    std::optional<std::vector<int>> balanced{};  ///< none: not found yet, as the next one
    std::optional<std::vector<std::vector<int>>> within_memory{};  ///< starts
};

/// The searches of one scenario's partition.
struct KnownPartitions {
    /// By the number of micro-batches, and that of the canonical costs.
    std::map<std::pair<int, std::size_t>, KnownSearch> searches{};
};

/// Tries partitions of one scenario at some costs of its layers.
class PartitionTrials {
  public:
    /// `first` has the rows, at whatever costs. What is in `known` is not simulated again; null:
    /// nothing is known. Keeps references.
    PartitionTrials(const SettledScenario& scenario,
                    const Model& model,
                    const Profile& profile,
                    const Plan& first,
                    TriedPartitions* known = nullptr);

    const PieceTimes& times() const { return times_; }

    /// Makes and simulates plans, several at the same time; those whose ranks hold more than they
    /// may by more than `most_excess` are not simulated. In the order of `splits`.
    std::vector<TriedPartition> tried(const std::vector<std::vector<int>>& splits,
                                      std::int64_t most_excess) const;

  private:
    TriedPartition simulated(std::vector<int> sizes, std::int64_t most_excess) const;

    const SettledScenario scenario_;  ///< with a partition
    const Planner planner_;
    const Plan& first_;
    const RowPlaces places_;  ///< of its rows
    PieceTimes times_;
    TriedPartitions* known_;
    mutable tbb::enumerable_thread_specific<Timeline> recycled_{};  ///< memory of timelines
};

/// What the ranks hold: weights, and what their pieces keep of the micro-batches under way.
struct HeldMemory {
    RankChain chain;  ///< of work
    RankQuantity held;
    std::vector<std::int64_t> limits;  ///< [rank] without the context
};

/// All moves of up to so many layers, as layers may come in pairs; those between neighbours first.
std::vector<Move> all_moves(int pieces, int most_at_once);

/// The search for the best partition at one set of costs. Layers move between pieces: the moves
/// that relieve the longest chains of all steps that were simulated come first, and those that
/// relieve none are left out.
class PartitionDescents {
  public:
    /// Keeps references. `memory`: null where memory is not limited. `tries`: partitions that are
    /// simulated at most.
    PartitionDescents(const PartitionTrials& trials,
                      const std::vector<Move>& moves,
                      const HeldMemory* memory,
                      std::int64_t tries)
        : trials_(trials), moves_(moves), memory_(memory), left_(tries) {}

    std::int64_t left() const { return left_; }
    /// All that were simulated, the best first.
    const std::vector<const TriedPartition*>& best_ones() const { return best_; }

    /// Begins with the starts, goes on from the best of them, and then, after some moves at once,
    /// from the best that came of it.
    void search(const std::vector<std::vector<int>>& starts);

  private:
    /// A partition that has not been tried, and about how it would do.
    struct Neighbour {
        std::int64_t excess = 0;
        double step = 0;  ///< nanoseconds
        std::vector<int> sizes{};
    };

    void try_all(std::vector<std::vector<int>> splits, std::int64_t most_excess);
    std::vector<const TriedPartition*> begins() const;
    std::vector<Neighbour> neighbours(const TriedPartition& from, double most) const;
    const TriedPartition* simulated(const std::vector<int>& sizes) const;
    template <class Order>
    const TriedPartition* best_of(const std::vector<std::vector<int>>& splits, Order order) const;
    const TriedPartition* repaired(const TriedPartition* from);
    void descend(const TriedPartition* from);
    std::vector<int> perturbed(std::vector<int> sizes);

    const PartitionTrials& trials_;
    const std::vector<Move>& moves_;
    const HeldMemory* memory_;
    std::int64_t left_;  ///< tries
    TriedPartitions tried_{};
    std::vector<const TriedPartition*> best_{};  ///< of `tried_`, those that were simulated
    std::vector<StepPath> paths_{};              ///< the newest first
    std::uint64_t state_ = 1;                    ///< of the moves at random
};

}  // namespace pipetwin::sim
