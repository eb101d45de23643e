// SPDX-License-Identifier: Apache-2.0
#include "cli/commands/plan_question.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include <fmt/format.h>

#include "cli/commands/no_plan.h"
#include "cli/run_folder/run_folder.h"
#include "cli/text/planning.h"
#include "core/base/error.h"
#include "core/costs/devices/shipped_profiles.h"
#include "sim/questions/model_on_cluster.h"
#include "sim/questions/whole_plan.h"

namespace pipetwin::cli {

namespace {

sim::ModelQuestion question_of(const PlanOptions& options) {
    const std::string name = options.scenario.filename().string();
    const std::filesystem::path costs =
        options.common.out.empty()
            ? std::filesystem::path(name + ".profile.json")
            : std::filesystem::absolute(options.common.out) / run_file::profile;
    return {.model = options.scenario,
            .cluster = options.cluster,
            .nodes = options.nodes,
            .sequence = options.sequence,
            .batch_tokens = options.batch_tokens,
            .precision = options.precision,
            .stack = options.stack,
            .whole_blocks = options.whole_blocks,
            .overrides = options.common.overrides,
            .costs_file = costs};
}

}  // namespace

Asked asked(const PlanOptions& options, const Tell& tell) {
    if (!names_model(options)) {
        Scenario scenario =
            read_scenario(options.scenario, options.common.overrides, Unwritten::Auto);
        sim::FoundProfile found = sim::find_profile(scenario, options.profile, options.common.out);
        tell(fmt::format("costs: {}", found.file.string()));
        if (!options.largest) {
            sim::open_division(scenario, found.profile);
        }
        return {.scenario = std::move(scenario), .found = std::move(found)};
    }
    if (!options.profile.empty()) {
        throw Error(ErrorKind::Usage,
                    "--profile",
                    fmt::format("the costs of the model '{}' are estimated for the devices of "
                                "--cluster, expected a scenario beside other costs",
                                options.scenario.string()),
                    fmt::format("plan with the costs in place of the model: pipetwin plan {} "
                                "--cluster NAME",
                                options.profile.string()));
    }
    if (!options.calibration.empty()) {
        throw Error(ErrorKind::Usage,
                    "--calibrate",
                    fmt::format("measured runs have a batch and devices of their own, expected a "
                                "scenario in place of the model '{}'",
                                options.scenario.string()),
                    "write its costs with 'pipetwin import hf', and name them in a scenario "
                    "(docs/tutorials/choose-a-configuration.md)");
    }
    sim::expect_model_file(options.scenario);
    if (options.cluster.empty()) {
        throw Error(ErrorKind::Usage,
                    "plan",
                    fmt::format("'{}' is a model, not a scenario, and --cluster is missing",
                                options.scenario.string()),
                    cluster_hint());
    }
    sim::ModelOnCluster model = sim::model_on_cluster(question_of(options));
    std::ranges::for_each(model.notes, tell);
    return {.scenario = std::move(model.scenario),
            .found = std::move(model.found),
            .is_model = true,
            .config = std::move(model.config),
            .nodes = std::move(model.nodes)};
}

Planned planned(const Scenario& scenario,
                Profile profile,
                const sim::NodesOfModel& nodes,
                bool every_cell,
                Console& console) {
    expect_unit_of_limit(scenario, profile);
    Model model = scenario_model(scenario, &profile);
    sim::SearchResult result = search_with_progress(scenario, model, profile, every_cell, console);
    if (result.ranked.empty()) {
        throw no_plan(scenario, model, profile, nodes, result, console);
    }
    return {.profile = std::move(profile), .model = std::move(model), .result = std::move(result)};
}

AnswerParts answer_parts(const PlanOptions& options,
                         const Asked& question,
                         const Planned& plan,
                         const sim::Prediction& prediction,
                         const sim::EveryShape& shapes) {
    return {.model = options.scenario.filename().string(),
            .cluster = options.cluster,
            .nodes = options.nodes,
            .sequence = static_cast<int>(plan.profile.tokens_per_sample),
            .tokens = options.tokens,
            .price = options.price(),
            .sizes = sim::model_sizes(question.config, plan.profile),
            .scenario = question.scenario,
            .profile = plan.profile,
            .best = prediction,
            .plan = plan.best(),
            .shapes = shapes,
            .search = plan.result};
}

}  // namespace pipetwin::cli
