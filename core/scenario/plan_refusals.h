// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "core/costs/profile.h"
#include "core/model/model.h"
#include "core/plan/plan.h"
#include "core/scenario/settled_scenario.h"
#include "core/schedule/recompute.h"
#include "core/schedule/schedule.h"

/// What the parts of a plan must agree on: scenario, model, profile, and the grid, the schedule
/// that says which rank has which piece. Each function throws Error(BadInput), or Error(Infeasible)
/// for rows of a file, where they do not.
namespace pipetwin {

/// The cluster has a device for each stage of each replica, and for each of a rank's devices.
void require_devices(const SettledScenario& scenario);

/// A list of recompute modes has one for each piece. Where stages are planned, a reader does not
/// know of how many pieces the list is to speak.
void require_recompute_fits(const RecomputeRules& recompute,
                            const Schedule& grid,
                            const SettledScenario& scenario);

/// Lists of modules are none, one for all stages or one for each piece.
void require_modules_fit(const SettledScenario& scenario, const Schedule& grid);

/// The profile has costs near these sizes of micro-batches. The error is that of `samples_at`, with
/// the numbers of micro-batches that the profile has costs for.
void require_costs_at(const std::vector<int>& sizes,
                      const SettledScenario& scenario,
                      const Profile& profile);

/// The profile knows what core attention takes, where that is computed again.
void require_known_attention(const SettledScenario& scenario, const Profile& profile);

/// Two pipelines of one model have no tied ends: the gradients of both ends of both would have to
/// be summed.
void refuse_tied_twins(const PlanParts& parts, const Schedule& grid, const Model& model);

/// Batch norms have what they need: two values for each channel in the smallest micro-batch, and
/// one set of running statistics.
void refuse_batch_norms(const PlanParts& parts, const Schedule& grid, const Model& model);

/// Two pipelines of one model have one replica.
void refuse_replicas_of_twins(const PlanParts& parts, const Schedule& grid);

/// Each stage of several replicas sums its gradients. Rows of a file may have updates of their own,
/// without these sums.
void require_reductions(const PlanParts& parts);

/// The norm of all gradients is known before any update, where gradients are clipped. Rows of a
/// file may have updates of their own, which do not know of the norm.
void require_norms(const SettledScenario& scenario, const PlanParts& parts);

}  // namespace pipetwin
