// SPDX-License-Identifier: Apache-2.0
#include "sim/questions/node_counts.h"

#include <string>

#include "core/model/model.h"
#include "core/plan/plan.h"
#include "core/plan/stage_costs.h"
#include "core/scenario/layer_costs.h"
#include "core/scenario/rank_device.h"
#include "core/schedule/generators/generate.h"
#include "sim/search/largest_model.h"
#include "sim/search/plan_search.h"

namespace pipetwin::sim {

int least_nodes(const Scenario& scenario,
                const Model& model,
                const Profile& profile,
                int nodes,
                const SearchResult& result) {
    const std::optional<ClosestPlan> closest =
        result.closest ? result.closest : closest_plan(scenario, profile);
    if (!closest) {
        return 1;
    }
    const Bytes state = kept_state(model,
                                   profile,
                                   {.optimizer = optimizer_state(scenario),
                                    .fp32_gradients = has_fp32_gradients(scenario, profile),
                                    .shards = {}});
    const std::int64_t of_node = closest->limit.count * (scenario.cluster.count / nodes);
    return static_cast<int>((state.count + of_node - 1) / of_node);
}

std::optional<int> enough_nodes(const NodesOfModel& nodes,
                                const Profile& profile,
                                int first,
                                const std::function<bool(std::optional<double> share)>& goes_on) {
    constexpr int most_tried = 4;
    SearchOptions any;
    any.progress = [&goes_on](const SearchProgress& now) {
        return !now.best.has_value() && goes_on(std::nullopt);
    };
    any.finds_closest = false;
    for (int tried = 0; tried < most_tried; ++tried) {
        if (!goes_on(double{1} * tried / most_tried)) {
            return std::nullopt;
        }
        Scenario scenario = nodes.scenario_on(first + tried);
        Scenario::PipelinePart& pipeline = scenario.pipeline;
        if (pipeline.schedule.is_auto() && pipeline.schedule.choices().empty()) {
            pipeline.schedule =
                std::string(to_string(ScheduleKind::OneFOneB));  // a try takes a second
        }
        leave_undivided(scenario);
        const Model model = scenario_model(scenario, &profile);
        if (!search_plans(scenario, model, profile, any).ranked.empty()) {
            return first + tried;
        }
    }
    return std::nullopt;
}

}  // namespace pipetwin::sim
