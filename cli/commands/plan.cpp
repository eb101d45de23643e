// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "cli/base/memory_left.h"
#include "cli/base/output_file.h"
#include "cli/base/progress.h"
#include "cli/base/stop_wish.h"
#include "cli/commands/commands.h"
#include "cli/commands/no_plan.h"
#include "cli/commands/plan_combinations.h"
#include "cli/commands/plan_lists.h"
#include "cli/commands/plan_options.h"
#include "cli/commands/plan_question.h"
#include "cli/commands/sweep.h"
#include "cli/figures/figures.h"
#include "cli/interop/exchange.h"
#include "cli/interop/export/plan_exports.h"
#include "cli/predict/scenario_sweep.h"
#include "cli/run_folder/run_folder.h"
#include "cli/text/answer_text.h"
#include "cli/text/calibration_text.h"
#include "cli/text/heat_map.h"
#include "cli/text/hybrid_text.h"
#include "cli/text/largest_text.h"
#include "cli/text/plan_text.h"
#include "cli/text/planning.h"
#include "cli/text/text_output.h"
#include "core/artifacts/chrome_trace.h"
#include "core/artifacts/plan_json.h"
#include "core/base/error.h"
#include "core/base/number_text.h"
#include "core/costs/devices/shipped_profiles.h"
#include "core/costs/profile_json.h"
#include "core/costs/repeated_layers.h"
#include "core/model/model.h"
#include "core/partition/layer_order.h"
#include "core/plan/stage_costs.h"
#include "core/schedule/schedule_csv.h"
#include "exec/base/retry.h"
#include "sim/questions/measured_costs.h"
#include "sim/questions/model_on_cluster.h"
#include "sim/questions/node_counts.h"
#include "sim/questions/prediction.h"
#include "sim/questions/whole_plan.h"
#include "sim/search/every_shape.h"
#include "sim/search/hybrid.h"
#include "sim/search/largest_model.h"
#include "sim/search/plan_search.h"

