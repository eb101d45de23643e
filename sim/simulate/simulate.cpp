// SPDX-License-Identifier: Apache-2.0
#include "sim/simulate/simulate.h"

#include <utility>

#include "sim/engine/event_engine.h"
#include "sim/engine/fixed_order.h"

namespace pipetwin::sim {

Timeline replay(const Plan& plan, const Conditions& conditions, Timeline recycled) {
    return conditions.contention.any() ? by_events(plan, conditions, std::move(recycled))
                                       : in_fixed_order(plan, conditions, std::move(recycled));
}

Duration replayed_step(const Plan& plan, const Conditions& conditions) {
    return conditions.contention.any() ? step_time(by_events(plan, conditions))
                                       : step_in_fixed_order(plan, conditions);
}

Timeline simulate(const Plan& plan, Timeline recycled) {
    return replay(plan, planned_conditions(plan), std::move(recycled));
}

}  // namespace pipetwin::sim
