// SPDX-License-Identifier: Apache-2.0
#include "sim/engine/conditions.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "core/base/as_index.h"
#include "core/base/error.h"
#include "core/costs/profile.h"
#include "core/plan/plan.h"
#include "core/schedule/recompute.h"
#include "core/schedule/schedule.h"

namespace pipetwin::sim {

Duration times(Duration time, double factor) {
    return Duration{
        static_cast<std::int64_t>(std::nearbyint(static_cast<double>(time.count()) * factor))};
}

Duration occupation(const LinkCost& link, Bytes message) {
    if (message.count <= 0) {
        return Duration{};
    }
    return transfer_time(message + link.half_bandwidth, link.bytes_per_second);
}

Bytes message_bytes(const Plan& plan, int edge, int micro_batch) {
    return plan.message_bytes(edge, micro_batch);
}

Conditions planned_conditions(const Plan& plan) {
    return {.durations = {},
            .duration_of_op = {},
            .links = plan->links,
            .message_factors = {},
            .copy_factors = {},
            .reductions = plan->reductions,
            .overlapped_reductions =
                plan->overlap_reduction ? plan->all_reduce : std::vector<Duration>{},
            .channel_capacity = plan->channel_capacity,
            .transfer = plan->transfer,
            .host_link = plan->host_link,
            .contention = plan->contention};
}

Conditions conditions_of(const Plan& plan, const Timeline& timeline) {
    const auto& rows = plan->schedule.ranks;
    PIPETWIN_EXPECT(timeline.ranks.size() == rows.size(), "the timeline is one of this plan");
    Conditions conditions = planned_conditions(plan);
    conditions.contention.cores = 0;
    conditions.contention.interference.clear();
    for (std::size_t rank = 0; rank < rows.size(); ++rank) {
        PIPETWIN_EXPECT(timeline.ranks[rank].size() == rows[rank].size(),
                        "the timeline is one of this plan");
        auto& durations = conditions.durations.emplace_back();
        durations.reserve(rows[rank].size());
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
    conditions.overlapped_reductions.clear();
    conditions.contention.shared_links.clear();
    conditions.channel_capacity.reset();
    conditions.host_link.reset();
    return conditions;
}

namespace {

/// Recompute as if every piece had its equal share of it: of each micro-batch, the R that there are
/// last shorter, and where a piece has none its backward lasts longer by as much.
class EqualRecompute {
  public:
    EqualRecompute(const Plan& plan, Duration mean) : plan_(plan) {
        const int pieces = model_stage_count(plan->schedule);
        for (int k = 0; k < plan.micro_batches(); ++k) {
            int with = 0;
            for (int piece = 0; piece < pieces; ++piece) {
                with += recomputes(plan->recompute.of(piece), k, plan.micro_batches()) ? 1 : 0;
            }
            // Rounded up, as the means are; in two parts, so that no product overflows.
            const std::int64_t rest = (mean % pieces).count() * with;
            share_.push_back(mean / pieces * with + Duration{(rest + pieces - 1) / pieces});
        }
    }

    /// The duration of an R, or the time by which recompute makes a backward longer.
    Duration operator()(const Action& action) const {
        const bool backward = action.op == Op::Backward || action.op == Op::BackwardInput;
        if (action.op != Op::Recompute && (!backward || has_recompute(action))) {
            return {};
        }
        return share_[as_index(action.micro_batch)];
    }

  private:
    bool has_recompute(const Action& action) const {
        return recomputes(plan_->recompute.of(model_stage_of(plan_->schedule, action.stage)),
                          action.micro_batch,
                          plan_.micro_batches());
    }

    const Plan& plan_;
    std::vector<Duration> share_;  ///< [micro-batch]
};

}  // namespace

Conditions with_equal_pieces(const Plan& plan, Conditions conditions) {
    struct Total {
        Duration time{};
        std::int64_t count = 0;
        /// Rounded up; nothing of nothing.
        Duration mean() const {
            return count == 0 ? Duration{} : (time + Duration{count - 1}) / count;
        }
    };
    std::map<Op, Total> totals;
    const auto& rows = plan->schedule.ranks;
    for (std::size_t rank = 0; rank < rows.size(); ++rank) {
        for (std::size_t cell = 0; cell < rows[rank].size(); ++cell) {
            Total& total = totals[rows[rank][cell].op];
            total.time += conditions.durations[rank][cell];
            ++total.count;
        }
    }
    const EqualRecompute recompute(plan, totals[Op::Recompute].mean());
    totals.erase(Op::Recompute);
    for (std::size_t rank = 0; rank < rows.size(); ++rank) {
        for (std::size_t cell = 0; cell < rows[rank].size(); ++cell) {
            const Action& action = rows[rank][cell];
            conditions.durations[rank][cell] = totals[action.op].mean() + recompute(action);
        }
    }
    return conditions;
}

Conditions with_planned_durations(const Plan& plan) {
    Conditions conditions = planned_conditions(plan);
    for (const auto& row : plan->schedule.ranks) {
        auto& durations = conditions.durations.emplace_back();
        durations.reserve(row.size());
        for (const Action& action : row) {
            durations.push_back(plan.duration(action));
        }
    }
    return conditions;
}

Conditions with_slower_rank(const Plan& plan, int rank, double factor) {
    Conditions conditions = with_planned_durations(plan);
    for (Duration& duration : conditions.durations.at(as_index(rank))) {
        duration = times(duration, factor);
    }
    return conditions;
}

}  // namespace pipetwin::sim
