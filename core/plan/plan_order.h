// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/plan/plan.h"
#include "core/schedule/generators/generate.h"

/// Passes over the order of actions that plans from numbers and plans from scenarios share.
namespace pipetwin {

/// Costs for the generators that search an order, from the costs and the links of a plan: those of
/// the first cost class, with the dispatch, and the recompute as a part of I. Under a memory limit,
/// the number of activations that fit on each rank. Plain numbers say nothing of memory; with a
/// model an activation counts in full until the end of its W, as I frees nothing here. `grid` says
/// which stage has which layers.
ZeroBubbleCosts zero_bubble_costs(const PlanParts& parts, const Schedule& grid);

/// The order with its weight gradients put off into the waits that `parts.costs` and `parts.links`
/// make, at most `most` of them at a time. Throws Error(Infeasible) if the rows say already when
/// messages are sent or what is recomputed.
Schedule with_deferred_weights(const Schedule& order, const PlanParts& parts, int most);

/// The recompute rules that the rows follow; `wanted` where it asks for nothing else ("except-last"
/// of one micro-batch).
RecomputeRules lowered_recompute(const Schedule& schedule, const RecomputeRules& wanted);

}  // namespace pipetwin
