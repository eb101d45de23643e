// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "core/base/units.h"
#include "sim/search/candidate.h"
#include "sim/search/candidate_bounds.h"
#include "sim/search/found_plan.h"
#include "sim/search/plan_search.h"
#include "sim/search/search_memory.h"
#include "sim/search/trial.h"

namespace pipetwin::sim {

/// What a candidate has to beat: the fastest plan so far, of all or of its own cell.
class Incumbents {
  public:
    /// `cell_stages`: numbers of stages that have a cell for each number of micro-batches.
    explicit Incumbents(const std::vector<int>& cell_stages)
        : cell_stages_(cell_stages.begin(), cell_stages.end()) {}

    /// The step that a plan of this shape has to beat; `Duration::max()`: any.
    Duration of(const Shape& shape) const;
    std::optional<Duration> of_all() const {
        return all_ < Duration::max() ? std::optional(all_) : std::nullopt;
    }
    void add(const FoundPlan& plan);

  private:
    std::set<int> cell_stages_;
    Duration all_ = Duration::max();
    std::map<std::pair<int, int>, Duration> of_cell_{};
};

/// What a search of plans has come to so far, and whether it goes on: its parts share it.
struct SearchState {
    /// Keeps references to all of them.
    SearchState(const SearchSpace& all_of,
                const SearchOptions& how,
                SearchMemory& known,
                const std::vector<int>& cell_stages)
        : space(all_of),
          options(how),
          memory(known),
          bounds(space.scenario, space.model, space.profile),
          best(cell_stages) {}

    /// Returns false once the budget of simulations is spent, or the caller stops the search. Tells
    /// the caller that `left` candidates are open, none of them faster than `bound`.
    bool goes_on(std::size_t left, Duration bound);

    /// Simulates the partitions of a candidate that are tried first; `bound`: the candidate's.
    Outcome simulate(const Candidate& candidate, Duration bound) const;

    const SearchSpace space;
    const SearchOptions& options;
    SearchMemory& memory;
    CandidateBounds bounds;
    Incumbents best;
    Outcome all{};
    /// The least bound of what was left out though it might be faster than the best.
    Duration pruned_bound = Duration::max();
    std::set<std::pair<Bytes, Candidate>> too_large{};  ///< those that come nearest to fit
    std::set<Candidate> simulated{};                    ///< with the partitions that come first
    std::int64_t settled = 0;                           ///< shapes and candidates
    std::int64_t partitions = 0;                        ///< simulated after the first ones
    bool is_stopped = false;                            ///< the caller has said so
};

}  // namespace pipetwin::sim
