// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cli/base/console.h"
#include "cli/commands/plan_options.h"

/// `plan` for several clusters, numbers of nodes and stacks at once.
namespace pipetwin::cli {

/// Searches the best plan of every combination, and shows the table in the forms that are asked
/// for. Throws Error(Infeasible) behind the table where no combination has a plan.
void plan_combinations(const PlanOptions& options, Console& console);

}  // namespace pipetwin::cli
