#include "core/plan_order.h"

#include <algorithm>

#include "core/defer.h"
#include "core/error.h"
#include "core/lower.h"

namespace pipetwin {

Schedule with_deferred_weights(const Schedule& order,
                               const PlanParts& parts,
                               Recompute recompute,
                               int most) {
    if (compute_only(order) != order) {
        throw Error(ErrorKind::Infeasible,
                    parts.schedule_name,
                    "weight gradients can be put off only in rows of F, B, I and W",
                    "leave 'deferred_weights' out, or the rows' communication and recomputes");
    }
    DeferralCosts costs;
    costs.most_waiting = most;
    for (const StageCost& stage : parts.costs.front()) {
        const Duration again = recompute == Recompute::None ? Duration{} : stage.recompute;
        costs.forward.push_back(stage.forward + parts.dispatch);
        costs.backward_input.push_back(stage.backward_input + again + parts.dispatch);
        costs.backward_weight.push_back(stage.backward_weight + parts.dispatch);
    }
    for (std::size_t boundary = 0; boundary < parts.links.size(); ++boundary) {
        const LinkCost& link = parts.links[boundary];
        const Bytes message = parts.costs.front()[boundary].output;
        const Duration way =
            link.latency + transfer_time(message + link.half_bandwidth, link.bytes_per_second);
        costs.latency = std::max(costs.latency, way);
    }
    return defer_weight_gradients(order, costs);
}

Recompute lowered_recompute(const Schedule& schedule, Recompute wanted) {
    const Recompute own = recompute_of(schedule).value_or(Recompute::None);
    const bool nothing_to_do = wanted == Recompute::ExceptLast && schedule.micro_batches == 1;
    return nothing_to_do ? wanted : own;
}

}  // namespace pipetwin
