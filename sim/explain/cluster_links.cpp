// SPDX-License-Identifier: Apache-2.0
#include "sim/explain/cluster_links.h"

#include <algorithm>

#include "core/scenario/planner.h"
#include "sim/explain/explanation.h"
#include "sim/simulate/settled_capacity.h"
#include "sim/simulate/simulate.h"

namespace pipetwin::sim {

std::vector<WhatIf> faster_cluster_links(const Plan& plan,
                                         Duration step,
                                         const SettledScenario& scenario,
                                         const Model& model,
                                         const Profile& profile) {
    std::vector<WhatIf> gains;
    if (!plan->partition || action_count(plan) > largest_relinked) {
        return gains;
    }
    const auto step_with = [&](const LinkFactors& factors) {
        return step_time(simulate(with_settled_capacity(
            make_plan_with_faster_links(plan, scenario, model, profile, factors))));
    };
    constexpr double factor = 2;
    const auto try_links = [&](Part part, double LinkFactors::*links) {
        LinkFactors twice;
        twice.*links = factor;
        WhatIf what{.target = {.part = part}, .factor = factor, .step = step_with(twice)};
        if (what.step < step) {
            LinkFactors instant;
            instant.*links = infinitely;
            what.least_step = step_with(instant);
            gains.push_back(what);
        }
    };
    try_links(Part::NodeLinks, &LinkFactors::between);
    try_links(Part::InnerLinks, &LinkFactors::inside);
    std::ranges::stable_sort(gains, {}, &WhatIf::step);
    return gains;
}

}  // namespace pipetwin::sim
