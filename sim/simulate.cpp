#include "sim/simulate.h"

#include "sim/event_engine.h"
#include "sim/fixed_order.h"

namespace pipetwin::sim {

Timeline replay(const Plan& plan, const Conditions& conditions) {
    return conditions.contention.any() ? by_events(plan, conditions)
                                       : in_fixed_order(plan, conditions);
}

Timeline simulate(const Plan& plan) {
    return replay(plan, planned_conditions(plan));
}

}  // namespace pipetwin::sim
