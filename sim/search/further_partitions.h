// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "core/base/units.h"
#include "sim/search/layer_moves.h"
#include "sim/search/search_state.h"

namespace pipetwin::sim {

/// The partitions of a candidate that could be faster than a plan.
struct FasterPartitions {
    bool may_be_any = false;
    /// None where they are too many, or would take long to find.
    std::optional<std::vector<std::vector<int>>> all{};
};

/// Which bound of all partitions is asked for: that of the ways through an order, or that of
/// `ShapeBounds::closest_bound`, which takes longer.
enum class RaisedBy { Ways, Chain };

/// What the bounds of candidates are raised for.
struct RaisedFor {
    Duration best{};        ///< the step of the best plan: what is not below it is not looked at
    bool explored = false;  ///< they are explored then; else they are left as they are
};

/// Tries the partitions of candidates that a search leaves out at first.
class FurtherPartitions {
  public:
    /// Keeps a reference.
    explicit FurtherPartitions(SearchState& state) : state_(state), moves_(state) {}

    /// Simulates the partitions of the search's unexplored candidates that could be faster than
    /// `best`, and moves layers in candidates that have too many partitions; returns a bound of
    /// these.
    Duration explore(Duration best);

    /// Simulates what could be faster than `plan`, the fastest of its candidate: all of it, or as
    /// much as `partition = "auto"` of that candidate does. Takes the actions off `room`. False
    /// where the room ends before, or the plan is too large for its layers to be moved.
    bool finish(const FoundPlan& plan, std::int64_t& room);

    /// Does at the same time what `finish` would do one after the other for the first ones of these
    /// plans, but for simulating what comes of it: as far as they have as many actions.
    void prepare_to_finish(std::span<const FoundPlan> plans, std::int64_t room);

  private:
    /// What is to be done to finish a plan.
    struct Finishing {
        Unexplored node{};
        std::int64_t actions = 0;  ///< that may be simulated
        FasterPartitions faster{};
        bool tries_all = false;
        bool moves_layers = false;

        MovesQuestion question() const {
            return {.candidate = node.candidate, .starts = {{}}, .actions = actions};
        }
    };

    /// The faster partitions of a list of candidates, found for several of them at the same time
    /// before they are asked for, as long as the incumbent stays the best plan.
    class Prefetched {
      public:
        Prefetched(const FurtherPartitions& partitions, const std::vector<Unexplored>& unexplored)
            : partitions_(partitions), unexplored_(unexplored) {}

        /// The faster partitions of the candidate at `index`. They may have been found when there
        /// was room for more actions than `room`: then they may be more than have room, where with
        /// `room` there would be none.
        const FasterPartitions& of(std::size_t index, Duration best, std::int64_t room);

      private:
        const FurtherPartitions& partitions_;
        const std::vector<Unexplored>& unexplored_;
        std::size_t first_ = 0;  ///< index of the first of `found_`
        Duration best_{};        ///< incumbent for which they were found
        std::vector<FasterPartitions> found_{};
    };

    void raise_bounds(std::vector<Unexplored>& unexplored, const RaisedFor& purpose) const;
    void raise_bounds_of(std::span<Unexplored> nodes,
                         RaisedBy how,
                         const RaisedFor& purpose,
                         Duration enough) const;
    bool has_one_partition(const FoundPlan& plan) const;
    Finishing finishing(const FoundPlan& plan, std::int64_t actions) const;
    bool is_quick_to_count(const Candidate& candidate) const;
    FasterPartitions faster_partitions(const Unexplored& node,
                                       Duration best,
                                       std::int64_t room) const;
    void try_each(const Unexplored& node,
                  const std::vector<std::vector<int>>& partitions,
                  Duration& best);
    void take_back_refusal(const Candidate& candidate);
    const FoundPlan* fastest_of(const Candidate& candidate) const;
    MovesQuestion question_of(const Candidate& candidate,
                              std::int64_t actions,
                              bool has_many_others) const;
    std::int64_t improve_one(const Unexplored& node, const MovesQuestion& question, Duration& best);
    void improve(std::vector<Unexplored>& unexplored, Duration& best);

    SearchState& state_;
    LayerMoves moves_;
    std::map<Candidate, Finishing> finishing_{};  ///< that were prepared
};

/// Improves the partitions of the fastest candidates of a search, `finished_rows` of them, so that
/// each is as fast as a search of its shape and schedule alone finds it. Candidates that a better
/// partition may bring among them, and those of the same shape and schedule that were left out, are
/// tried, too, as far as their number is a small multiple of that. Marks what is finished.
void finish_rows(SearchState& state, FurtherPartitions& partitions);

}  // namespace pipetwin::sim
