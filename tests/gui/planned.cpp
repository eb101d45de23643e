// SPDX-License-Identifier: Apache-2.0
#include "tests/gui/planned.h"

#include <utility>

#include "core/plan/plain_plan.h"
#include "gui/view/run/planned_run.h"
#include "sim/engine/conditions.h"
#include "sim/simulate/simulate.h"

namespace pipetwin::gui {

std::shared_ptr<const RunData> planned_run(const Plan& plan, std::vector<Timeline> measured) {
    RunData run;
    run.path = "planned";
    run.schedule_name = plan->schedule_name;
    run.micro_batches = plan.micro_batches();
    TimelineSet predicted;
    predicted.steps = {sim::simulate(plan)};
    DrawnSide upper = drawn_side(predicted);
    run.twin.predicted = std::move(upper.steps);
    run.predicted = std::move(upper.data);
    if (!measured.empty()) {
        TimelineSet steps;
        steps.steps = std::move(measured);
        DrawnSide lower = drawn_side(steps);
        run.twin.measured = std::move(lower.steps);
        run.measured = std::move(lower.data);
        run.comparison = compare(predicted, steps);
    }
    run.planned = std::make_shared<const PlannedRun>(
        SettledScenario{}, Model::opaque({{.name = "layer"}}), Profile{}, plan);
    return std::make_shared<const RunData>(std::move(run));
}

std::shared_ptr<const RunData> run_with_skips(int micro_batches) {
    PlainCosts costs;
    costs.schedule = ScheduleKind::OneFOneB;
    costs.schedule_name = "1f1b";
    costs.shape = {.ranks = 4, .micro_batches = micro_batches};
    costs.forward.assign(4, std::chrono::milliseconds(1));
    costs.backward.assign(4, std::chrono::milliseconds(2));
    costs.skips = {{.from = 0, .to = 2}, {.from = 0, .to = 3}};
    const Plan plan = make_plan(costs);
    std::mt19937 random(7);
    return planned_run(plan, {jittered_step(plan, random)});
}

Timeline jittered_step(const Plan& plan, std::mt19937& random) {
    sim::Conditions conditions = sim::with_planned_durations(plan);
    for (auto& row : conditions.durations) {
        for (Duration& duration : row) {
            duration += duration * static_cast<int>(random() % 50) / 100;
        }
    }
    Timeline step = sim::replay(plan, conditions);
    step.origin = Origin::Measured;
    step.links.clear();
    return step;
}

}  // namespace pipetwin::gui
