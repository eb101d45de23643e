// SPDX-License-Identifier: Apache-2.0
#include "sim/questions/unit_costs.h"

#include <utility>

#include "core/base/as_index.h"
#include "core/plan/plain_plan.h"
#include "core/schedule/generators/generate.h"
#include "sim/questions/prediction.h"
#include "sim/simulate/settled_capacity.h"
#include "sim/simulate/simulate.h"

namespace pipetwin::sim {

Plan unit_plan(PlainCosts costs) {
    const std::size_t pieces = as_index(model_stage_count(costs.schedule_from_file.value()));
    costs.forward.assign(pieces, cost_unit);
    costs.backward.assign(pieces, 2 * cost_unit);
    return with_settled_capacity(make_plan(costs));
}

Timeline unit_timeline(const Schedule& schedule, std::optional<int> capacity) {
    PlainCosts costs;
    costs.schedule = ScheduleKind::FromFile;
    costs.schedule_from_file = schedule;
    costs.channel_capacity = capacity;
    return simulate(unit_plan(std::move(costs)));
}

}  // namespace pipetwin::sim
