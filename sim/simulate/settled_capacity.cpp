#include <algorithm>
#include <limits>
#include <utility>

#include "core/base/as_index.h"
#include "core/schedule/edge.h"
#include "core/schedule/validate.h"
#include "sim/engine/fixed_order.h"
#include "sim/engine/occupancy.h"
#include "sim/simulate/simulate.h"

namespace pipetwin::sim {

namespace {

/// The room that messages took, from the times at which they were handed over and taken.
Occupancy::Room room_of(const Timeline& timeline, int micro_batches) {
    const std::size_t edges = timeline.links.size();
    Occupancy occupancy(edges, micro_batches);
    std::vector<int> handed_over(edges);
    std::vector<int> taken(edges);
    for (const auto& row : timeline.ranks) {
        for (const Span& span : row) {
            if (is_send(span.action.op)) {
                const int edge = edge_of(span.action);
                occupancy.hand_over(edge, handed_over[as_index(edge)]++, span.ready);
            } else if (is_receive(span.action.op)) {
                const int edge = edge_of(span.action);
                occupancy.take(edge, taken[as_index(edge)]++, span.end);
            }
        }
    }
    return occupancy.room();
}

Unblocked unblocked(const Plan& plan, RecordLinks links) {
    if (!plan->contention.any()) {
        return in_fixed_order_unblocked(plan, links);
    }
    Conditions conditions = planned_conditions(plan);
    conditions.channel_capacity.reset();
    Timeline timeline = replay(plan, conditions);
    Occupancy::Room room = room_of(timeline, plan.micro_batches());
    // Where ranks share what they compute with, times do not follow from what is waited for alone.
    room.most_without_ties = std::numeric_limits<int>::max();
    return {.times = step_times(std::move(timeline)), .room = room};
}

int capacity_of(const Plan& plan, const Unblocked& run) {
    if (!run.room.any) {
        return 0;
    }
    const int seen = std::max(1, run.room.most_waiting);
    // An action ends no sooner than what it waits for, and if every send comes later than the
    // receive that makes room for it, then no circle of waiting leads over one; without any the
    // rows have just run to their ends.
    if (run.room.most_without_ties <= seen) {
        return seen;
    }
    // Actions without duration could need more than the times show; the deadlock check knows.
    return find_deadlock(plan->schedule, seen).deadlock_free ? seen
                                                             : smallest_capacity(plan->schedule);
}

}  // namespace

int settled_capacity(const Plan& plan) {
    return capacity_of(plan, unblocked(plan, RecordLinks::No));
}

Plan with_settled_capacity(Plan plan) {
    if (plan->channel_capacity) {
        return plan;
    }
    const int capacity = settled_capacity(plan);
    return std::move(plan).with_proven_capacity(capacity);
}

SettledStep simulate_settled(Plan plan, RecordLinks links) {
    if (plan->channel_capacity) {
        StepTimes times = step_times(simulate(plan));
        return {.plan = std::move(plan), .times = std::move(times)};
    }
    Unblocked run = unblocked(plan, links);
    const int capacity = capacity_of(plan, run);
    plan = std::move(plan).with_proven_capacity(capacity);
    // In a fixed order times follow from what each action waits for. Of all messages the one that
    // makes room is taken when its room is asked for, so waiting for it changes nothing.
    StepTimes times = plan->contention.any() ? step_times(simulate(plan)) : std::move(run.times);
    return {.plan = std::move(plan), .times = std::move(times)};
}

}  // namespace pipetwin::sim
