// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "core/base/units.h"
#include "sim/search/search_state.h"

namespace pipetwin::sim {

/// The partitions of a candidate that could be faster than a plan.
struct FasterPartitions {
    bool may_be_any = false;
    /// None where they are too many, or would take long to find.
    std::optional<std::vector<std::vector<int>>> all{};
};

/// Tries the partitions of candidates that a search leaves out at first.
class FurtherPartitions {
  public:
    /// Keeps a reference.
    explicit FurtherPartitions(SearchState& state) : state_(state) {}

    /// Simulates what could be faster than `best` of the search's contenders, and moves layers in
    /// those that have too many partitions; returns a bound of those.
    Duration try_contenders(Duration best);

    /// Simulates what could be faster than `plan`, the fastest of its candidate: all of it, or as
    /// much as `partition = "auto"` of that candidate does. Takes the actions off `room`. False
    /// where the room ends before, or the plan is too large for its layers to be moved.
    bool finish(const FoundPlan& plan, std::int64_t& room);

  private:
    /// Looks for the faster partitions of the contenders that come next at the same time, as long
    /// as the best plan stays the best.
    class LookedAhead {
      public:
        LookedAhead(const FurtherPartitions& partitions, const std::vector<Contender>& contenders)
            : partitions_(partitions), contenders_(contenders) {}

        /// The `faster_partitions` of a contender. With more room there may be more of them; those
        /// of less room are the same ones, or none.
        const FasterPartitions& of(std::size_t index, Duration best, std::int64_t room);

      private:
        const FurtherPartitions& partitions_;
        const std::vector<Contender>& contenders_;
        std::size_t first_ = 0;  ///< contender of the first of `found_`
        Duration best_{};        ///< for which they were found
        std::vector<FasterPartitions> found_{};
    };

    bool is_quick_to_count(const Candidate& candidate) const;
    FasterPartitions faster_partitions(const Contender& contender,
                                       Duration best,
                                       std::int64_t room) const;
    void try_each(const Contender& contender,
                  const std::vector<std::vector<int>>& partitions,
                  Duration& best);
    void take_back_refusal(const Candidate& candidate);
    const FoundPlan* fastest_of(const Candidate& candidate) const;
    std::int64_t improve_one(const Contender& contender,
                             const std::vector<std::vector<int>>& starts,
                             std::int64_t actions,
                             Duration& best);
    void improve(std::vector<Contender>& contenders, Duration& best);

    SearchState& state_;
};

/// Improves the partitions of the fastest candidates of a search, `finished_rows` of them, so that
/// each is as fast as a search of its shape and schedule alone finds it. Candidates that a better
/// partition may bring among them, and those of the same shape and schedule that were left out, are
/// tried, too, as far as their number is a small multiple of that. Marks what is finished.
void finish_rows(SearchState& state, FurtherPartitions& partitions);

}  // namespace pipetwin::sim
