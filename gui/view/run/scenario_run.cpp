// SPDX-License-Identifier: Apache-2.0
#include "gui/view/run/scenario_run.h"

#include <algorithm>
#include <iterator>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "core/base/ascii.h"
#include "core/base/error.h"
#include "core/costs/devices/shipped_profiles.h"
#include "core/costs/layer_estimate.h"
#include "core/costs/profile_json.h"
#include "core/timeline/footprint.h"
#include "gui/view/run/planned_run.h"
#include "sim/explain/breakdown.h"
#include "sim/search/partition_choice.h"
#include "sim/simulate/simulate.h"

namespace pipetwin::gui {

namespace {

namespace fs = std::filesystem;

constexpr int most_stages_of_profile = 4;

/// The costs of a scenario's layers, and a sentence on where they come from.
struct FoundCosts {
    Profile profile;
    std::string note;
    bool estimated = false;
};

/// The first of these files that is there; empty where none is.
fs::path first_file(const std::vector<fs::path>& files) {
    const auto found = std::ranges::find_if(files, [](const fs::path& file) {
        std::error_code ignored;
        return fs::is_regular_file(file, ignored);
    });
    return found == files.end() ? fs::path() : *found;
}

/// The scenario's device where it is a shipped one with a rate at the precision; else the first
/// shipped one that has.
DeviceProfile device_for(const ScenarioParts& scenario, const std::string& precision) {
    std::vector<std::string> names = device_names();
    if (std::ranges::find(names, scenario.cluster.device) != names.end()) {
        names.insert(names.begin(), scenario.cluster.device);
    }
    for (const std::string& name : names) {
        DeviceProfile device = find_device(name);
        if (device.matrix_rates.contains(precision)) {
            return device;
        }
    }
    throw Error(ErrorKind::BadInput,
                "training.precision",
                fmt::format("no shipped device lists a matrix rate for {}", precision),
                "'pipetwin profile' measures what the layers cost on this machine");
}

FoundCosts estimated_costs(const Scenario& scenario) {
    const std::string precision(to_string(scenario.training.precision));
    const DeviceProfile device = device_for(scenario, precision);
    const int micro_batches = std::max(1, scenario.pipeline.micro_batches.value_or(1));
    const EstimateOptions options{
        .micro_batch_size = std::max(1, scenario.training.batch / micro_batches),
        .precision = precision};
    return {
        .profile = estimated_times(scenario_model(scenario), device, options),
        .note = fmt::format("Layer costs are estimates for one whole {} per rank. Memory is not "
                            "estimated. "
                            "'pipetwin profile {}' measures both on this machine.",
                            device.name,
                            scenario.file.string()),
        .estimated = true};
}

FoundCosts costs_of(const Scenario& scenario) {
    if (scenario.model.kind == ModelKind::Profile) {
        return {.profile = read_profile(scenario.model.profile), .note = {}};
    }
    const std::string name = scenario.file.stem().string() + ".profile.json";
    const fs::path folder = scenario.file.parent_path();
    const fs::path file = first_file({folder / "profile.json", folder / name, name});
    return file.empty() ? estimated_costs(scenario)
                        : FoundCosts{.profile = read_profile(file), .note = {}};
}

Trace predicted_trace(const Plan& plan, bool knows_bytes) {
    Trace trace;
    trace.plan_hash = plan.hash();
    trace.schedule_name = plan->schedule_name;
    trace.schedule = plan->schedule;
    trace.channel_capacity = plan->channel_capacity;
    trace.samples = plan.samples();
    trace.timelines.steps.push_back(sim::simulate(plan));
    trace.timelines.breakdown = sim::breakdown(plan, trace.timelines.steps.front());
    if (knows_bytes) {
        trace.memory = footprint(plan, trace.timelines.steps.front());
    }
    return trace;
}

ScenarioRun simulated(const Scenario& written, FoundCosts costs) {
    Model model = scenario_model(written, &costs.profile);
    SettledScenario scenario = settle(written);
    Plan plan = sim::make_settled_plan(scenario, model, costs.profile);
    ScenarioRun run{.trace = predicted_trace(plan, !costs.estimated),
                    .planned = nullptr,
                    .plan = plan,
                    .notes = {}};
    if (!costs.note.empty()) {
        run.notes.push_back(std::move(costs.note));
    }
    if (!costs.estimated) {  // else the plan says once more that its costs are not this machine's
        std::ranges::move(sentences_of_notes(plan), std::back_inserter(run.notes));
    }
    run.planned = std::make_shared<const PlannedRun>(std::move(scenario),
                                                     std::move(model),
                                                     std::move(costs.profile),
                                                     std::move(plan),
                                                     !costs.estimated);
    return run;
}

}  // namespace

std::vector<std::string> sentences_of_notes(const Plan& plan) {
    std::vector<std::string> sentences;
    for (std::string note : plan->notes) {
        note.front() = ascii::upper(note.front());
        sentences.push_back(note + '.');
    }
    return sentences;
}

ScenarioRun simulate_scenario(const fs::path& file) {
    const Scenario written = read_scenario(file);
    return simulated(written, costs_of(written));
}

ScenarioRun simulate_profile(const fs::path& file) {
    FoundCosts costs{.profile = read_profile(file), .note = {}};
    Scenario scenario;
    scenario.file = file;
    scenario.model.kind = ModelKind::Profile;
    scenario.model.profile = fs::absolute(file);
    const int layers = static_cast<int>(costs.profile.layers.size());
    const int measured_ranks = static_cast<int>(costs.profile.ranks.size());
    const bool shares_device = measured_ranks > 1 && measured_ranks <= layers;
    const int stages = shares_device ? measured_ranks : std::min(most_stages_of_profile, layers);
    const int samples = costs.profile.layers.front().samples.front().micro_batch_size;
    scenario.pipeline.stages = stages;
    scenario.pipeline.micro_batches = 2 * stages;
    scenario.pipeline.schedule = "1f1b";
    scenario.training.batch = 2 * stages * samples;
    costs.note = fmt::format(
        "A profile contains the costs of layers, but no pipeline. The timeline shows 1f1b with {} "
        "stages{}; the panel 'What if' can change it.",
        stages,
        shares_device ? fmt::format(", because the costs were measured on {} ranks", measured_ranks)
                      : "");
    return simulated(scenario, std::move(costs));
}

}  // namespace pipetwin::gui
