// SPDX-License-Identifier: Apache-2.0
#include "cli/predict/run_calibration.h"

#include <algorithm>
#include <vector>

#include <fmt/format.h>

#include "core/artifacts/measured_runs.h"
#include "core/base/number_text.h"
#include "core/model/model.h"
#include "core/text/json_text.h"

namespace pipetwin::cli {

namespace {

void note_earlier_calibrations(const Profile& profile, bool is_calibrated_again, Console& console) {
    for (const RunCalibration& by : profile.run_calibrations) {
        console.note(fmt::format(
            "these costs were calibrated before, by {}: layers took {:.3g} "
            "times as long as estimated{}{}",
            counted(by.runs, "measured run"),
            by.compute_factor,
            by.memory_factor ? fmt::format(", and kept {:.3g} times as much", *by.memory_factor)
                             : "",
            is_calibrated_again ? "; the new factors come on top" : ""));
    }
}

/// Says which keys of the command line measured runs are taken to have had, as their rows do not
/// name them.
void note_overrides(const std::vector<MeasuredRun>& runs,
                    const std::vector<Override>& overrides,
                    Console& console) {
    for (const Override& given : overrides) {
        const auto names_it = [&given](const MeasuredRun& run) {
            return std::ranges::find(run.keys, given.key, &Override::key) != run.keys.end();
        };
        const auto silent = std::ranges::find_if_not(runs, names_it);
        const bool says_much = given.key != "training.seed" && given.value != "auto";
        if (silent != runs.end() && says_much) {
            console.note(
                fmt::format("{} does not name {}: the value of --set is used for this run, {}",
                            silent->place,
                            given.key,
                            given.value));
        }
    }
}

}  // namespace

std::optional<sim::Calibration> calibrate_by_file(const std::filesystem::path& file,
                                                  const sim::ScenarioSource& source,
                                                  sim::FoundProfile& costs,
                                                  Console& console) {
    note_earlier_calibrations(costs.profile, !file.empty(), console);
    if (file.empty()) {
        return std::nullopt;
    }
    const std::vector<MeasuredRun> rows =
        parse_measured_runs(read_file(file, JsonLimits{}.max_bytes), file.string());
    note_overrides(rows, source.overrides, console);
    std::vector<sim::SettledRun> runs;
    for (const MeasuredRun& run : rows) {
        runs.push_back(sim::settled_run(run, source, costs.profile));
    }
    const Model model = scenario_model(runs.front().scenario, &costs.profile);
    sim::Calibration calibration = sim::calibrate_by_runs(runs, model, costs.profile);
    for (const std::string& warning : calibration.warnings) {
        console.note(warning);
    }
    costs.profile = sim::calibrated_profile(costs.profile, calibration);
    return calibration;
}

}  // namespace pipetwin::cli
