// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include <nlohmann/json_fwd.hpp>

#include "core/schedule/recompute.h"

namespace pipetwin {

class Plan;

/// plan.json of a run folder: everything in PlanParts but the rows (they stand in schedule.csv),
/// plus the hash, the smallest capacity and peak bytes per rank (those with every stash on its
/// device).
std::string print_plan(const Plan& plan);

/// The JSON value of recompute rules: "always", or ["always", "none"] where the model stages
/// differ. If the layers recompute a part of their work, the word for that part: "block".
nlohmann::ordered_json recompute_json(const RecomputeRules& rules,
                                      LayerRecompute of_layers = LayerRecompute::None);

}  // namespace pipetwin
