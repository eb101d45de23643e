// SPDX-License-Identifier: Apache-2.0
#include "cli/predict/unit_costs.h"

#include <utility>

#include "cli/predict/prediction.h"
#include "core/base/as_index.h"
#include "core/schedule/generators/generate.h"
#include "sim/simulate/simulate.h"

namespace pipetwin::cli {

Plan unit_plan(PlainCosts costs) {
    const std::size_t pieces = as_index(model_stage_count(costs.schedule_from_file.value()));
    costs.forward.assign(pieces, cost_unit);
    costs.backward.assign(pieces, 2 * cost_unit);
    return sim::with_settled_capacity(make_plan(costs));
}

Timeline unit_timeline(const Schedule& schedule, std::optional<int> capacity) {
    PlainCosts costs;
    costs.schedule = ScheduleKind::FromFile;
    costs.schedule_from_file = schedule;
    costs.channel_capacity = capacity;
    return sim::simulate(unit_plan(std::move(costs)));
}

}  // namespace pipetwin::cli
