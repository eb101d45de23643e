// SPDX-License-Identifier: Apache-2.0
#include "sim/questions/measured_costs.h"

#include <algorithm>
#include <vector>

#include <fmt/format.h>

#include "core/artifacts/measured_runs.h"
#include "core/base/number_text.h"
#include "core/model/model.h"
#include "core/text/json_text.h"

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
    note_overrides(rows, source.overrides, note);
    std::vector<SettledRun> runs;
    for (const MeasuredRun& run : rows) {
        runs.push_back(settled_run(run, source, costs.profile));
    }
    const Model model = scenario_model(runs.front().scenario, &costs.profile);
    Calibration calibration = calibrate_by_runs(runs, model, costs.profile);
    std::ranges::for_each(calibration.warnings, note);
    costs.profile = calibrated_profile(costs.profile, calibration);
    return calibration;
}

}  // namespace pipetwin::sim
