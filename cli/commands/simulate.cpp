// SPDX-License-Identifier: Apache-2.0
#include "sim/simulate/simulate.h"

#include <algorithm>
#include <optional>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "cli/base/file_kinds.h"
#include "cli/base/listener.h"
#include "cli/base/memory_left.h"
#include "cli/base/plan_grammar.h"
#include "cli/commands/commands.h"
#include "cli/commands/sweep.h"
#include "cli/figures/figures.h"
#include "cli/predict/plain_numbers.h"
#include "cli/predict/plain_sweep.h"
#include "cli/predict/rank_times.h"
#include "cli/predict/scenario_sweep.h"
#include "cli/run_folder/run_folder.h"
#include "cli/text/calibration_text.h"
#include "cli/text/json_output.h"
#include "cli/text/text_output.h"
#include "cli/text/uncertainty.h"
#include "core/artifacts/plan_json.h"
#include "core/base/error.h"
#include "core/costs/profile_json.h"
#include "core/model/model.h"
#include "core/plan/plain_plan.h"
#include "core/scenario/rank_device.h"
#include "core/schedule/schedule_csv.h"
#include "exec/base/retry.h"
#include "sim/explain/cluster_links.h"
#include "sim/explain/explanation.h"
#include "sim/questions/doubled_plan.h"
#include "sim/questions/measured_costs.h"
#include "sim/questions/plan_memory.h"
#include "sim/questions/prediction.h"
#include "sim/simulate/settled_capacity.h"

