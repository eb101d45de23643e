// SPDX-License-Identifier: Apache-2.0
#include "tests/support/plain_plan.h"

#include "core/plan/plain_plan.h"
#include "core/schedule/generators/generate.h"

namespace pipetwin::testing {

PlainCosts plain(ScheduleKind schedule, int ranks, int micro_batches) {
    PlainCosts costs;
    costs.schedule = schedule;
    costs.schedule_name = std::string(to_string(schedule));
    costs.shape = {.ranks = ranks, .chunks = 1, .micro_batches = micro_batches};
    const auto stages = static_cast<std::size_t>(ranks);
    costs.forward.assign(stages, milliseconds(1));
    costs.backward.assign(stages, milliseconds(2));
    return costs;
}

PlainCosts random_costs(ScheduleKind schedule, int ranks, int micro_batches, std::mt19937& random) {
    // Not std::uniform_int_distribution: its numbers differ between standard libraries.
    const auto draw = [&random](unsigned lowest, unsigned highest) {
        return static_cast<int>(lowest + random() % (highest - lowest + 1));
    };
    PlainCosts costs = plain(schedule, ranks, micro_batches);
    for (std::size_t stage = 0; stage < costs.forward.size(); ++stage) {
        costs.forward[stage] = milliseconds(draw(1, 9));
        costs.backward[stage] = milliseconds(draw(1, 9));
        costs.recompute_cost.push_back(milliseconds(draw(1, 9)));
    }
    costs.link.latency = milliseconds(draw(0, 4));
    if (draw(0, 1) == 1) {
        costs.link.bytes_per_second = 1e9;
        costs.link.half_bandwidth = Bytes{draw(0, 2) * 1'000'000};
        costs.boundary = Bytes{draw(0, 5) * 1'000'000};
    }
    return costs;
}

Contention one_link(std::size_t boundaries, LinkSharing sharing) {
    Contention contention;
    contention.sharing = sharing;
    contention.shared_links = {1e9};
    contention.way_of_edge.assign(2 * boundaries, {0});
    return contention;
}

Plan one_rank_with_host_link(int micro_batches, int copy, int latency, Recompute recompute) {
    PlainCosts costs = plain(ScheduleKind::GPipe, 1, micro_batches);
    costs.forward = {milliseconds(2)};
    costs.backward = {milliseconds(3)};
    costs.recompute_cost = {milliseconds(2)};
    costs.recompute = recompute;
    PlanParts parts = make_plan(costs).parts();
    StageCost& cost = parts.costs.front().front();
    cost.input = Bytes{1'000'000};
    cost.saved = Bytes{4'000'000};
    cost.forward_drop_peak = Bytes{4'000'000};
    cost.backward_peak = Bytes{5'000'000};  // 1 MB of scratch on top
    const double bytes = recompute == Recompute::None ? 4e6 : 1e6;
    parts.host_link =
        LinkCost{.latency = milliseconds(latency), .bytes_per_second = bytes / (1e-3 * copy)};
    return Plan::make(std::move(parts));
}

}  // namespace pipetwin::testing
