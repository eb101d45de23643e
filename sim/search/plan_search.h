// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "core/base/units.h"
#include "core/costs/profile.h"
#include "sim/search/candidate.h"
#include "sim/search/found_plan.h"

namespace pipetwin {

class Model;
struct Scenario;

}  // namespace pipetwin

/// The search for the fastest plan.
namespace pipetwin::sim {

struct SearchMemory;

struct SearchProgress {
    double share = 0;                ///< of the shapes
    std::optional<Duration> best{};  ///< step time
    Duration bound{};                ///< none of what is left is faster
};

struct SearchOptions {
    /// Called after every wave; the search ends early where it returns false.
    std::function<bool(const SearchProgress&)> progress{};
    /// Once plans of so many actions together have been simulated, what could beat the best plan
    /// by less than `tolerance`, a share of its step, is left out.
    std::int64_t exact_actions = 100'000'000;
    double tolerance = 0.02;
    /// Ends after so many, with what it has by then.
    std::int64_t most_actions = 2'000'000'000;
    /// In the end, further partitions that could beat the best plan are simulated where all of a
    /// candidate's have so many actions together at the most. 0: none is, once a plan is found.
    std::int64_t most_partition_actions = 20'000'000;
    /// Where fewer plans were simulated, some of those that were left out are, too, as far as their
    /// bound is within 5 % of the best plan.
    std::int64_t least_ranked = 10;
    /// The number of the fastest candidates whose partitions are improved as far as a search of
    /// each alone would (`FoundPlan::finished`).
    std::int64_t finished_rows = 10;
    /// So many actions are simulated for all of these together.
    std::int64_t most_row_actions = 20'000'000;
    /// Keeps the best plan of every number of stages (`telling_stage_counts`) and of micro-batches,
    /// and does not leave out one because another cell has a faster one: for a heat map.
    bool every_cell = false;
    /// Looks for the plan that lacks least where nothing fits, which takes as long as a search.
    bool finds_closest = true;
    /// The memory of a search of the same scenario, or of one that leaves more open; null: none. It
    /// is added to, so no two searches have it at the same time.
    std::shared_ptr<SearchMemory> memory{};
};

struct SearchResult {
    std::vector<Shape> shapes;      ///< all that the scenario leaves open
    std::vector<int> cell_stages;   ///< with `every_cell`: those that have cells of their own
    bool complete = false;          ///< every plan was simulated or left out
    std::vector<FoundPlan> ranked;  ///< the fastest first; of equal ones the one of fewer devices
    /// No plan is faster whose partition was tried. The step of the best, where the search has
    /// ended.
    Duration lower_bound{};
    /// No plan of the candidates is faster, whatever its partition.
    Duration any_partition_bound{};
    /// The best plan takes no longer than `any_partition_bound`.
    bool proven_optimal = false;
    /// Where the costs come from: by how much two plans must differ to be told apart
    /// (`order_error`).
    CostSource cost_source = CostSource::Estimated;
    std::string stack{};  ///< that estimated them; empty: none
    /// Some shapes could divide the sequence, and the costs do not say what that does.
    bool leaves_out_sequence_parallel = false;
    /// No order of any actions is faster that computes what the candidates compute without
    /// recompute: an equal share of it.
    Duration any_order_bound{};
    std::int64_t partitions = 0;  ///< further ones that were simulated to show that
    std::int64_t candidates = 0;  ///< all that the scenario leaves open
    std::int64_t searched = 0;    ///< of them simulated, and they fit
    std::int64_t pruned = 0;      ///< of them left out, as their bound is above the best plan
    std::vector<Infeasible> infeasible;
    std::optional<ClosestPlan> closest;  ///< where nothing fits
    /// For further searches of a part of the scenario; the first of them takes it over.
    std::shared_ptr<SearchMemory> memory{};
};

/// Tries everything that the scenario leaves open ("auto"), best bound first, and leaves out what
/// cannot beat the best plan so far (sim/bounds/step_bound.h): branch and bound. Deterministic:
/// threads share out the work of a wave, and every wave begins with what the ones before have
/// found.
///
/// For schedules with one stage to a rank, partitions are those that the bound finds, with the
/// longest and the shortest stages first, and the balanced one; for all others the one whose pieces
/// are balanced, with recompute and without. A partition that the scenario writes down
/// is the only one. In the end, every other partition that could beat the best plan is simulated,
/// too, where there are not too many of them; where there are, layers move between the pieces of
/// the best one.
///
/// Throws Error(BadInput) as `shapes_of`, and as make_plan for what no candidate can mend.
SearchResult search_plans(const Scenario& scenario,
                          const Model& model,
                          const Profile& profile,
                          const SearchOptions& options = {});

}  // namespace pipetwin::sim