namespace pipetwin::cli {

namespace {

/// Prints the largest number of layers that fit, in place of the fastest plan.
void show_largest(const Scenario& scenario,
                  const sim::FoundProfile& found,
                  const std::optional<sim::Calibration>& calibration,
                  bool json,
                  Console& console) {
    const RepeatedLayers repeated = repeated_layers(found.profile, found.file.string());
    const sim::LargestModel largest = [&] {
        const StopWish stop(console);
        Progress progress(console, "looking for the largest model");
        sim::LargestModel result =
            sim::largest_model(scenario, found.profile, repeated, [&](double share, int copies) {
                progress.update(share, fmt::format("{} fit", counted(copies, "layer")));
                return !stop.is_asked();
            });
        stop.expect_wanted(result.copies > 0);
        return result;
    }();
    const LargestAnswer answer{scenario, found.profile, repeated, largest};
    if (largest.copies == 0) {
        throw nothing_fits(answer);
    }
    if (json) {
        Json result = largest_json(answer);
        result["calibration"] = calibration_json(calibration);
        console.result(json_text(result));
        return;
    }
    console.result(calibration_text(calibration, console) + largest_text(answer, console));
}

struct NamedOrder {
    BetterOrder order;
    int stages = 1;  ///< that it suits
};

/// An order of the layers that suits the best plan's pieces better than the model's own, or as many
/// stages as it has ranks.
std::optional<NamedOrder> better_order_for(const Scenario& scenario, const Planned& first) {
    const sim::Candidate& candidate = first.best().candidate;
    if (scenario.model.kind != ModelKind::Profile || !scenario.pipeline.partition.is_auto()) {
        return std::nullopt;
    }
    const int samples = scenario.training.batch / candidate.shape.data_parallel;
    const int size = std::max(1, samples / candidate.shape.micro_batches);
    const int stages = candidate.shape.stages;
    for (const int pieces : {stages * candidate.choice.chunks, stages}) {
        if (auto order = better_order(first.profile, first.model, pieces, size)) {
            return NamedOrder{.order = *std::move(order), .stages = pieces};
        }
    }
    return std::nullopt;
}

/// Takes the other order where the user asked for it and it is faster; else says that there is one.
Planned in_the_better_order(const Scenario& scenario,
                            Planned first,
                            const sim::NodesOfModel& nodes,
                            const PlanOptions& options,
                            Console& console) {
    const std::optional<NamedOrder> found = better_order_for(scenario, first);
    if (!found) {
        if (!options.order_out.empty()) {
            console.note("no other order of the layers makes the largest stage smaller");
        }
        return first;
    }
    const BetterOrder& order = found->order;
    const std::string smaller = fmt::format(
        "the largest of {} stages can take {} in place of {} per micro-batch with the layers in "
        "another order",
        found->stages,
        format_duration(order.largest),
        format_duration(order.largest_before));
    if (options.order_out.empty()) {
        console.note(smaller + "; --order-out FILE.profile.json plans with it");
        return first;
    }
    Planned second = planned(scenario, order.profile, nodes, !options.heat_map.empty(), console);
    const bool is_faster = second.best().step < first.best().step;
    console.note(fmt::format("{}: a step takes {}, {} in the model's own",
                             smaller,
                             format_duration(second.best().step),
                             format_duration(first.best().step)));
    if (!is_faster) {
        return first;
    }
    write_output(options.order_out, print_profile(second.profile), console);
    console.note(fmt::format("costs in that order: {}, for model.file in a scenario",
                             options.order_out.string()));
    return second;
}

/// Writes the best plan as `simulate` would, and the search that found it.
void write_best(RunFolder& folder,
                const Scenario& scenario,
                const Planned& plan,
                const sim::Prediction& prediction,
                Console& console) {
    folder.write_scenario(sim::with_plan(scenario, plan.best()).as_scenario());
    folder.write(run_file::profile, print_profile(plan.profile));
    folder.write(run_file::search,
                 json_text(search_json(scenario, plan.result, prediction_json(prediction))));
    folder.write(run_file::plan, print_plan(prediction.plan));
    folder.write(run_file::schedule, print_schedule_csv(prediction.plan->schedule));
    folder.write(run_file::predicted, print_chrome_trace(sim::predicted_trace(prediction)));
    folder.keep_on(exec::disk_patience, [&](const std::string& line) { console.note(line); });
    folder.finish(exec::disk_patience);
}

/// Writes the plan in the words of other systems beside it.
std::vector<PlanExport> write_exports(RunFolder& folder, const Asked& question) {
    if (!question.config.empty()) {  // `export` reads the sizes of the model there
        folder.write(run_file::config, question.config);
    }
    std::vector<PlanExport> exports = plan_exports(folder.path(), question.config);
    for (const PlanExport& one : exports) {
        if (!one.content.empty()) {
            folder.write(one.file, one.content);
        }
    }
    folder.finish(exec::disk_patience);
    return exports;
}

/// Completes the plan, whose search goes over to the result.
sim::WholePlan whole_with_progress(const Scenario& scenario,
                                   Planned& plan,
                                   bool every_shape,
                                   FlopsCount flops_count,
                                   Console& console) {
    sim::WholePlanOptions options{
        .every_shape = every_shape, .memory_left = memory_left(), .flops_count = flops_count};
    if (!every_shape) {
        return sim::whole_plan(scenario, plan.model, plan.profile, std::move(plan.result), options);
    }
    const StopWish stop(console);
    Progress progress(console, "every shape");
    options.progress = [&](double share) {
        progress.update(share, "");
        return !stop.is_asked();
    };
    sim::WholePlan whole =
        sim::whole_plan(scenario, plan.model, plan.profile, std::move(plan.result), options);
    stop.expect_wanted(true);
    return whole;
}

/// Everything that a search has found, to be shown.
struct Findings {
    const PlanOptions& options;
    const Asked& question;
    const Planned& plan;
    const sim::Prediction& prediction;
    std::optional<sim::Calibration> calibration;
    std::optional<sim::Hybrid> hybrid{};
    HeatMapPicture picture{};
    sim::EveryShape shapes{};
    std::vector<PlanExport> exports{};  ///< of a model, with --out

