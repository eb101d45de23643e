// SPDX-License-Identifier: Apache-2.0
#include "bench/published/calibrated_runs.h"

#include <algorithm>
#include <map>
#include <utility>

#include <fmt/format.h>

#include "core/costs/devices/shipped_profiles.h"
#include "core/interop/hf_config.h"
#include "core/scenario/scenario.h"

namespace pipetwin::published {

namespace {

ModelRuns model_runs(const std::vector<const Run*>& runs) {
    const Run& first = *runs.front();
    EstimateOptions estimate = first.estimate;
    for (const Run* const run : runs) {
        estimate.micro_batch_size =
            std::max(estimate.micro_batch_size, run->estimate.micro_batch_size);
    }
    if (!first.stack.empty()) {
        estimate.stack = find_stack(first.stack);
    }
    Profile profile = estimated_profile(
        parse_hf_config(first.model, first.name), find_device(first.device), estimate);
    std::vector<sim::SettledRun> settled;
    std::vector<Model::Named> layers;
    for (const LayerCost& layer : profile.layers) {
        layers.push_back({layer.name, layer.inputs});
    }
    for (const Run* const run : runs) {
        const Scenario scenario = parse_scenario(
            "[model]\nkind = \"profile\"\nfile = \"none.json\"\n", "published.toml", run->scenario);
        settled.push_back({.name = run->name,
                           .place = run->name,
                           .scenario = settle(scenario),
                           .step_seconds = *run->step_seconds,
                           .peak = run->peak});
    }
    return {.name = first.name,
            .profile = std::move(profile),
            .model = Model::opaque(layers),
            .runs = std::move(settled)};
}

}  // namespace

std::vector<ModelRuns> runs_by_model(const Set& set) {
    std::vector<std::string> keys;  // in the order of the set
    std::map<std::string, std::vector<const Run*>> by_key;
    for (const Run& run : set.runs) {
        if (!run.step_seconds) {
            continue;
        }
        const std::string key = fmt::format("{} {} {} {} {} {}",
                                            run.model,
                                            run.device,
                                            run.estimate.precision,
                                            run.estimate.sequence,
                                            run.estimate.attention == AttentionKernels::Flash,
                                            static_cast<int>(run.estimate.kernels));
        if (by_key[key].empty()) {
            keys.push_back(key);
        }
        by_key[key].push_back(&run);
    }
    std::vector<ModelRuns> all;
    for (const std::string& key : keys) {
        all.push_back(model_runs(by_key[key]));
    }
    return all;
}

}  // namespace pipetwin::published
