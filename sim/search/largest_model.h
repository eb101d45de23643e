// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "core/costs/profile.h"
#include "core/costs/repeated_layers.h"
#include "core/timeline/footprint.h"
#include "sim/search/candidate.h"
#include "sim/search/found_plan.h"

namespace pipetwin {

struct Scenario;

}  // namespace pipetwin

/// How large a model the devices of a scenario can train: GPipe's question (Huang et al. 2019,
/// Table 1). Only memory decides, never time.
namespace pipetwin::sim {

struct LargestModel {
    int copies = 0;  ///< 0: not even one fits; then `next` is the plan that misses least
    Candidate candidate{};
    std::vector<int> partition{};  ///< layers per piece, all layers of the model
    int channel_capacity = 0;
    std::vector<MemoryUse> peaks{};     ///< [rank]
    std::vector<Bytes> limits{};        ///< [rank]
    std::optional<ClosestPlan> next{};  ///< of the same candidate, with its closest partition
    std::string why_no_plan{};          ///< where there is no `next`, as it cannot be planned
    bool complete = true;               ///< false: the search was ended, other plans may hold more
    bool is_most = false;               ///< no model may have more layers: memory has room
    std::int64_t candidates = 0;        ///< all that the scenario leaves open
    std::int64_t tried = 0;             ///< of them planned, as they could hold more
};

/// Called with the best number so far after every wave of candidates; the search ends where it
/// returns false.
using LargestProgress = std::function<bool(double share, int copies)>;

/// The largest number of copies of `repeated` for which a plan of what the scenario leaves open
/// fits into the memory of all ranks, and such a plan. `profile` has the layers of the scenario's
/// model.
///
/// For schedules with one stage to a rank every partition counts: each rank takes as many layers as
/// fit, one after the other, which misses none as long as boundaries do not grow from layer to
/// layer. Others have their balanced partition. A candidate is left out where the memory of all
/// ranks together is too small to hold its states and the stash of one micro-batch. Of candidates
/// that reach the same number the one with the most room by that measure is named.
///
/// Throws Error(BadInput) if nothing limits the memory, if the partition is written down, or as
/// `shapes_of`.
LargestModel largest_model(const Scenario& scenario,
                           const Profile& profile,
                           const RepeatedLayers& repeated,
                           const LargestProgress& progress = {});

/// Where no plan fits, the one that misses by the least among those that promise most; none where
/// none can be made. Throws as `largest_model`, but a written partition is kept.
std::optional<ClosestPlan> closest_plan(const Scenario& scenario, const Profile& profile);

}  // namespace pipetwin::sim
