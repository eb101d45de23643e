// SPDX-License-Identifier: Apache-2.0
#include "core/plan/plan_order.h"

#include <algorithm>
#include <utility>

#include "core/base/error.h"
#include "core/schedule/defer.h"
#include "core/schedule/generators/generate.h"
#include "core/schedule/lower.h"

namespace pipetwin {

namespace {

/// From the end of the action that made a message to the moment when the next rank can use it.
Duration message_time(const LinkCost& link, Bytes message) {
    if (message.count <= 0) {
        return link.latency;
    }
    // A longer one is refused later.
    return link.latency +
           std::min(longest_step,
                    transfer_time(message + link.half_bandwidth, link.bytes_per_second));
}

/// A live activation counts as what it takes at most, before its I or between I and W: what its
/// layers saved, or what their W read of that with the gradients of their inner outputs; and the
/// gradient of the stage's output.
Bytes activation_bytes(const StageCost& cost) {
    return cost.saved + std::max(Bytes{}, cost.split - cost.input_saved) + cost.output;
}

/// Bytes that an activation takes in addition while its I is at work.
Bytes input_half_bytes(const StageCost& cost) {
    const Bytes most = std::max(cost.backward_input_peak, cost.saved + cost.output);
    return std::max(Bytes{}, most - activation_bytes(cost));
}

/// Most bytes that a rank holds beside its live activations.
Bytes resident_bytes(const PlanParts& parts, std::size_t stage, Recompute recompute) {
    const StageState& state = parts.states[stage];
    const StageCost& cost = parts.costs.front()[stage];
    const std::int64_t messages = 1 + parts.channel_capacity.value_or(0);
    const Bytes passing = recompute == Recompute::None ? Bytes{} : cost.forward_drop_peak;
    return state.weights + state.running + state.gradients + state.optimizer_state +
           state.workspace + state.gathered + messages * (cost.input + cost.output) + passing +
           input_half_bytes(cost);
}

/// Number of activations that fit under the memory limit. One even where none does: whether a plan
/// fits is checked by `check_memory`.
int live_limit(const PlanParts& parts, std::size_t stage, Recompute recompute, Bytes limit) {
    const auto all = static_cast<std::int64_t>(parts.cost_class.size());
    const Bytes each = activation_bytes(parts.costs.front()[stage]);
    if (each.count <= 0) {
        return static_cast<int>(all);
    }
    const Bytes context = stage < parts.context.size() ? parts.context[stage] : Bytes{};
    const Bytes room = limit - context - resident_bytes(parts, stage, recompute);
    return static_cast<int>(std::clamp(room.count / each.count, std::int64_t{1}, all));
}

}  // namespace

ZeroBubbleCosts zero_bubble_costs(const PlanParts& parts, const Schedule& grid) {
    const std::vector<StageCost>& stages = parts.costs.front();
    ZeroBubbleCosts result;
    const auto recompute_of = [&](std::size_t stage) {
        return parts.recompute.of(model_stage_of(grid, static_cast<int>(stage)));
    };
    for (const StageCost& stage : stages) {
        const Duration again = recompute_of(result.forward.size()) == Recompute::None
                                   ? Duration{}
                                   : parts.dispatch + stage.recompute;
        result.forward.push_back(parts.dispatch + stage.forward);
        result.backward_input.push_back(again + parts.dispatch + stage.backward_input);
        result.backward_weight.push_back(parts.dispatch + stage.backward_weight);
    }
    for (std::size_t boundary = 0; boundary + 1 < stages.size(); ++boundary) {
        result.latency.push_back(message_time(parts.links[boundary], stages[boundary].output));
    }
    if (parts.partition) {
        result.activation = Bytes{1};
        result.kept_for_weight = Bytes{1};
    }
    const bool one_per_rank = parts.memory_limits.size() == stages.size();
    for (std::size_t stage = 0; stage < stages.size(); ++stage) {
        if (one_per_rank) {
            result.live_limit.push_back(
                live_limit(parts, stage, recompute_of(stage), parts.memory_limits[stage]));
        } else if (parts.memory_limit) {
            result.live_limit.push_back(
                live_limit(parts, stage, recompute_of(stage), *parts.memory_limit));
        }
    }
    return result;
}

Schedule with_deferred_weights(const Schedule& order, const PlanParts& parts, int most) {
    if (compute_only(order) != order) {
        throw Error(ErrorKind::Infeasible,
                    parts.schedule_name,
                    "weight gradients can be put off only in rows of F, B, I and W",
                    "leave 'deferred_weights' out, or the rows' communication and recomputes");
    }
    ZeroBubbleCosts known = zero_bubble_costs(parts, order);
    DeferralCosts costs;
    costs.forward = std::move(known.forward);
    costs.backward_input = std::move(known.backward_input);
    costs.backward_weight = std::move(known.backward_weight);
    costs.latency = known.latency.empty() ? Duration{} : std::ranges::max(known.latency);
    costs.most_waiting = most;
    return defer_weight_gradients(order, costs);
}

RecomputeRules lowered_recompute(const Schedule& schedule, const RecomputeRules& wanted) {
    const RecomputeRules own = recompute_of(schedule).value_or(Recompute::None);
    return wanted.at(schedule.micro_batches) == own ? wanted : own;
}

}  // namespace pipetwin
