#include <algorithm>
#include <limits>
#include <utility>

#include "core/edge.h"
#include "core/validate.h"
#include "sim/fixed_order.h"
#include "sim/simulate.h"

namespace pipetwin::sim {

namespace {

/// The most messages that were ever handed over and not yet taken on one edge. A message that is
/// taken at the moment at which another is handed over makes room for it.
int most_waiting(const std::vector<Duration>& handed_over, const std::vector<Duration>& taken) {
    int most = 0;
    for (std::size_t k = 0; k < handed_over.size(); ++k) {
        const auto gone =
            std::upper_bound(taken.begin(), taken.end(), handed_over[k]) - taken.begin();
        most = std::max(most, static_cast<int>(k) + 1 - static_cast<int>(gone));
    }
    return most;
}

/// On any edge; 0 where there are no messages.
int most_waiting(const Timeline& timeline) {
    const std::size_t edges = timeline.links.size();
    std::vector<std::vector<Duration>> handed_over(edges);
    std::vector<std::vector<Duration>> taken(edges);
    for (const auto& row : timeline.ranks) {
        for (const Span& span : row) {
            if (is_send(span.action.op)) {
                handed_over[static_cast<std::size_t>(edge_of(span.action))].push_back(span.ready);
            } else if (is_receive(span.action.op)) {
                taken[static_cast<std::size_t>(edge_of(span.action))].push_back(span.end);
            }
        }
    }
    int most = 0;
    for (std::size_t edge = 0; edge < edges; ++edge) {
        most = std::max(most, most_waiting(handed_over[edge], taken[edge]));
    }
    return most;
}

Unblocked unblocked(const Plan& plan, Timeline recycled) {
    if (!plan->contention.any()) {
        return in_fixed_order_unblocked(plan, std::move(recycled));
    }
    Conditions conditions = planned_conditions(plan);
    conditions.channel_capacity.reset();
    Timeline timeline = replay(plan, conditions, std::move(recycled));
    const int most = most_waiting(timeline);
    constexpr int unknown = std::numeric_limits<int>::max();
    return {.timeline = std::move(timeline),
            .room = {.most_waiting = most, .most_without_ties = unknown}};
}

int capacity_of(const Plan& plan, const Unblocked& run) {
    if (std::ranges::all_of(run.timeline.links, [](const auto& row) { return row.empty(); })) {
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
    return capacity_of(plan, unblocked(plan, {}));
}

Plan with_settled_capacity(Plan plan) {
    if (plan->channel_capacity) {
        return plan;
    }
    const int capacity = settled_capacity(plan);
    return std::move(plan).with_proven_capacity(capacity);
}

SettledStep simulate_settled(Plan plan, Timeline recycled) {
    if (plan->channel_capacity) {
        Timeline timeline = simulate(plan, std::move(recycled));
        return {.plan = std::move(plan), .timeline = std::move(timeline)};
    }
    Unblocked run = unblocked(plan, std::move(recycled));
    const int capacity = capacity_of(plan, run);
    plan = std::move(plan).with_proven_capacity(capacity);
    // In a fixed order times follow from what each action waits for. Of all messages the one that
    // makes room is taken when its room is asked for, so waiting for it changes nothing.
    Timeline timeline =
        plan->contention.any() ? simulate(plan, std::move(run.timeline)) : std::move(run.timeline);
    return {.plan = std::move(plan), .timeline = std::move(timeline)};
}

}  // namespace pipetwin::sim
