// SPDX-License-Identifier: Apache-2.0
#include "sim/questions/run_setup.h"

#include <utility>

#include "core/costs/devices/shipped_profiles.h"
#include "core/costs/devices/stack.h"
#include "core/model/model.h"

namespace pipetwin::sim {

Scenario scenario_of(const RunSetup& setup) {
    std::vector<Override> keys = setup.keys;
    if (setup.estimate.stack) {
        keys.push_back({"cluster.stack", setup.estimate.stack->name});
    }
    return parse_scenario("[model]\nkind = \"profile\"\nfile = \"none.json\"\n", setup.place, keys);
}

RunCosts costs_of(const RunSetup& setup, const Scenario& scenario) {
    RunCosts costs{.profile =
                       estimated_profile(setup.model, find_device(setup.device), setup.estimate)};
    costs.model = std::make_shared<const Model>(scenario_model(scenario, &costs.profile));
    return costs;
}

}  // namespace pipetwin::sim
