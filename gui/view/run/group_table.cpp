// SPDX-License-Identifier: Apache-2.0
#include "gui/view/run/group_table.h"

#include <algorithm>
#include <array>
#include <string_view>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/base/as_index.h"
#include "core/base/number_text.h"
#include "core/plan/plan.h"
#include "core/scenario/cluster/group_messages.h"
#include "core/scenario/division.h"
#include "core/scenario/planner.h"
#include "core/scenario/settled_scenario.h"
#include "core/timeline/metrics.h"
#include "sim/simulate/simulate.h"

namespace pipetwin::gui {

namespace {

std::string_view words(GroupAxis axis) {
    constexpr std::array<std::string_view, 7> names{"tensor",
                                                    "context",
                                                    "experts",
                                                    "parts of an expert",
                                                    "data",
                                                    "data of experts",
                                                    "pipeline"};
    return names.at(as_index(axis));
}

std::string_view words(Beside beside) {
    constexpr std::array<std::string_view, 6> names{
        "nothing", "products", "attention", "last backwards", "layers", "other actions"};
    return names.at(as_index(beside));
}

std::string collectives(const GroupMessages& group) {
    std::vector<std::string> names;
    for (const Collective kind : group.collectives) {
        names.emplace_back(to_string(kind));
    }
    return names.empty() ? "messages" : fmt::format("{}", fmt::join(names, ", "));
}

TextRows group_rows(const std::vector<GroupMessages>& groups) {
    TextRows table{.headers = {"groups", "devices", "messages", "sent", "time", "beside"}};
    for (const GroupMessages& group : groups) {
        const bool on_ranks = group.axis == GroupAxis::Pipeline;
        const bool is_timed = group.axis != GroupAxis::ExpertData;
        table.rows.push_back(
            {std::string(words(group.axis)),
             on_ranks ? std::to_string(group.members)
                      : fmt::format("{} on {}", group.members, counted(group.nodes, "node")),
             collectives(group),
             format_bytes(group.sent),
             is_timed ? format_duration(group.time) : "in that of data",
             std::string(words(group.beside))});
    }
    return table;
}

TextRows expert_rows(const std::vector<ExpertState>& states) {
    TextRows table{.headers = {"experts of rank", "weights", "gradients", "optimizer"}};
    for (std::size_t rank = 0; rank < states.size(); ++rank) {
        const ExpertState& state = states[rank];
        table.rows.push_back({std::to_string(rank),
                              format_bytes(state.weights),
                              format_bytes(state.gradients),
                              format_bytes(state.optimizer)});
    }
    return table;
}

/// The step with an even load, with the layers of the plan's stages.
Duration even_step(const Plan& plan,
                   SettledScenario scenario,
                   const Model& model,
                   const Profile& profile) {
    scenario.training.expert_load = {};
    const Planner planner(scenario, model, profile);
    return step_time(
        sim::simulate(planner.plan(plan->partition.value().layers_per_stage(), plan->recompute)));
}

std::string load_text(const Plan& plan,
                      const SettledScenario& scenario,
                      const Model& model,
                      const Profile& profile) {
    const ExpertLoad load = layer_division(scenario, profile).load;
    if (load.capacity > 0) {
        return fmt::format(
            "All devices have as many rows of experts, which are filled up to {:g} "
            "times the mean.",
            load.capacity);
    }
    double fullest = load.fullest;
    for (const double of_block : load.of_block) {
        fullest = std::max(fullest, of_block);
    }
    if (fullest == 1) {
        return "All devices have as many rows of experts.";
    }
    const Duration step = step_time(sim::simulate(plan));
    const Duration even = even_step(plan, scenario, model, profile);
    return fmt::format(
        "The fullest device has {:.3g} times the mean of rows of experts. With as "
        "many on each a step would take {} in place of {}.",
        fullest,
        format_duration(even),
        format_duration(step));
}

}  // namespace

GroupTable group_table(const Plan& plan,
                       const SettledScenario& scenario,
                       const Model& model,
                       const Profile& profile) {
    GroupTable table{.groups = group_rows(group_messages(plan, scenario, model, profile)),
                     .experts = expert_rows(expert_states(plan, scenario, model, profile))};
    if (!table.experts.rows.empty()) {
        table.load = load_text(plan, scenario, model, profile);
    }
    return table;
}

}  // namespace pipetwin::gui