namespace pipetwin::cli {

namespace {

/// Options of `simulate`.
struct SimulateOptions {
    CommonOptions common;
    std::filesystem::path scenario;  ///< empty: plain numbers
    std::filesystem::path profile;
    std::filesystem::path calibration;      ///< measured runs; empty: none
    std::optional<FlopsCount> flops_count;  ///< of --mfu
    std::optional<std::string> stack;       ///< of the scenario
    PlainOptions plain;
    SweepFiles files{};
    UncertaintyOptions uncertainty;
    std::vector<SweptKey> swept{};  ///< of the scenario
};

/// `files`: names of those that were written before, each with a comma behind it.
void write_plan(RunFolder& folder,
                const std::string& files,
                const sim::Prediction& prediction,
                Console& console) {
    folder.write(run_file::plan, print_plan(prediction.plan));
    folder.write(run_file::schedule, print_schedule_csv(prediction.plan->schedule));
    folder.write(run_file::predicted, print_chrome_trace(sim::predicted_trace(prediction)));
    folder.keep_on(exec::disk_patience, [&](const std::string& line) { console.note(line); });
    folder.finish(exec::disk_patience);
    console.note(fmt::format("written to {}: {}{}, {}, {}",
                             folder.path().string(),
                             files,
                             run_file::plan,
                             run_file::schedule,
                             run_file::predicted));
}

/// A prediction, the same plan with twice as many micro-batches, and steps with faster links.
struct Predicted {
    sim::Prediction prediction;
    std::optional<Plan> more;
    std::vector<sim::WhatIf> cluster_links{};  ///< empty for plain numbers
    std::optional<sim::Calibration> calibration{};
};

/// Keys are those of a scenario; that of --seed says which steps are drawn.
void refuse_keys(const std::vector<Override>& overrides) {
    const auto key = std::ranges::find_if(
        overrides, [](const Override& given) { return given.key != "training.seed"; });
    if (key != overrides.end()) {
        throw Error(ErrorKind::Usage,
                    "--set " + key->key,
                    "there is no scenario whose key it could set",
                    "'pipetwin simulate --help' lists the options that replace keys");
    }
}

/// The plan of plain numbers; an error of its schedule names their options.
Plan plan_of_numbers(const PlainCosts& costs) {
    try {
        return make_plan(costs);
    } catch (const Error& error) {
        throw error.with_hint(error.advice().text(as_option));
    }
}

Predicted from_numbers(const SimulateOptions& options, Console& console) {
    refuse_keys(options.common.overrides);
    PlainCosts costs = plain_costs(options.plain);
    if (costs.schedule_from_file && costs.receives == Receives::Blocking) {
        console.note("receives of the schedule file block: a rank waits at each receive");
    }
    if (!costs.schedule_from_file) {
        sim::expect_memory_for({.stages = std::int64_t{costs.shape.ranks} * costs.shape.chunks,
                                .micro_batches = costs.shape.micro_batches},
                               "--micro-batches",
                               memory_left());
    }
    sim::Prediction prediction = sim::predict(sim::with_settled_capacity(plan_of_numbers(costs)));
    std::optional<Plan> more;
    if (!costs.schedule_from_file) {
        more = sim::with_doubled_micro_batches(prediction.plan, [&costs](int micro_batches) {
            costs.shape.micro_batches = micro_batches;
            return make_plan(costs);
        });
    }
    if (!options.common.out.empty()) {
        RunFolder folder(options.common.out, unless_forced(options.common.force));
        write_plan(folder, "", prediction, console);
    }
    return {.prediction = std::move(prediction), .more = std::move(more)};
}

/// Says what receives that the schedule file has before they are needed mean.
void note_receives(const SettledScenario& scenario, Console& console) {
    const Schedule written = read_schedule_csv(scenario.pipeline.schedule);
    if (wait_where_used(written) == written) {
        return;
    }
    console.note(
        scenario_schedule(scenario) == written
            ? "receives of the schedule file block: a rank waits at each receive"
            : "receives of the schedule file are posted in their cells; a rank waits where "
              "it uses the tensor, as in PyTorch");
}

Predicted from_scenario(const SimulateOptions& options, Console& console) {
    SettledScenario scenario = settle(read_scenario(options.scenario, options.common.overrides));
    sim::FoundProfile found = sim::find_profile(scenario, options.profile, options.common.out);
    const bool spreads = scenario.cluster.device_spread || stack_of(scenario, found.profile);
    if (options.uncertainty.device_jitter && spreads) {
        scenario.cluster.device_spread = 0;  // devices are as slow as they are drawn
    }
    console.note(fmt::format("costs: {}", found.file.string()));
    std::optional<sim::Calibration> calibration =
        sim::calibrate_by_file(options.calibration,
                               {.file = options.scenario, .overrides = options.common.overrides},
                               found,
                               [&](const std::string& note) { console.note(note); });
    if (has_schedule_file(scenario)) {
        note_receives(scenario, console);
    }
    const Model model = sim::model_with_costs(scenario, found);
    sim::Prediction prediction = sim::predict(scenario,
                                              model,
                                              found.profile,
                                              memory_left(),
                                              options.flops_count.value_or(default_flops_count));
    if (!options.common.out.empty()) {
        RunFolder folder(options.common.out, unless_forced(options.common.force));
        folder.write_scenario(scenario.as_scenario());
        folder.write(run_file::profile, print_profile(found.profile));
        write_plan(folder,
                   fmt::format("{}, {}, ", run_file::scenario, run_file::profile),
                   prediction,
                   console);
    }
    std::optional<Plan> more =
        sim::with_doubled_micro_batches(prediction.plan, scenario, model, found.profile);
    std::vector<sim::WhatIf> cluster_links = sim::faster_cluster_links(
        prediction.plan, prediction.metrics.step, scenario, model, found.profile);
    return {.prediction = std::move(prediction),
            .more = std::move(more),
            .cluster_links = std::move(cluster_links),
            .calibration = std::move(calibration)};
}

/// That of --seed; else the scenario's.
std::uint64_t seed_of(const SimulateOptions& options) {
    if (!options.scenario.empty()) {
        return read_scenario(options.scenario, options.common.overrides).training.seed;
    }
    const auto given = std::ranges::find(options.common.overrides, "training.seed", &Override::key);
    return given == options.common.overrides.end() ? 1 : std::stoull(given->value);
}

/// Throws Error(Usage) for what several values of keys cannot have.
void check_swept(const SimulateOptions& options) {
    const std::string_view option = options.scenario.empty()       ? "--sweep"
                                    : !options.common.out.empty()  ? "--out"
                                    : !options.calibration.empty() ? "--calibrate"
                                                                   : "";
    if (!option.empty()) {
        throw Error(ErrorKind::Usage,
                    std::string(option),
                    option == "--sweep" ? "there is no scenario whose key it could set"
                                        : "it is for one plan, but --sweep compares several",
                    option == "--sweep"
                        ? "name one: pipetwin simulate SCENARIO.toml --sweep KEY=A,B"
                        : "leave one of the two out");
    }
}

/// Throws Error(Usage) for what several plans at once cannot have, and one alone cannot.
void check_sweep(const SimulateOptions& options) {
    if (!options.swept.empty()) {
        return check_swept(options);
    }
    if (!options.plain.several()) {
        if (!options.files.csv.empty()) {
            throw Error(ErrorKind::Usage,
                        "--csv",
                        "it is for several plans, but there is one",
                        "name more, as in --schedule gpipe,1f1b");
        }
        return;
    }
    if (!options.scenario.empty()) {
        throw Error(ErrorKind::Usage,
                    options.scenario.string(),
                    "'simulate' predicts one plan of a scenario, but several are named",
                    "pipetwin sweep compares plans of scenarios, and takes the same lists");
    }
    if (!options.common.out.empty()) {
        throw Error(ErrorKind::Usage,
                    "--out",
                    "compared plans are not written to a folder",
                    "--csv FILE.csv and --svg FILE.svg write the table and the picture");
    }
}

std::string title_of(const Plan& plan) {
    return timeline_title({.schedule = plan->schedule_name,
                           .ranks = plan.rank_count(),
                           .micro_batches = plan.micro_batches(),
                           .replicas = plan->replicas,
                           .devices_per_rank = plan->rank_devices()});
}

/// Throws Error(Usage) for costs of layers, runs that correct them, or a count of their operations
/// beside costs on the command line.
void refuse_costs_beside_numbers(const SimulateOptions& options) {
    const std::string_view option = !options.profile.empty()       ? "--profile"
                                    : !options.calibration.empty() ? "--calibrate"
                                    : options.flops_count          ? "--mfu"
                                    : options.stack                ? "--stack"
                                                                   : "";
    if (options.plain.any() && options.scenario.empty() && !option.empty()) {
        throw Error(
            ErrorKind::Usage,
            std::string(option),
            option == "--profile" ? "the costs are on the command line already"
            : option == "--stack" ? "costs on the command line are of no software in particular"
            : option == "--mfu" ? "costs on the command line say no operations that it could count"
                                : "costs on the command line have no layers that it could correct",
            "leave it out, or simulate a scenario with it");
    }
}

void execute_simulate(const SimulateOptions& given, Console& console) {
    check_sweep(given);
    SimulateOptions options = given;
    if (!options.swept.empty()) {
        if (options.plain.any()) {
            refuse_beside_scenario(options.plain, options.scenario, options.common.overrides);
        }
        show_sweep(
            [&options] {
                return sweep_scenarios({.common = options.common,
                                        .scenarios = {options.scenario},
                                        .profile = options.profile,
                                        .stack = options.stack,
                                        .plain = options.plain,
                                        .files = options.files,
                                        .swept = options.swept});
            },
            options.files,
            options.common,
            {.varying = options.uncertainty, .seed = seed_of(options)},
            console);
        return;
    }
    if (options.scenario.empty() && add_unit_times(options.plain)) {
        note_unit_times(console);
    }
    if (options.plain.several()) {
        refuse_keys(options.common.overrides);
        show_sweep([&options] { return sweep(options.plain); },
                   options.files,
                   options.common,
                   {.costs = costs_words(options.plain),
                    .varying = options.uncertainty,
                    .seed = seed_of(options)},
                   console);
        return;
    }
    const bool numbers = options.plain.any();
    if (numbers && !options.scenario.empty()) {
        refuse_beside_scenario(options.plain, options.scenario, options.common.overrides);
    }
    if (!numbers && options.scenario.empty()) {
        throw Error(ErrorKind::Usage,
                    "",
                    "nothing to simulate, expected a scenario or costs",
                    "pipetwin simulate SCENARIO.toml, or pipetwin simulate --stages 4 "
                    "--micro-batches 16 --forward-ms 1 --backward-ms 2");
    }
    require_pictures(options.files.pictures, options.common.force);
    auto [prediction, more, cluster_links, calibration] =
        numbers ? from_numbers(options, console) : from_scenario(options, console);
    for (const std::string& note : prediction.plan->notes) {
        console.note(note);
    }
    const Undertaking undertaking =
        sim::undertaking_of_plan({.stages = prediction.plan.stage_count(),
                                  .micro_batches = prediction.plan.micro_batches()});
    const sim::Explanation explanation = sim::explain(
        prediction.plan, prediction.timeline, prediction.breakdown, more, cluster_links);
    const Uncertainty varied = uncertainty(
        options.uncertainty, prediction.plan, prediction.metrics.step, seed_of(options));
    write_pictures(
        options.files.pictures,
        [&prediction](const FigureLook& look) {
            return render_svg(prediction.timeline,
                              timeline_look(prediction.timeline, title_of(prediction.plan), look));
        },
        console);
    if (options.common.json) {
        Json json = explained_json(prediction, explanation);
        add_uncertainty(varied, json);
        json["calibration"] = calibration_json(calibration);
        console.result(json_text(json));
    } else {
        console.result(calibration_text(calibration, console) +
                       prediction_text(prediction, console) + uncertainty_text(varied) +
                       explanation_text(prediction.plan, explanation, console));
    }
    if (const Listener* const listener = console.listener(); listener && listener->timeline) {
        listener->timeline(std::move(prediction.timeline));
    }
}

Command declare_simulate(CLI::App& app) {
    const auto options = std::make_shared<SimulateOptions>();
    const auto swept = std::make_shared<std::vector<std::string>>();
    app.add_option("scenario",
                   options->scenario,
                   "Scenario file; leave it out to give costs on the command line")
        ->type_name("SCENARIO.toml");
    add_profile(app, options->profile);
    app.get_option("--seed")->description(
        "Seed of the random steps of --jitter and similar options (default 1, or training.seed)");
    add_run_calibration(app, options->calibration);
    add_flops_count(app, options->flops_count);
    add_stack(app, options->stack, stack_help);
    add_plans(app, costs_group, default_schedule, options->plain, options->files);
    add_swept_keys(app, *swept);
    add_costs(app, options->plain);
    add_uncertain(app, options->uncertainty);
    Command command = scenario_command(options, execute_simulate);
    command.complete = [options, swept](const std::vector<std::string>& args,
                                        CommonOptions& common) {
        complete_plans(args, {options->scenario}, options->files, options->plain);
        refuse_costs_beside_numbers(*options);
        set_stack_key(options->stack, common.overrides);
        options->swept = swept_keys(*swept, common.overrides);
    };
    command.expect_files = [options, expect_scenario_files = command.expect_files] {
        expect_scenario_files();
        expect_measured_runs(options->calibration);
        expect_kind(options->plain.value("--schedule-file").value_or(""),
                    {FileKind::Schedule},
                    "a schedule");
    };
    return command;
}

}  // namespace

CommandRow simulate_command() {
    return {.name = "simulate",
            .help = "Predict the time, bubble, memory and throughput of a plan, or compare several",
            .declare = declare_simulate};
}

}  // namespace pipetwin::cli
