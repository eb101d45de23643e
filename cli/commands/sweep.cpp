// SPDX-License-Identifier: Apache-2.0
#include "cli/commands/sweep.h"

#include <algorithm>
#include <filesystem>
#include <optional>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "cli/base/option_lists.h"
#include "cli/base/output_file.h"
#include "cli/base/plan_grammar.h"
#include "cli/commands/commands.h"
#include "cli/figures/figures.h"
#include "cli/interop/exchange.h"
#include "cli/predict/plain_numbers.h"
#include "cli/predict/rank_times.h"
#include "cli/predict/scenario_sweep.h"
#include "cli/text/sweep_text.h"
#include "cli/text/uncertainty.h"
#include "core/base/error.h"
#include "core/scenario/scenario_key.h"
#include "core/schedule/generators/generate.h"
#include "core/schedule/schedule_csv.h"

namespace pipetwin::cli {

namespace {

/// The options that a scenario cannot have beside it: all but those that name its plans.
PlainOptions costs_of(PlainOptions plain) {
    std::ranges::for_each(plan_options, [&plain](auto option) { plain.erase(option); });
    return plain;
}

/// Takes lists apart, and takes a schedule file that is alone as that file.
void split_lists(PlainOptions& plain) {
    std::vector<KeyValue> split;
    for (const KeyValue& one : plain.written) {
        const bool is_list = std::ranges::count(list_options, one.key) > 0;
        for (std::string& entry : one.key == "--schedule" ? list_entries(one.key, one.value)
                                  : is_list               ? whole_numbers(one.key, one.value)
                                                          : std::vector{one.value}) {
            split.push_back({one.key, std::move(entry)});
        }
    }
    plain.written = std::move(split);
    if (const auto schedule = plain.value("--schedule");
        schedule && schedule->ends_with(".csv") && !plain.several()) {
        plain.erase("--schedule");
        plain.set("--schedule-file", *schedule);
    }
}

/// Throws Error(Usage) for the second entry of a list that stands where a scenario would.
void refuse_split_list(const std::filesystem::path& scenario,
                       const std::vector<std::string>& args) {
    std::error_code ignored;
    const bool is_file = std::filesystem::exists(scenario, ignored) || scenario.has_extension();
    const std::string list = is_file || scenario.empty() ? "" : list_with(scenario.string(), args);
    if (!list.empty()) {
        throw Error(ErrorKind::Usage,
                    "",
                    fmt::format("'{}' is no scenario", scenario.string()),
                    fmt::format("write the list with commas: {}", list));
    }
}

/// Throws Error(Usage) for a table whose name says that it is of another kind.
void refuse_other_table(const std::filesystem::path& file) {
    const std::string ending = file.extension().string();
    if (!ending.empty() && ending != ".csv" && ending != ".txt") {
        throw Error(ErrorKind::Usage,
                    "--csv",
                    fmt::format("'{}' ends in {}, but the table is CSV", file.string(), ending),
                    fmt::format("name it {}",
                                std::filesystem::path(file).replace_extension(".csv").string()));
    }
}

/// Throws Error(Usage) for what plans side by side cannot have.
void check(const SweepOptions& options) {
    if (!options.common.out.empty()) {
        throw Error(ErrorKind::Usage,
                    "--out",
                    "compared plans are not written to a folder",
                    "--csv FILE.csv and --svg FILE.svg write the table and the picture");
    }
    if (options.scenarios.empty() && !costs_of(options.plain).any()) {
        throw Error(ErrorKind::Usage,
                    "sweep",
                    "nothing to compare, expected scenarios or costs",
                    "pipetwin sweep SCENARIO.toml --schedule gpipe,1f1b, or pipetwin sweep "
                    "--schedule gpipe,1f1b --stages 4 --micro-batches 8 --forward-ms 1 "
                    "--backward-ms 2");
    }
    if (!options.scenarios.empty() && costs_of(options.plain).any()) {
        refuse_beside_scenario(
            costs_of(options.plain), options.scenarios.front(), options.common.overrides);
    }
    if (options.scenarios.empty() && options.stack) {
        throw Error(ErrorKind::Usage,
                    "--stack",
                    "costs on the command line are of no software in particular",
                    "leave it out, or compare scenarios with it");
    }
    if (options.scenarios.empty() && !options.swept.empty()) {
        throw Error(ErrorKind::Usage,
                    "--sweep " + options.swept.front().key,
                    "there is no scenario whose key it could set",
                    "name one: pipetwin sweep SCENARIO.toml --sweep KEY=A,B");
    }
    if (options.scenarios.empty() && !options.common.overrides.empty()) {
        throw Error(ErrorKind::Usage,
                    "--set " + options.common.overrides.front().key,
                    "there is no scenario whose key it could set",
                    "'pipetwin sweep --help' lists the options that replace keys");
    }
}

/// The steps of each plan with what varies; of a plan that there is not, nothing.
std::vector<Uncertainty> varied_steps(const std::vector<SweepCell>& cells,
                                      const SweepSetting& setting) {
    std::vector<Uncertainty> varied(cells.size());
    for (std::size_t i = 0; i < cells.size() && setting.varying.any(); ++i) {
        if (const std::optional<sim::Prediction>& prediction = cells[i].prediction) {
            varied[i] = uncertainty(
                setting.varying, prediction->plan, prediction->metrics.step, setting.seed);
        }
    }
    return varied;
}

}  // namespace

void complete_plans(const std::vector<std::string>& args,
                    const std::vector<std::filesystem::path>& scenarios,
                    const SweepFiles& files,
                    PlainOptions& plain) {
    split_lists(plain);
    for (const std::filesystem::path& scenario : scenarios) {
        refuse_split_list(scenario, args);
    }
    check_pictures(files.pictures);
    refuse_other_table(files.csv);
}

void note_unit_times(Console& console) {
    console.note(
        "no times are given: a forward of each stage takes 1 ms and a backward 2 ms; --forward-ms "
        "and --backward-ms set them");
}

void show_sweep(const std::function<std::vector<SweepCell>()>& make_cells,
                const SweepFiles& files,
                const CommonOptions& common,
                const SweepSetting& setting,
                Console& console) {
    require_pictures(files.pictures, common.force);
    if (!files.csv.empty()) {
        require_free(files.csv, common.force, "--csv");
    }
    const std::vector<SweepCell> cells = make_cells();
    const std::vector<Uncertainty> varied = varied_steps(cells, setting);
    write_pictures(
        files.pictures,
        [&](const FigureLook& look) { return sweep_svg(cells, setting.costs, look); },
        console);
    if (!files.csv.empty()) {
        write_output(files.csv, sweep_csv(cells, varied), console);
    }
    console.result(common.json ? json_text(sweep_json(cells, varied)) : sweep_text(cells, varied));
    const auto failed = std::ranges::find_if(cells, [](const SweepCell& cell) {
        return !cell.prediction && cell.scenario.empty() && is_schedule_file(cell.schedule);
    });
    if (failed != cells.end()) {
        throw Error(ErrorKind::Infeasible,
                    failed->schedule,
                    "this schedule has no plan; the others are in the table",
                    fmt::format("pipetwin check {} shows where it fails", failed->schedule));
    }
}

namespace {

void execute_sweep(const SweepOptions& given, Console& console) {
    SweepOptions options = given;
    if (options.scenarios.empty() && add_unit_times(options.plain)) {
        note_unit_times(console);
    }
    check(options);
    const auto make_cells = [&options] {
        return options.scenarios.empty() ? sweep(options.plain) : sweep_scenarios(options);
    };
    show_sweep(make_cells,
               options.files,
               options.common,
               {.costs = options.scenarios.empty() ? costs_words(options.plain) : ""},
               console);
}

Command declare_sweep(CLI::App& app) {
    const auto options = std::make_shared<SweepOptions>();
    const auto swept = std::make_shared<std::vector<std::string>>();
    app.add_option("scenarios",
                   options->scenarios,
                   "Scenario files; leave them out to give costs on the command line")
        ->type_name("SCENARIO.toml...");
    add_profile(app, options->profile);
    add_stack(app, options->stack, stack_help);
    add_plans(app,
              "Plans to compare",
              fmt::format("that of the scenario, or else {}", default_schedule),
              options->plain,
              options->files);
    add_swept_keys(app, *swept);
    add_costs(app, options->plain);
    leave_out_of_help(app, {"--out", "--seed", "--verbose"});
    Command command = command_with(options, execute_sweep);
    command.complete = [options, swept](const std::vector<std::string>& args,
                                        CommonOptions& common) {
        complete_plans(args, options->scenarios, options->files, options->plain);
        for (const std::string_view option : plan_options) {
            if (options->plain.has(option)) {
                refuse_key_of_option(option,
                                     fmt::format("pipeline.{}", pipeline_key(option).name),
                                     common.overrides);
            }
        }
        set_stack_key(options->stack, common.overrides);
        options->swept = swept_keys(*swept, common.overrides);
    };
    command.expect_files = [options] {
        std::ranges::for_each(options->scenarios, expect_scenario);
        expect_costs(options->profile);
    };
    command.input = [options] {
        return options->scenarios.empty() ? std::filesystem::path() : options->scenarios.front();
    };
    return command;
}

}  // namespace

CommandRow sweep_command() {
    return {.name = "sweep",
            .help =
                "Predict many combinations of schedule, stages and micro-batches, or several "
                "scenarios",
            .declare = declare_sweep};
}

}  // namespace pipetwin::cli
