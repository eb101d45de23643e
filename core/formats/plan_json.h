#pragma once

#include <string>

#include "core/plan.h"

namespace pipetwin {

/// plan.json of a run folder: everything in PlanParts but the rows (they stand in schedule.csv),
/// plus the hash, the smallest capacity and peak bytes per rank (those with every stash on its
/// device).
std::string print_plan(const Plan& plan);

}  // namespace pipetwin
