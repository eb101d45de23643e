#include <algorithm>

#include "core/edge.h"
#include "core/validate.h"
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

}  // namespace

int settled_capacity(const Plan& plan) {
    Conditions unblocked = planned_conditions(plan);
    unblocked.channel_capacity.reset();
    const Timeline timeline = replay(plan, unblocked);

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
    bool any = false;
    for (std::size_t edge = 0; edge < edges; ++edge) {
        any = any || !handed_over[edge].empty();
        most = std::max(most, most_waiting(handed_over[edge], taken[edge]));
    }
    if (!any) {
        return 0;
    }
    // Actions without duration could need more than the times show; the deadlock check knows.
    const int seen = std::max(1, most);
    return find_deadlock(plan->schedule, seen).deadlock_free ? seen
                                                             : smallest_capacity(plan->schedule);
}

Plan with_settled_capacity(Plan plan) {
    if (plan->channel_capacity) {
        return plan;
    }
    const int capacity = settled_capacity(plan);
    return std::move(plan).with_capacity(capacity);
}

}  // namespace pipetwin::sim
