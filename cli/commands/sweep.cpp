// SPDX-License-Identifier: Apache-2.0
#include "cli/commands/sweep.h"

#include <algorithm>
#include <filesystem>
#include <optional>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "cli/base/output_file.h"
#include "cli/commands/commands.h"
#include "cli/interop/exchange.h"
#include "cli/predict/plain_numbers.h"
#include "cli/predict/rank_times.h"
#include "cli/predict/scenario_sweep.h"
#include "cli/text/sweep_text.h"
#include "cli/text/uncertainty.h"
#include "core/base/error.h"
#include "core/schedule/schedule_csv.h"

namespace pipetwin::cli {

namespace {

/// The options that a scenario cannot have beside it: all but those that name its plans.
PlainOptions costs_of(PlainOptions plain) {
    std::ranges::for_each(plan_options, [&plain](auto option) { plain.erase(option); });
    return plain;
}

/// Throws Error(Usage) for what plans side by side cannot have.
void check(const SweepCommand& options) {
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
    for (const auto& [file, option] :
         {std::pair(files.svg, "--svg"), std::pair(files.csv, "--csv")}) {
        if (!file.empty()) {
            require_free(file, common.force, option);
        }
    }
    const std::vector<SweepCell> cells = make_cells();
    const std::vector<Uncertainty> varied = varied_steps(cells, setting);
    if (!files.svg.empty()) {
        write_output(files.svg, sweep_svg(cells, setting.costs), console);
    }
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

void execute(const SweepCommand& given, Console& console) {
    SweepCommand options = given;
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

}  // namespace pipetwin::cli
