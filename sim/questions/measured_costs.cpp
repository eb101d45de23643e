// SPDX-License-Identifier: Apache-2.0
#include "sim/questions/measured_costs.h"

#include <algorithm>
#include <vector>

#include <fmt/format.h>

#include "core/artifacts/measured_runs.h"
#include "core/base/number_text.h"
#include "core/model/model.h"
#include "core/text/json_text.h"
#include "sim/questions/calibrated_stack.h"

namespace pipetwin::sim {

namespace {

using Note = std::function<void(const std::string& sentence)>;

void note_earlier_calibrations(const Profile& profile, bool is_calibrated_again, const Note& note) {
    for (const RunCalibration& by : profile.run_calibrations) {
        note(fmt::format(
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
                    const Note& note) {
    for (const Override& given : overrides) {
        const auto names_it = [&given](const MeasuredRun& run) {
            return std::ranges::find(run.keys, given.key, &Override::key) != run.keys.end();
        };
        const auto silent = std::ranges::find_if_not(runs, names_it);
        const bool says_much = given.key != "training.seed" && given.value != "auto";
        if (silent != runs.end() && says_much) {
            note(fmt::format("{} does not name {}: the value of --set is used for this run, {}",
                             silent->place,
                             given.key,
                             given.value));
        }
    }
}

/// A row that names one of these says all of its run itself.
bool has_own_costs(const MeasuredRun& row) {
    return !row.model.empty() || !row.device.empty() || !row.stack.empty() ||
           !row.precision.empty();
}

std::vector<MeasuredRun> rows_of_scenario(std::vector<MeasuredRun> rows) {
    std::erase_if(rows, has_own_costs);
    return rows;
}

/// What rows of other models leave out is as in the costs.
MeasuredRun as_costs(const Profile& profile) {
    MeasuredRun row{
        .device = profile.device, .stack = profile.stack, .precision = profile.precision};
    if (profile.tokens_per_sample > 0) {
        row.tokens_per_sample = profile.tokens_per_sample;
    }
    return row;
}

/// A row that names a model, device, stack or precision is a run of its own costs; others, and
/// those of the same parameters, device, stack and precision, have the costs that are corrected.
SettledRun run_of(const MeasuredRun& row, const ScenarioSource& source, const Profile& profile) {
    if (!has_own_costs(row)) {
        return settled_run(row, source, profile);
    }
    SettledRun run = stack_row(row, as_costs(profile)).run;
    const Profile& own = run.costs->profile;
    const bool is_same = all_parameters(own) == all_parameters(profile) &&
                         own.tokens_per_sample == profile.tokens_per_sample &&
                         own.device == profile.device && own.stack == profile.stack &&
                         own.precision == profile.precision;
    if (is_same) {
        run.costs = nullptr;
    }
    return run;
}

}  // namespace

std::optional<Calibration> calibrate_by_file(const std::filesystem::path& file,
                                             const ScenarioSource& source,
                                             FoundProfile& costs,
                                             const Note& note) {
    note_earlier_calibrations(costs.profile, !file.empty(), note);
    if (file.empty()) {
        return std::nullopt;
    }
    const std::vector<MeasuredRun> rows =
        parse_measured_runs(read_file(file, JsonLimits{}.max_bytes), file.string());
    note_overrides(rows_of_scenario(rows), source.overrides, note);
    std::vector<SettledRun> runs;
    for (const MeasuredRun& run : rows) {
        runs.push_back(run_of(run, source, costs.profile));
    }
    const auto of_costs = std::ranges::find(runs, nullptr, &SettledRun::costs);
    const Model model =
        of_costs != runs.end()
            ? scenario_model(of_costs->scenario, &costs.profile)
            : scenario_model(read_scenario(source.file, source.overrides, source.unwritten),
                             &costs.profile);
    Calibration calibration = calibrate_by_runs(runs, model, costs.profile);
    std::ranges::for_each(calibration.warnings, note);
    costs.profile = calibrated_profile(costs.profile, calibration);
    return calibration;
}

}  // namespace pipetwin::sim