    bool has_heat_map() const { return !options.heat_map.empty(); }
    bool has_exports() const { return question.is_model && !options.common.out.empty(); }
    AnswerParts answer() const;
};

AnswerParts Findings::answer() const {
    return answer_parts(options, question, plan, prediction, shapes);
}

Json findings_json(const Findings& found) {
    Json json =
        search_json(found.question.scenario, found.plan.result, prediction_json(found.prediction));
    if (found.has_heat_map()) {
        json["heat_map"] = heat_map_json(found.plan.result);
    }
    if (found.hybrid) {
        json["hybrid"] = hybrid_json(*found.hybrid);
    }
    json["calibration"] = calibration_json(found.calibration);
    json["answer"] = nullptr;
    if (found.question.is_model) {
        json["answer"] = answer_json(found.answer());
        json["answer"]["written"] = found.has_exports()
                                        ? written_json(found.options.common.out, found.exports)
                                        : Json(nullptr);
    }
    return json;
}

std::string findings_text(const Findings& found, const Console& console) {
    const Scenario& scenario = found.question.scenario;
    const sim::FoundPlan& best = found.plan.best();
    std::string text;
    if (found.question.is_model) {
        text += answer_text(found.answer(), console) + "\nThe fastest plans\n";
    }
    text += calibration_text(found.calibration, console) +
            search_text(scenario, found.plan.result, console) + '\n';
    if (found.has_heat_map()) {
        text += heat_map_text(found.picture, found.plan.result) + '\n';
    }
    if (found.hybrid) {
        text += hybrid_text(*found.hybrid, best, found.plan.profile, console) + '\n';
    }
    text += "The best plan\n" + prediction_text(found.prediction, console) + '\n' +
            pipeline_keys(scenario, best.candidate, best.partition, best.recompute, best.modules);
    if (found.has_exports()) {
        text += '\n' + written_text(found.options.common.out, found.exports, console.width());
    }
    return text;
}

/// Searches with one value of each swept key.
void plan_cell(SweepCell& cell, const PlanOptions& options, const Tell& tell, Console& console) {
    const Asked question = asked(options, tell);
    static_cast<void>(sim::model_with_costs(question.scenario, question.found));
    const Planned plan =
        planned(question.scenario, question.found.profile, question.nodes, false, console);
    const SettledScenario best = sim::with_plan(question.scenario, plan.best());
    set_shape(cell, best);
    cell.prediction = sim::predict(best, plan.model, plan.profile, memory_left());
}

/// The best plan of every combination of swept keys.
std::vector<SweepCell> swept_plans(const PlanOptions& options, Console& console) {
    expect_few_cells(combination_count(options.swept));
    std::optional<Error> usage;
    std::vector<SweepCell> cells;
    std::set<std::string> told;
    const Tell tell_once = [&](const std::string& note) {
        if (told.insert(note).second) {
            console.note(note);
        }
    };
    for (const std::vector<Override>& swept : combinations(options.swept)) {
        SweepCell& cell = cells.emplace_back(
            SweepCell{.schedule = "-", .stages = 0, .micro_batches = 0, .swept = swept});
        cell.scenario = names_model(options) ? options.scenario.filename().string()
                                             : options.scenario.stem().string();
        PlanOptions one = options;
        one.common.overrides.insert(one.common.overrides.end(), swept.begin(), swept.end());
        try {
            fill_cell(cell, [&] { plan_cell(cell, one, tell_once, console); });
        } catch (const Error& error) {
            if (error.kind() != ErrorKind::Usage) {
                throw;
            }
            usage = usage ? usage : error;  // as of numbers that devices of a node cannot have
            cell.why_not = error.text();
        }
    }
    const auto has_plan = [](const SweepCell& cell) { return cell.prediction.has_value(); };
    if (usage && std::ranges::none_of(cells, has_plan)) {
        throw *usage;
    }
    expect_any_plan(cells);
    return cells;
}

void execute_plan(const PlanOptions& options, Console& console) {
    if (!options.combinations.empty()) {
        plan_combinations(options, console);
        return;
    }
    if (!options.swept.empty()) {
        show_sweep([&] { return swept_plans(options, console); },
                   {.csv = options.csv},
                   options.common,
                   {},
                   console);
        return;
    }
    Asked question = asked(options, [&console](const std::string& note) { console.note(note); });
    const Scenario& scenario = question.scenario;
    std::optional<sim::Calibration> calibration =
        sim::calibrate_by_file(options.calibration,
                               {.file = options.scenario,
                                .overrides = options.common.overrides,
                                .unwritten = Unwritten::Auto},
                               question.found,
                               [&](const std::string& note) { console.note(note); });
    static_cast<void>(sim::model_with_costs(scenario, question.found));
    if (options.largest) {
        show_largest(scenario, question.found, calibration, options.common.json, console);
        return;
    }
    require_free_files(options);
    std::optional<RunFolder> folder;
    if (!options.common.out.empty()) {
        folder.emplace(options.common.out, unless_forced(options.common.force));
    }
    const bool heat = !options.heat_map.empty();
    Planned plan = in_the_better_order(
        scenario,
        planned(scenario, question.found.profile, question.nodes, heat, console),
        question.nodes,
        options,
        console);
    sim::WholePlan whole = whole_with_progress(scenario,
                                               plan,
                                               question.is_model,
                                               options.flops_count.value_or(default_flops_count),
                                               console);
    plan.result = std::move(whole.search);
    const sim::Prediction& prediction = whole.prediction;
    for (const std::string& note : prediction.plan->notes) {
        console.note(note);
    }
    Findings found{.options = options,
                   .question = question,
                   .plan = plan,
                   .prediction = prediction,
                   .calibration = std::move(calibration),
                   .hybrid = {},
                   .picture = {},
                   .shapes = std::move(whole.shapes)};
    if (folder) {
        write_best(*folder, scenario, plan, prediction, console);
        if (question.is_model) {
            found.exports = write_exports(*folder, question);
        }
    }
    if (options.hybrid) {
        found.hybrid = sim::hybrid_like(scenario, plan.model, plan.profile, plan.best());
    }
    if (heat) {
        found.picture =
            heat_map(scenario,
                     question.is_model ? sim::question_name(options.scenario, options.cluster)
                                       : scenario.file.filename().string(),
                     plan.result);
        write_output(options.heat_map,
                     figure_bytes(render_heat_map(found.picture, options.pictures.look),
                                  format_of_picture("--heatmap", options.heat_map)),
                     console);
    }
    if (options.common.json) {
        console.result(json_text(findings_json(found)));
        return;
    }
    console.result(findings_text(found, console));
    if (heat) {
        console.note(fmt::format("heat map: {}", options.heat_map.string()));
    }
}

Command declare_plan(CLI::App& app) {
    const auto options = std::make_shared<PlanOptions>();
    const auto swept = std::make_shared<std::vector<std::string>>();
    add_plan_options(app, *options);
    add_sweep_of_plans(app, *options, *swept);
    add_combinations(app, *options);
    Command command = scenario_command(options, execute_plan);
    command.complete = [options, swept](const std::vector<std::string>&, CommonOptions& common) {
        complete_plan(*options, common);
        options->swept = swept_keys(*swept, common.overrides);
        complete_combinations(*options, common);
        if (!options->swept.empty() && !common.out.empty()) {
            throw Error(ErrorKind::Usage,
                        "--out",
                        "compared plans are not written to a folder",
                        "--csv FILE.csv writes the table");
        }
    };
    command.expect_files = [options] { expect_plan_files(*options); };
    command.takes_model_names = true;
    return command;
}

}  // namespace

CommandRow plan_command() {
    return {.name = "plan",
            .help =
                "Find the fastest plan for a model on a cluster, or for the settings that a "
                "scenario leaves open",
            .declare = declare_plan};
}

}  // namespace pipetwin::cli
