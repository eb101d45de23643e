// SPDX-License-Identifier: Apache-2.0
#include "sim/explain/explanation.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/base/as_index.h"
#include "core/plan/offload.h"
#include "core/plan/plan.h"
#include "core/schedule/edge.h"
#include "sim/engine/conditions.h"
#include "sim/explain/breakdown.h"
#include "sim/simulate/simulate.h"

namespace pipetwin::sim {

namespace {

/// Tasks that are evaluated for all what-ifs together: some tenths of a second.
constexpr std::int64_t most_task_evaluations = 40'000'000;

/// Begin, end and sum of a rank's compute.
struct Extent {
    bool computes = false;
    Duration begin{};
    Duration end{};
    Duration compute{};
};

Extent extent_of(const std::vector<Span>& row) {
    Extent extent;
    for (const Span& span : row) {
        if (is_compute(span.action.op)) {
            extent.begin = extent.computes ? extent.begin : span.begin;
            extent.end = span.end;
            extent.compute += span.end - span.ready;
            extent.computes = true;
        }
    }
    return extent;
}

void explain_ranks(const Timeline& timeline, Explanation& result) {
    int rank = 0;
    for (const auto& row : timeline.ranks) {
        const Extent extent = extent_of(row);
        if (extent.computes) {
            const auto keep = [rank](auto& kept, Duration time, bool better) {
                if (!kept || better) {
                    kept = Explanation::RankTime{.rank = rank, .time = time};
                }
            };
            auto& begins = result.last_to_begin;
            auto& ends = result.first_to_finish;
            auto& busiest = result.busiest;
            keep(begins, extent.begin, begins && extent.begin > begins->time);
            keep(ends, extent.end, ends && extent.end < ends->time);
            keep(busiest, extent.compute, busiest && extent.compute > busiest->time);
        }
        result.mean_compute += extent.compute;
        ++rank;
    }
    result.mean_compute /= std::max(1, rank);
}

std::optional<Explanation::Link> slowest_link(const Plan& plan, const Timeline& timeline) {
    std::optional<Explanation::Link> slowest;
    bool all_alike = true;
    for (std::size_t edge = 0; edge < timeline.links.size(); ++edge) {
        const Duration latency = plan->links[edge / 2].latency;
        for (const Span& message : timeline.links[edge]) {
            const Duration time = message.end - message.begin + latency;
            all_alike = all_alike && (!slowest || slowest->message == time);
            if (!slowest || time > slowest->message) {
                slowest = {.pair = static_cast<int>(edge / 2), .message = time, .latency = latency};
            }
        }
    }
    if (slowest) {
        slowest->all_alike = all_alike;
    }
    return slowest && slowest->message > Duration{} ? slowest : std::nullopt;
}

/// The busiest of the links that messages and copies share.
std::optional<Explanation::SharedLink> busiest_link(const Plan& plan, const Timeline& timeline) {
    const Contention& contention = plan->contention;
    std::vector<double> bytes(contention.link_names.size(), 0);
    const auto add = [&](const std::vector<int>& way, Bytes message, Bytes half_bandwidth) {
        for (const int link : message.count > 0 ? way : std::vector<int>{}) {
            bytes[as_index(link)] += static_cast<double>((message + half_bandwidth).count);
        }
    };
    if (bytes.empty() || plan->transfer == TransferMode::HandOver) {
        return std::nullopt;
    }
    for (std::size_t edge = 0; edge < timeline.links.size(); ++edge) {
        for (const Span& message : timeline.links[edge]) {
            add(contention.way_of_edge[edge],
                plan.message_bytes(static_cast<int>(edge), message.action.micro_batch),
                plan->links[edge / 2].half_bandwidth);
        }
    }
    if (plan->host_link && !contention.way_of_copies.empty()) {
        const auto copies = stash_copies(plan);
        for (std::size_t rank = 0; rank < copies.size(); ++rank) {
            for (const StashCopy& copy : copies[rank]) {
                add(contention.way_of_copies[2 * rank],
                    copy.bytes,
                    plan->host_link->half_bandwidth);
                add(contention.way_of_copies[2 * rank + 1],
                    copy.bytes,
                    plan->host_link->half_bandwidth);
            }
        }
    }
    std::optional<Explanation::SharedLink> busiest;
    for (std::size_t link = 0; link < bytes.size(); ++link) {
        const Duration carries =
            transfer_time(Bytes{std::llround(bytes[link])}, contention.shared_links[link]);
        if (!busiest || carries > busiest->carries) {
            busiest = {.name = contention.link_names[link], .carries = carries};
        }
    }
    return busiest;
}

Conditions without_recompute(const Plan& plan, Conditions conditions) {
    const auto& rows = plan->schedule.ranks;
    for (std::size_t rank = 0; rank < rows.size(); ++rank) {
        for (std::size_t cell = 0; cell < rows[rank].size(); ++cell) {
            if (rows[rank][cell].op == Op::Recompute) {
                conditions.durations[rank][cell] = Duration{};
            }
        }
    }
    return conditions;
}

/// Finds the step time without one cause at a time, by replaying the rows.
void explain_causes(const Plan& plan,
                    const Timeline& timeline,
                    const Breakdown& breakdown,
                    Explanation& result) {
    const Conditions conditions = conditions_of(plan, timeline);
    const Duration replayed = replayed_step(plan, conditions);
    Conditions on_device = conditions;
    on_device.host_link.reset();
    const Duration without_copies =
        conditions.host_link ? replayed_step(plan, on_device) : replayed;
    Conditions roomy = std::move(on_device);
    roomy.channel_capacity.reset();
    const Duration with_room = replayed_step(plan, roomy);
    result.fill_and_drain = breakdown.fill_and_drain;
    result.imbalance = breakdown.imbalance;
    // Who comes first on a shared link decides a lot: room, or a link less to share, can lengthen a
    // step. Such a difference counts as 0.
    result.host_copies =
        std::clamp(replayed - without_copies, Duration{}, breakdown.communication_wait);
    const Duration messages = breakdown.communication_wait - result.host_copies;
    result.back_pressure = std::clamp(without_copies - with_room, Duration{}, messages);
    roomy.contention = {};
    const Duration of_links = std::clamp(
        with_room - replayed_step(plan, roomy), Duration{}, messages - result.back_pressure);
    result.communication = messages - result.back_pressure - of_links;
    result.sharing = std::max(Duration{}, result.step - replayed) + of_links;
    // Under contention the timeline's durations have the sharing in them, and what changes would
    // share anew.
    const bool shares = plan->contention.any();
    if (shares && timeline.origin != Origin::Predicted) {
        return;
    }
    const Conditions planned = shares ? with_planned_durations(plan) : conditions;
    Conditions instant = without_communication(planned);
    instant.channel_capacity = planned.channel_capacity;
    instant.host_link = planned.host_link;
    result.instant_step = replayed_step(plan, instant);
    Conditions with_planned_room = planned;
    with_planned_room.channel_capacity.reset();
    result.roomy_step = replayed_step(plan, with_planned_room);
    if (planned.host_link) {
        Conditions without_host = planned;
        without_host.host_link.reset();
        result.step_on_device = replayed_step(plan, without_host);
    }
    result.equal_step = replayed_step(plan, with_equal_pieces(plan, planned));
    result.step_without_recompute = replayed_step(plan, without_recompute(plan, planned));
}

/// [kind]: the targets of one kind of work everywhere, of one stage, of links, of one rank.
std::vector<std::vector<Target>> kinds_of_targets(const std::vector<Target>& targets) {
    std::vector<std::vector<Target>> kinds(4);
    for (const Target& target : targets) {
        const bool everything = target.index == everywhere;
        const std::size_t kind = target.part == Part::Link || target.part == Part::HostLink ? 2
                                 : target.part == Part::Rank                                ? 3
                                                             : (everything ? 0 : 1);
        kinds[kind].push_back(target);
    }
    return kinds;
}

/// Where all links between ranks are of one class, faster links of this class bring the same.
void add_cluster_links(const std::vector<WhatIf>& cluster_links, Explanation& result) {
    Duration with_faster_messages = result.step;
    for (const WhatIf& what : result.what_ifs) {
        if (what.target == Target{.part = Part::Link}) {
            with_faster_messages = what.step;
        }
    }
    for (const WhatIf& what : cluster_links) {
        if (what.step < with_faster_messages) {
            result.what_ifs.push_back(what);
            result.best_of_kind.push_back({what});
        }
    }
}

void explain_gains(const Plan& plan,
                   const std::vector<WhatIf>& cluster_links,
                   Explanation& result) {
    if (action_count(plan) > largest_explained) {
        return;
    }
    const bool shares = plan->contention.any();
    const Sensitivity sensitivity(plan);
    constexpr double factor = 2;
    const auto tasks =
        static_cast<std::int64_t>(std::max<std::size_t>(1, sensitivity.task_count()));
    // By events a step is played through again, which takes ten times as long and more.
    const std::int64_t budget = shares ? most_task_evaluations / 20 : most_task_evaluations;
    const std::int64_t evaluations = std::max<std::int64_t>(20, budget / tasks);
    const auto kinds = kinds_of_targets(sensitivity.targets());
    const auto share = evaluations / static_cast<std::int64_t>(kinds.size());
    for (const auto& kind : kinds) {
        auto best = sensitivity.best(kind, factor, most_explained, share);
        result.what_ifs.insert(result.what_ifs.end(), best.begin(), best.end());
        if (!best.empty()) {
            result.best_of_kind.push_back(std::move(best));
        }
    }
    add_cluster_links(cluster_links, result);
    std::ranges::stable_sort(result.what_ifs, {}, &WhatIf::step);
    result.what_ifs.resize(std::min(most_explained, result.what_ifs.size()));
    std::ranges::stable_sort(
        result.best_of_kind, {}, [](const auto& best) { return best.front().step; });
    result.step_without_dispatch = sensitivity.step_if({.part = Part::Dispatch}, infinitely);
    if (shares) {
        return;
    }
    const auto slack = sensitivity.slack();
    for (auto& [wait, chain, of_wait] : result.waits) {
        if (wait.kind != WaitKind::StepEnd) {
            of_wait = slack.at(as_index(wait.rank)).at(as_index(wait.cell));
        }
    }
}

Explanation::MoreMicroBatches with_more(const Plan& plan) {
    const Timeline timeline = simulate(plan);
    const Breakdown parts = breakdown(plan, timeline);
    const Duration step = step_time(timeline);
    return {.micro_batches = plan.micro_batches(),
            .bubble_share = static_cast<double>(parts.fill_and_drain.count()) /
                            static_cast<double>(std::max<std::int64_t>(1, step.count())),
            .step = step,
            .same_batch = plan.samples().has_value()};
}

}  // namespace

std::size_t action_count(const Plan& plan) {
    std::size_t count = 0;
    for (const auto& row : plan->schedule.ranks) {
        count += row.size();
    }
    return count;
}

Explanation explain(const Plan& plan,
                    const Timeline& timeline,
                    const Breakdown& breakdown,
                    const std::optional<Plan>& more,
                    const std::vector<WhatIf>& cluster_links) {
    Explanation result;
    result.step = step_time(timeline);
    for (const Wait& wait : waits_of(timeline)) {
        result.wait += wait.end - wait.begin;
    }
    result.wait /= std::max(1, plan.rank_count());
    result.messages = messages_in_actions(plan, timeline);
    result.recompute = breakdown.recompute;
    for (const auto& row : plan->schedule.ranks) {
        const auto dispatched =
            std::ranges::count_if(row, [](const Action& action) { return is_compute(action.op); });
        result.dispatch += dispatched * plan->dispatch;
    }
    result.dispatch /= std::max(1, plan.rank_count());
    explain_ranks(timeline, result);
    explain_causes(plan, timeline, breakdown, result);
    result.slowest_link = slowest_link(plan, timeline);
    result.busiest_link = busiest_link(plan, timeline);
    const Causes causes(plan, timeline);
    for (const Wait& wait : longest_waits(timeline, most_explained)) {
        result.waits.push_back({.wait = wait, .chain = chain_of(causes, wait)});
    }
    explain_gains(plan, cluster_links, result);
    if (more) {
        result.more = with_more(*more);
    }
    return result;
}

}  // namespace pipetwin::sim
