// SPDX-License-Identifier: Apache-2.0
#include "sim/search/found_plan.h"

#include <algorithm>
#include <set>
#include <tuple>

namespace pipetwin::sim {

SettledScenario with_plan(const Scenario& scenario, const FoundPlan& plan) {
    SettledScenario settled = with_candidate(scenario, plan.candidate);
    settled.pipeline.partition = plan.partition;
    settled.pipeline.recompute = plan.recompute;
    if (scenario.pipeline.recompute_modules.is_auto()) {
        settled.pipeline.recompute_modules = plan.modules;
    }
    return settled;
}

void rank(std::vector<FoundPlan>& plans) {
    std::ranges::stable_sort(plans, {}, [](const FoundPlan& plan) {
        return std::tuple(plan.step, plan.candidate.shape.devices(), plan.peak, plan.candidate);
    });
    const auto same = [](const FoundPlan& a, const FoundPlan& b) {
        return a.candidate == b.candidate && a.partition == b.partition &&
               a.recompute == b.recompute && a.modules == b.modules;
    };
    const auto repeated = std::ranges::unique(plans, same);
    plans.erase(repeated.begin(), repeated.end());
}

std::vector<FoundPlan> fastest_of_each_candidate(const std::vector<FoundPlan>& ranked) {
    std::vector<FoundPlan> fastest;
    std::set<Candidate> seen;
    for (const FoundPlan& plan : ranked) {
        if (seen.insert(plan.candidate).second) {
            fastest.push_back(plan);
        }
    }
    return fastest;
}

}  // namespace pipetwin::sim
