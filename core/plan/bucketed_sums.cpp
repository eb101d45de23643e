// SPDX-License-Identifier: Apache-2.0
#include "core/plan/bucketed_sums.h"

#include <algorithm>

#include "core/base/as_index.h"
#include "core/base/error.h"
#include "core/plan/plan.h"

namespace pipetwin {

namespace {

/// Time of the gradients of weights in an action; zero for one that makes none.
Duration time_of_gradients(const PlanParts& parts, const Action& action) {
    if (action.op != Op::Backward && action.op != Op::BackwardWeight) {
        return {};
    }
    const std::size_t number = as_index(parts.cost_class[as_index(action.micro_batch)]);
    const StageCost& cost = parts.costs[number][as_index(action.stage)];
    return action.op == Op::Backward ? cost.backward : cost.backward_weight;
}

/// Time for which a rank computes in an action of a micro-batch; zero for others.
Duration time_of_compute(const PlanParts& parts, const Action& action) {
    if (!is_compute(action.op) || !has_micro_batch(action.op)) {
        return {};
    }
    const std::size_t number = as_index(parts.cost_class[as_index(action.micro_batch)]);
    const StageCost& cost = parts.costs[number][as_index(action.stage)];
    return action.op == Op::Forward         ? cost.forward
           : action.op == Op::Backward      ? cost.backward
           : action.op == Op::BackwardInput ? cost.backward_input
                                            : cost.backward_weight;
}

}  // namespace

void add_bucketed_sums(PlanParts& parts, const std::vector<int>& buckets, double share) {
    PIPETWIN_EXPECT(buckets.size() == parts.all_reduce.size(), "each stage has its buckets");
    parts.bucketed_sums.assign(buckets.size(), {});
    std::vector<Duration> last(buckets.size());  // [stage] backward so far
    for (const auto& row : parts.schedule.ranks) {
        for (const Action& action : row) {
            const std::size_t stage = as_index(action.stage);
            if (const Duration time = time_of_gradients(parts, action); time > Duration{}) {
                last[stage] = time;
            } else if (action.op == Op::ReduceGradient) {
                const Duration sums = parts.all_reduce[stage];
                const Duration bucket = last[stage] / buckets[stage];
                parts.bucketed_sums[stage] = {
                    .head = last[stage] - bucket,
                    .tail = sums / buckets[stage],
                    .slowed = scaled(std::min(last[stage] - bucket, sums), share)};
            }
        }
    }
}

void hide_weight_gathers(PlanParts& parts, const std::vector<int>& buckets, double share) {
    PIPETWIN_EXPECT(buckets.size() == parts.weight_gather.size(), "each stage has its buckets");
    std::vector<bool> begun(buckets.size());
    for (const auto& row : parts.schedule.ranks) {
        Duration now{};       // of the rank's computation
        Duration gathered{};  // when the network has carried the gathers so far
        for (const Action& action : row) {
            const std::size_t stage = as_index(action.stage);
            const Duration time = time_of_compute(parts, action);
            if (action.op == Op::Forward && !begun[stage]) {
                begun[stage] = true;
                gathered += parts.weight_gather[stage];
                const Duration beside = time - time / buckets[stage];
                const Duration slowed = scaled(std::min(beside, parts.weight_gather[stage]), share);
                const Duration waits = std::max(Duration{}, gathered - beside - now);
                parts.weight_gather[stage] = std::min(parts.weight_gather[stage], waits + slowed);
                now += waits;
            }
            now += time;
        }
    }
}

}  // namespace pipetwin
