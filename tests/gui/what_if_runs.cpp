// SPDX-License-Identifier: Apache-2.0
#include "tests/gui/what_if_runs.h"

#include <random>
#include <utility>

#include <fmt/format.h>

#include "core/scenario/settled_scenario.h"
#include "gui/view/run/planned_run.h"
#include "sim/simulate/settled_capacity.h"
#include "sim/simulate/simulate.h"
#include "tests/gui/planned.h"

namespace pipetwin::gui {

Profile weighted_profile(const std::vector<int>& weights) {
    Profile profile;
    for (std::size_t i = 0; i < weights.size(); ++i) {
        LayerCost layer{.name = fmt::format("layer{}", i),
                        .parameter_count = 1000,
                        .parameter_bytes = Bytes{4000}};
        for (const int size : {1, 2, 4, 8}) {
            const Duration time = size * weights[i] * Duration{1'000'000};
            const Bytes boundary{size * std::int64_t{1'000'000}};
            layer.samples.push_back({.micro_batch_size = size,
                                     .forward = time,
                                     .backward_input = time,
                                     .backward_weight = time,
                                     .input = boundary,
                                     .output = i + 1 < weights.size() ? boundary : Bytes{},
                                     .saved = 3 * boundary});
        }
        profile.layers.push_back(std::move(layer));
    }
    return profile;
}

std::shared_ptr<const RunData> run_of(const Profile& profile,
                                      const std::vector<std::string>& keys,
                                      int measured_steps) {
    std::vector<Override> overrides;
    for (const std::string& key : keys) {
        const std::size_t equals = key.find(" = ");
        overrides.push_back({.key = key.substr(0, equals), .value = key.substr(equals + 3)});
    }
    const Scenario written = parse_scenario(
        "[model]\nkind = \"profile\"\nfile = \"none.json\"\n", "what_if.toml", overrides);
    Model model = scenario_model(written, &profile);
    SettledScenario scenario = settle(written);
    Plan plan = sim::with_settled_capacity(make_plan(scenario, model, profile));
    std::mt19937 random(1);
    std::vector<Timeline> measured;
    for (int step = 0; step < measured_steps; ++step) {
        measured.push_back(jittered_step(plan, random));
    }
    RunData run = *planned_run(plan, std::move(measured));
    run.planned = std::make_shared<const PlannedRun>(
        std::move(scenario), std::move(model), profile, std::move(plan));
    return std::make_shared<const RunData>(std::move(run));
}

}  // namespace pipetwin::gui
