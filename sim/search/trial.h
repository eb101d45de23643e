// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/error.h"
#include "core/base/units.h"
#include "core/costs/profile.h"
#include "core/plan/plan.h"
#include "core/scenario/planner.h"
#include "sim/search/candidate.h"
#include "sim/search/found_plan.h"
#include "sim/simulate/settled_capacity.h"

namespace pipetwin {

class Model;
struct Scenario;

}  // namespace pipetwin

/// Candidates made into plans and simulated.
namespace pipetwin::sim {

/// A candidate of which only some partitions were simulated, or none.
struct Unexplored {
    /// The step of a partition that fits, or the candidate's bound: the smallest is explored first.
    Duration priority{};
    Duration relaxation{};  ///< no partition is faster
    Candidate candidate;
    bool knows_ways = false;  ///< `relaxation` has what the order of its schedule says
    bool is_closest = false;  ///< `relaxation` is the closest bound that is known

    auto operator<=>(const Unexplored&) const = default;
};

/// What candidates have come to.
struct Outcome {
    std::vector<FoundPlan> found{};
    std::map<std::string, Infeasible> infeasible{};  ///< by reason, without its numbers
    std::vector<Unexplored> unexplored{};
    std::int64_t candidates = 0;
    std::int64_t searched = 0;
    std::int64_t pruned = 0;
    std::int64_t actions = 0;    ///< that were planned
    bool breaks_a_rule = false;  ///< one candidate's: it is no plan, whatever the partition

    /// Counts candidates that are refused for the same reason, `candidate` as the first of them.
    void refuse(const Error& why, const Candidate& candidate, std::int64_t count = 1);
    void add(Outcome other);
};

/// What is searched in.
struct SearchSpace {
    const Scenario& scenario;
    const Model& model;
    const Profile& profile;
};

/// Makes and simulates plans of one candidate, whatever their partition.
class CandidateTrials {
  public:
    /// `partition`: one that is tried; an empty list stands for what the scenario says. Keeps a
    /// reference to the space. Throws as make_plan.
    CandidateTrials(const SearchSpace& space,
                    const Candidate& candidate,
                    const std::vector<int>& partition);
    CandidateTrials(const CandidateTrials&) = delete;
    CandidateTrials& operator=(const CandidateTrials&) = delete;

    /// Plans and simulates one partition; the empty list stands for what the scenario says. Its
    /// metrics are measured where it is faster than `best`. Adds to `found`, if it fits. Where
    /// recompute by rank comes out as one mode for all, the plan is that mode's candidate. For
    /// several threads. Throws as make_plan.
    void add(const std::vector<int>& partition, Duration best, Outcome& outcome) const;

    /// Makes the rows that all partitions share, where rows do not depend on the partition.
    void share_rows();

  private:
    std::optional<SettledTimeline> simulated(const std::vector<int>& partition,
                                             Outcome& outcome,
                                             ModuleLists& modules) const;
    std::optional<Plan> modules_as_needed(const std::vector<int>& partition,
                                          Outcome& outcome,
                                          ModuleLists& modules) const;
    std::optional<Plan> recomputed_as_needed(const std::vector<int>& partition,
                                             Outcome& outcome) const;

    const Candidate candidate_;
    const bool finds_recompute_;  ///< of each rank
    const bool finds_modules_;    ///< that each rank computes again
    const std::vector<int> blocks_;
    const SettledScenario settled_;
    const Planner planner_;
    std::optional<Plan> rows_{};
};

/// The fastest of some partitions, if any fits. A candidate that is no plan is refused.
Outcome try_candidate(const SearchSpace& space,
                      const Candidate& candidate,
                      const std::vector<std::vector<int>>& partitions);

/// Why a candidate of which no partition fits is refused.
Error out_of_memory();
/// Text of an error of a candidate, with the schedule of which it breaks a rule.
std::string text_of_refusal(const Error& why);

}  // namespace pipetwin::sim
