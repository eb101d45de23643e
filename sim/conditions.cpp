#include "sim/conditions.h"

#include <algorithm>

#include "core/error.h"

namespace pipetwin::sim {

Duration occupation(const LinkCost& link, Bytes message) {
    if (message.count <= 0) {
        return Duration{};
    }
    return transfer_time(message + link.half_bandwidth, link.bytes_per_second);
}

namespace {

Conditions without_durations(const Plan& plan) {
    return {.durations = {},
            .links = plan->links,
            .reductions = plan->reductions,
            .channel_capacity = plan->channel_capacity};
}

}  // namespace

Conditions planned_conditions(const Plan& plan) {
    Conditions conditions = without_durations(plan);
    for (const auto& row : plan->schedule.ranks) {
        auto& durations = conditions.durations.emplace_back();
        for (const Action& action : row) {
            durations.push_back(plan.duration(action));
        }
    }
    return conditions;
}

Conditions conditions_of(const Plan& plan, const Timeline& timeline) {
    const auto& rows = plan->schedule.ranks;
    PIPETWIN_EXPECT(timeline.ranks.size() == rows.size(), "the timeline is one of this plan");
    Conditions conditions = without_durations(plan);
    for (std::size_t rank = 0; rank < rows.size(); ++rank) {
        PIPETWIN_EXPECT(timeline.ranks[rank].size() == rows[rank].size(),
                        "the timeline is one of this plan");
        auto& durations = conditions.durations.emplace_back();
        for (const Span& span : timeline.ranks[rank]) {
            durations.push_back(span.end - span.ready);
        }
    }
    return conditions;
}

Conditions without_communication(Conditions conditions) {
    for (std::vector<LinkCost>* links : {&conditions.links, &conditions.reductions}) {
        std::ranges::fill(*links, LinkCost{});
    }
    conditions.channel_capacity.reset();
    return conditions;
}

}  // namespace pipetwin::sim
