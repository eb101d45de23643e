// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "core/base/units.h"
#include "core/scenario/settled_scenario.h"
#include "core/schedule/recompute.h"
#include "sim/search/candidate.h"

/// What a plan search finds.
namespace pipetwin::sim {

/// A plan of the searched space that was made and simulated, and fits.
struct FoundPlan {
    Candidate candidate;
    std::vector<int> partition;  ///< layers per piece
    RecomputeRules recompute{};
    ModuleLists modules{};  ///< that are computed again, where a search decides it
    Duration step{};
    std::optional<double> samples_per_second{};
    double bubble = 0;  ///< total, as GPipe defines it
    Bytes peak{};       ///< of the fullest rank
    /// A search of the candidate alone would come to no faster partition. False where the search
    /// ended before, where the plan is too large for it, or where nothing asked for it.
    bool finished = false;
};

/// The scenario with the plan in place of every "auto".
SettledScenario with_plan(const Scenario& scenario, const FoundPlan& plan);

/// Sorts plans, the fastest first and of equal ones the one of fewer devices, and leaves out those
/// that are there twice.
void rank(std::vector<FoundPlan>& plans);

/// The fastest plan of each candidate, in order: other partitions of it are left out.
std::vector<FoundPlan> fastest_of_each_candidate(const std::vector<FoundPlan>& ranked);

/// Why some candidates are no plans.
struct Infeasible {
    ErrorKind kind = ErrorKind::Infeasible;
    ErrorReason reason = ErrorReason::Other;
    std::string why;
    std::string hint;  ///< for the example
    std::int64_t count = 0;
    Candidate example;
};

/// A plan that does not fit, but misses by the least.
struct ClosestPlan {
    Candidate candidate;
    std::vector<int> partition;
    int rank = 0;
    Bytes peak{};
    Bytes limit{};
};

}  // namespace pipetwin::sim
