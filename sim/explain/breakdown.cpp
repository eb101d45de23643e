// SPDX-License-Identifier: Apache-2.0
#include "sim/explain/breakdown.h"

#include <algorithm>

#include "core/base/error.h"
#include "core/plan/plan.h"
#include "core/schedule/recompute.h"
#include "sim/simulate/simulate.h"

namespace pipetwin::sim {

namespace {

/// Work of all ranks: sums over them.
struct Work {
    Breakdown sums;       ///< the parts that are actions
    Duration dispatch{};  ///< host time inside actions
};

/// A paced device lets every action last as long as the plan says, or longer.
bool is_paced(const Plan& plan, const Timeline& timeline) {
    const auto lasts_as_planned = [&plan](const Span& span) {
        return !is_compute(span.action.op) || span.end - span.ready >= plan.duration(span.action);
    };
    return timeline.origin == Origin::Emulated &&
           std::ranges::all_of(timeline.ranks, [&](const std::vector<Span>& row) {
               return std::ranges::all_of(row, lasts_as_planned);
           });
}

Work work_of(const Plan& plan, const Timeline& timeline) {
    const Duration dispatch = dispatch_in_actions(plan, timeline);
    Work work;
    for (const auto& row : timeline.ranks) {
        for (const Span& span : row) {
            const Duration length = span.end - span.ready;
            const Duration in_action =
                is_compute(span.action.op) ? std::min(dispatch, length) : Duration{};
            work.dispatch += in_action;
            switch (span.action.op) {
                case Op::Forward:
                    work.sums.forward += length - in_action;
                    break;
                case Op::Backward:
                    work.sums.backward += length - in_action;
                    break;
                case Op::BackwardInput:
                    work.sums.backward_input += length - in_action;
                    break;
                case Op::BackwardWeight:
                    work.sums.backward_weight += length - in_action;
                    break;
                case Op::Recompute:
                    work.sums.recompute += length - in_action;
                    break;
                case Op::ReduceGradient:
                case Op::Unshard:
                case Op::Reshard:
                    work.sums.reduction += length;
                    break;
                case Op::GradientNorm:
                case Op::Optimizer:
                    work.sums.optimizer += length;
                    break;
                case Op::SendForward:
                case Op::RecvForward:
                case Op::SendBackward:
                case Op::RecvBackward:
                    break;
            }
        }
    }
    return work;
}

}  // namespace

Duration dispatch_in_actions(const Plan& plan, const Timeline& timeline) {
    const bool in_actions = timeline.origin == Origin::Predicted || is_paced(plan, timeline);
    return in_actions ? plan->dispatch : Duration{};
}

MessagesInActions messages_in_actions(const Plan& plan, const Timeline& timeline) {
    MessagesInActions result;
    for (std::size_t rank = 0; rank < timeline.ranks.size(); ++rank) {
        Duration work{};
        Duration shards{};
        Duration tensor{};
        for (const Span& span : timeline.ranks[rank]) {
            if (!is_send(span.action.op) && !is_receive(span.action.op)) {
                work += span.end - span.ready;
            }
            shards += plan.shard_wait(span.action);
            tensor += plan.tensor_sums(span.action);
        }
        result.shards += shards;
        result.tensor += tensor;
        if (work > result.work) {
            result.busiest = static_cast<int>(rank);
            result.work = work;
            result.busiest_shards = shards;
            result.busiest_tensor = tensor;
        }
    }
    const auto ranks = std::max<std::int64_t>(1, std::ssize(timeline.ranks));
    result.shards /= ranks;
    result.tensor /= ranks;
    return result;
}

std::vector<std::vector<Duration>> times_in_groups(const Plan& plan) {
    std::vector<std::vector<Duration>> times;
    for (const std::vector<Action>& row : plan->schedule.ranks) {
        std::vector<Duration>& of_rank = times.emplace_back();
        for (const Action& action : row) {
            of_rank.push_back(plan.shard_wait(action) + plan.tensor_sums(action));
        }
    }
    return times;
}

bool is_notable(Duration messages, Duration step) {
    return messages > Duration{} && messages >= step / 100;
}

Breakdown breakdown(const Plan& plan, const Timeline& timeline) {
    const auto ranks = static_cast<std::int64_t>(plan.rank_count());
    const Work work = work_of(plan, timeline);
    const Duration all_work = work.sums.sum() + work.dispatch;

    const Duration step = step_time(timeline);
    Conditions conditions = conditions_of(plan, timeline);
    const Duration replayed = std::min(step, replayed_step(plan, conditions));
    conditions = without_communication(std::move(conditions));
    const Duration silent = std::min(replayed, replayed_step(plan, conditions));
    conditions = with_equal_pieces(plan, std::move(conditions));
    const Duration equal = std::min(silent, replayed_step(plan, conditions));

    Breakdown mean = work.sums;
    for (Duration* part : {&mean.forward,
                           &mean.backward,
                           &mean.backward_input,
                           &mean.backward_weight,
                           &mean.recompute,
                           &mean.reduction,
                           &mean.optimizer}) {
        *part /= ranks;
    }
    mean.communication_wait = replayed - silent;
    mean.imbalance = silent - equal;
    mean.fill_and_drain = (equal * ranks - all_work) / ranks;
    mean.overhead = step - mean.sum();
    return mean;
}

}  // namespace pipetwin::sim
