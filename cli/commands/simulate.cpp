#include <algorithm>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "cli/commands/commands.h"
#include "cli/json_output.h"
#include "cli/plain_numbers.h"
#include "cli/prediction.h"
#include "cli/run_folder.h"
#include "cli/text_output.h"
#include "cli/uncertainty.h"
#include "core/error.h"
#include "core/formats/plan_json.h"
#include "core/formats/profile_json.h"
#include "core/formats/schedule_csv.h"

namespace pipetwin::cli {

namespace {

void write_plan(const RunFolder& folder, const Prediction& prediction) {
    folder.write(run_file::plan, print_plan(prediction.plan));
    folder.write(run_file::schedule, print_schedule_csv(prediction.plan->schedule));
    folder.write(run_file::predicted, print_chrome_trace(predicted_trace(prediction)));
}

Prediction from_numbers(const SimulateOptions& options) {
    Prediction prediction = predict(with_settled_capacity(make_plan(plain_costs(options.plain))));
    if (!options.common.out.empty()) {
        write_plan(RunFolder(options.common.out, options.common.force), prediction);
    }
    return prediction;
}

Prediction from_scenario(const SimulateOptions& options, Console& console) {
    const Scenario scenario = read_scenario(options.scenario, options.common.overrides);
    require_settled(scenario);
    const FoundProfile found = find_profile(scenario, options.profile, options.common.out);
    console.note(fmt::format("costs: {}", found.file.string()));
    const Model model = scenario_model(scenario, &found.profile);
    Prediction prediction = predict(settled_plan(scenario, model, found.profile));
    if (!options.common.out.empty()) {
        const RunFolder folder(options.common.out, options.common.force);
        folder.write(run_file::scenario, print_scenario(scenario));
        folder.write(run_file::profile, print_profile(found.profile));
        write_plan(folder, prediction);
    }
    return prediction;
}

/// That of --seed; else the scenario's.
std::uint64_t seed_of(const SimulateOptions& options) {
    if (!options.scenario.empty()) {
        return read_scenario(options.scenario, options.common.overrides).training.seed;
    }
    const auto given = std::ranges::find(options.common.overrides, "training.seed", &Override::key);
    return given == options.common.overrides.end() ? 1 : std::stoull(given->value);
}

}  // namespace

void execute(const SimulateOptions& options, Console& console) {
    const bool numbers = options.plain.any();
    if (numbers == !options.scenario.empty()) {
        throw Error(
            ErrorKind::Usage,
            "",
            numbers ? "a scenario and plain numbers exclude each other" : "nothing to simulate",
            "pipetwin simulate SCENARIO.toml, or pipetwin simulate --stages 4 --micro-batches 16 "
            "--forward-ms 1 --backward-ms 2");
    }
    const Prediction prediction = numbers ? from_numbers(options) : from_scenario(options, console);
    if (prediction.plan->stale_gradients) {
        console.note(fmt::format(
            "gradients are stale: {} updates weights while micro-batches are under way, so it is "
            "simulated only",
            prediction.plan->schedule_name));
    }
    for (const std::string& note : prediction.plan->notes) {
        console.note(note);
    }
    const Uncertainty varied = uncertainty(
        options.uncertainty, prediction.plan, prediction.metrics.step, seed_of(options));
    if (options.common.json) {
        Json json = prediction_json(prediction);
        add_uncertainty(varied, json);
        console.result(json_text(json));
    } else {
        console.result(prediction_text(prediction, console) + uncertainty_text(varied));
    }
}

}  // namespace pipetwin::cli
