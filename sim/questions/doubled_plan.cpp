// SPDX-License-Identifier: Apache-2.0
#include "sim/questions/doubled_plan.h"

#include <utility>

#include "core/base/error.h"
#include "core/scenario/scenario.h"
#include "core/scenario/settled_scenario.h"
#include "core/schedule/generators/generate.h"
#include "core/schedule/generators/schedule_traits.h"
#include "sim/explain/explanation.h"
#include "sim/simulate/settled_capacity.h"
#include "sim/simulate/simulate.h"

namespace pipetwin::sim {

namespace {

/// Actions of a plan that is made and simulated a second time, only to say what more micro-batches
/// would bring.
constexpr std::size_t largest_doubled = 200'000;

}  // namespace

std::optional<Plan> with_doubled_micro_batches(const Plan& plan,
                                               const std::function<Plan(int)>& make) {
    if (action_count(plan) > largest_doubled ||
        schedule_traits(plan->schedule_name).order_from_costs) {
        return std::nullopt;
    }
    try {
        Plan more = with_settled_capacity(make(2 * plan.micro_batches()));
        return more.micro_batches() == 2 * plan.micro_batches() ? std::optional(std::move(more))
                                                                : std::nullopt;
    } catch (const Error&) {
        return std::nullopt;  // naive has one micro-batch only, a batch that many samples, ...
    }
}

std::optional<Plan> with_doubled_micro_batches(const Plan& plan,
                                               const SettledScenario& scenario,
                                               const Model& model,
                                               const Profile& profile) {
    if (has_schedule_file(scenario)) {  // which has as many micro-batches as it has
        return std::nullopt;
    }
    return with_doubled_micro_batches(plan, [&](int micro_batches) {
        SettledScenario doubled = scenario;
        doubled.pipeline.micro_batches = micro_batches;
        if (plan->partition) {
            doubled.pipeline.partition = plan->partition->layers_per_stage();
        }
        return make_plan(doubled, model, profile);
    });
}

}  // namespace pipetwin::sim
