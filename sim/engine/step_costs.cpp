// SPDX-License-Identifier: Apache-2.0
#include "sim/engine/step_costs.h"

#include <algorithm>

#include "core/base/as_index.h"
#include "core/base/error.h"
#include "core/plan/plan.h"

namespace pipetwin::sim {

namespace {

/// A micro-batch of each class, or -1.
std::vector<int> one_of_each_class(const Plan& plan) {
    std::vector<int> found(plan->costs.size(), -1);
    for (int micro_batch = plan.micro_batches() - 1; micro_batch >= 0; --micro_batch) {
        const int cost_class = plan->cost_class[as_index(micro_batch)];
        found[as_index(cost_class)] = micro_batch;
    }
    return found;
}

}  // namespace

StepCosts::StepCosts(const Plan& plan, const Conditions& conditions)
    : conditions_(conditions),
      own_durations_(!conditions.durations.empty()),
      own_messages_(!conditions.message_factors.empty()),
      cost_class_(plan->cost_class),
      classes_(plan->costs.size()),
      stages_(static_cast<std::size_t>(plan.stage_count())),
      edges_(2 * plan->links.size()),
      bucketed_(plan->bucketed_sums) {
    add_actions(plan);
    add_messages(plan);
    add_reductions(plan);
}

void StepCosts::add_actions(const Plan& plan) {
    for (const int micro_batch : one_of_each_class(plan)) {
        for (int stage = 0; stage < plan.stage_count(); ++stage) {
            for (int op = 0; op < op_count; ++op) {
                const Action action{
                    .op = static_cast<Op>(op), .stage = stage, .micro_batch = micro_batch};
                const bool known = micro_batch >= 0 || !has_micro_batch(action.op);
                table_.push_back(!known ? Duration{}
                                 : conditions_.duration_of_op
                                     ? conditions_.duration_of_op->at(as_index(op))
                                     : plan.duration(action));
            }
        }
    }
    first_message_ = table_.size();
}

void StepCosts::add_messages(const Plan& plan) {
    PIPETWIN_EXPECT(2 * conditions_.links.size() == edges_, "one link per boundary");
    for (const LinkCost& link : conditions_.links) {
        latencies_.insert(latencies_.end(), 2, link.latency);
    }
    for (const int micro_batch : one_of_each_class(plan)) {
        for (std::size_t edge = 0; edge < edges_; ++edge) {
            const bool silent = micro_batch < 0 || conditions_.transfer == TransferMode::HandOver;
            table_.push_back(
                silent ? Duration{}
                       : occupation(conditions_.links[edge / 2],
                                    message_bytes(plan, static_cast<int>(edge), micro_batch)));
        }
    }
}

void StepCosts::add_reductions(const Plan& plan) {
    PIPETWIN_EXPECT(conditions_.reductions.size() == plan->reductions.size(),
                    "one link per stage that shares its weights");
    hand_overs_.resize(stages_);
    overlapped_ = conditions_.overlapped_reductions;
    overlapped_.resize(stages_);
    for (std::size_t stage = 0; stage < stages_; ++stage) {
        if (!conditions_.reductions.empty()) {
            const LinkCost& link = conditions_.reductions[stage];
            hand_overs_[stage] =
                occupation(link, plan.handed_over(static_cast<int>(stage))) + link.latency;
        }
    }
}

}  // namespace pipetwin::sim
