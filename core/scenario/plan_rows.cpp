// SPDX-License-Identifier: Apache-2.0
#include "core/scenario/plan_rows.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "core/plan/plan.h"
#include "core/plan/plan_order.h"
#include "core/scenario/settled_scenario.h"
#include "core/schedule/generators/generators.h"
#include "core/schedule/lower.h"
#include "core/schedule/validate.h"

namespace pipetwin {

namespace {

bool has_order_from_costs(const SettledScenario& scenario) {
    return schedule_traits(scenario.pipeline.schedule).order_from_costs;
}

}  // namespace

bool rows_follow_costs(const SettledScenario& scenario) {
    return has_order_from_costs(scenario) || scenario.pipeline.deferred_weights > 0;
}

Schedule plan_grid(const SettledScenario& scenario) {
    const SettledScenario::PipelinePart& pipeline = scenario.pipeline;
    if (!has_order_from_costs(scenario)) {
        return scenario_schedule(scenario);
    }
    return schedules::loop_placement(
        {.ranks = pipeline.stages,
         .chunks = pipeline.chunks,
         .micro_batches = std::min(pipeline.micro_batches, replica_batch(scenario))});
}

Schedule lowered_order(const SettledScenario& scenario, Schedule grid, const PlanParts& parts) {
    const SettledScenario::PipelinePart& pipeline = scenario.pipeline;
    std::vector<StagePair> skips = grid.skips;
    Schedule order =
        has_order_from_costs(scenario)
            ? scenario_schedule(scenario, {.zero_bubble = zero_bubble_costs(parts, grid)})
            : std::move(grid);
    order.skips = std::move(skips);
    if (pipeline.deferred_weights > 0) {
        order = with_deferred_weights(order, parts, pipeline.deferred_weights);
    }
    order.tied_ends = parts.tied_gradient > Bytes{} && model_stage_count(order) > 1;
    const std::optional<Schedule> written =
        has_schedule_file(scenario) ? std::optional(order) : std::nullopt;
    Schedule rows = lower(std::move(order),
                          {.recompute = parts.recompute,
                           .timing = parts.recompute_timing,
                           .messages = pipeline.message_order,
                           .updates = true,
                           .replicas = parts.replicas > 1,
                           .norms = scenario.training.clip_norm > 0},
                          parts.schedule_name);
    if (written) {
        require_valid(rows, parts.schedule_name, violations_shown, &*written);
        require_deadlock_free(rows, parts.channel_capacity, parts.schedule_name, &*written);
    }
    return rows;
}

}  // namespace pipetwin
