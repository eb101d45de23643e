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
    Duration step{};
    std::optional<double> samples_per_second{};
    double bubble = 0;  ///< total, as GPipe defines it
    Bytes peak{};       ///< of the fullest rank
};

/// The scenario with the plan in place of every "auto".
SettledScenario with_plan(const Scenario& scenario, const FoundPlan& plan);

/// Why some candidates are no plans.
struct Infeasible {
    ErrorKind kind = ErrorKind::Infeasible;
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
