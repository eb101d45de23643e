#include <algorithm>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "core/base/as_index.h"
#include "core/schedule/edge.h"
#include "core/schedule/lower.h"
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
    const Duration step = step_time(timeline);
    return {.times = step_times(std::move(timeline)), .room = room, .step = step};
}

/// The capacity at which no send blocks; 0 where there are no messages.
int capacity_without_blocking(const Plan& plan, const Unblocked& run) {
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

/// Whether a message that crosses between two ranks has bytes.
bool room_takes_memory(const Plan& plan) {
    for (int boundary = 0; boundary + 1 < plan.stage_count(); ++boundary) {
        const auto has_bytes = [boundary](const std::vector<StageCost>& costs) {
            return costs[as_index(boundary)].output > Bytes{} ||
                   costs[as_index(boundary + 1)].input > Bytes{};
        };
        if (exchanges(plan->schedule, boundary) && std::ranges::any_of(plan->costs, has_bytes)) {
            return true;
        }
    }
    return false;
}

/// Whether a plan runs to its end with channels of some capacity, and as fast as unblocked.
class FastEnough {
  public:
    FastEnough(const Plan& plan, Duration unblocked)
        : plan_(plan), conditions_(planned_conditions(plan)), unblocked_(unblocked) {}

    bool with(int capacity) {
        conditions_.channel_capacity = capacity;
        const std::optional<Duration> step = step_of_capacity();
        return step && is_as_fast(*step, unblocked_);
    }

  private:
    std::optional<Duration> step_of_capacity() const {
        if (!conditions_.contention.any()) {
            return step_if_it_ends(plan_, conditions_);
        }
        return find_deadlock(plan_->schedule, *conditions_.channel_capacity).deadlock_free
                   ? std::optional(replayed_step(plan_, conditions_))
                   : std::nullopt;
    }

    const Plan& plan_;
    Conditions conditions_;
    Duration unblocked_;
};

/// The plan's capacity, of those up to `free`, at which no send blocks. More room never makes rows
/// without contention slower, so the answer can be bracketed: in most plans one message or two are
/// enough, and it is looked for from there.
int capacity_of(const Plan& plan, const Unblocked& run, int free) {
    if (free <= 1 || !room_takes_memory(plan)) {
        return free;
    }
    FastEnough is_enough(plan, run.step);
    int low = 0;  // too slow, or a deadlock
    int high = 1;
    while (high < free && !is_enough.with(high)) {
        low = high;
        high = std::min(2 * high, free);
    }
    while (high - low > 1) {
        const int middle = low + (high - low) / 2;
        (is_enough.with(middle) ? high : low) = middle;
    }
    return high;
}

}  // namespace

bool is_as_fast(Duration step, Duration unblocked) {
    constexpr int one_part_in = 1'000;
    return step <= unblocked + unblocked / one_part_in;
}

int settled_capacity(const Plan& plan) {
    const Unblocked run = unblocked(plan, RecordLinks::No);
    return capacity_of(plan, run, capacity_without_blocking(plan, run));
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
    const int free = capacity_without_blocking(plan, run);
    const int capacity = capacity_of(plan, run, free);
    plan = std::move(plan).with_proven_capacity(capacity);
    // In a fixed order times follow from what each action waits for. Of all messages the one that
    // makes room is taken when its room is asked for, so waiting for it changes nothing.
    StepTimes times = plan->contention.any() ? step_times(simulate(plan))
                      : capacity < free
                          ? times_in_fixed_order(plan, planned_conditions(plan), links)
                          : std::move(run.times);
    return {.plan = std::move(plan), .times = std::move(times)};
}

}  // namespace pipetwin::sim
