#include "sim/conditions.h"

#include "core/error.h"

namespace pipetwin::sim {

Duration occupation(const LinkCost& link, Bytes message) {
    if (message.count <= 0) {
        return Duration{};
    }
    return transfer_time(message + link.half_bandwidth, link.bytes_per_second);
}

Conditions planned_conditions(const Plan& plan) {
    Conditions conditions{
        .durations = {}, .links = plan->links, .channel_capacity = plan->channel_capacity};
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
    Conditions conditions{
        .durations = {}, .links = plan->links, .channel_capacity = plan->channel_capacity};
    for (std::size_t rank = 0; rank < rows.size(); ++rank) {
        PIPETWIN_EXPECT(timeline.ranks[rank].size() == rows[rank].size(),
                        "the timeline is one of this plan");
        auto& durations = conditions.durations.emplace_back();
        for (const Span& span : timeline.ranks[rank]) {
            durations.push_back(span.end - span.begin);
        }
    }
    return conditions;
}

Conditions without_communication(Conditions conditions) {
    for (LinkCost& link : conditions.links) {
        link = LinkCost{};
    }
    conditions.channel_capacity.reset();
    return conditions;
}

}  // namespace pipetwin::sim
