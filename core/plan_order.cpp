#include "core/plan_order.h"

#include <algorithm>
#include <utility>

#include "core/defer.h"
#include "core/error.h"
#include "core/lower.h"

namespace pipetwin {

Schedule with_deferred_weights(const Schedule& order, const PlanParts& parts, int most) {
    if (compute_only(order) != order) {
        throw Error(ErrorKind::Infeasible,
                    parts.schedule_name,
                    "weight gradients can be put off only in rows of F, B, I and W",
                    "leave 'deferred_weights' out, or the rows' communication and recomputes");
    }
    ZeroBubbleCosts known = zero_bubble_costs(parts);
    DeferralCosts costs;
    costs.forward = std::move(known.forward);
    costs.backward_input = std::move(known.backward_input);
    costs.backward_weight = std::move(known.backward_weight);
    costs.latency = known.latency.empty() ? Duration{} : std::ranges::max(known.latency);
    costs.most_waiting = most;
    return defer_weight_gradients(order, costs);
}

Recompute lowered_recompute(const Schedule& schedule, Recompute wanted) {
    const Recompute own = recompute_of(schedule).value_or(Recompute::None);
    const bool nothing_to_do = wanted == Recompute::ExceptLast && schedule.micro_batches == 1;
    return nothing_to_do ? wanted : own;
}

}  // namespace pipetwin
