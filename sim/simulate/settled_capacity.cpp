// SPDX-License-Identifier: Apache-2.0
#include "sim/simulate/settled_capacity.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "core/base/as_index.h"
#include "core/plan/plan.h"
#include "core/schedule/edge.h"
#include "core/schedule/lower.h"
#include "core/schedule/validate.h"
#include "core/timeline/footprint.h"
#include "sim/engine/fixed_order.h"
#include "sim/engine/occupancy.h"
#include "sim/simulate/simulate.h"

namespace pipetwin::sim {

namespace {

/// The room that messages took, from the times at which they were handed over and taken.
Occupancy::Room room_of(const Timeline& timeline, const Schedule& schedule) {
    const std::size_t edges = timeline.links.size();
    Occupancy occupancy(edges, schedule.micro_batches);
    std::vector<int> handed_over(edges);
    std::vector<int> taken(edges);
    for (const auto& row : timeline.ranks) {
        for (const Span& span : row) {
            if (is_send(span.action.op)) {
                const int edge = edge_of(schedule, span.action);
                occupancy.hand_over(edge, handed_over[as_index(edge)]++, span.ready);
            } else if (is_receive(span.action.op)) {
                const int edge = edge_of(schedule, span.action);
                occupancy.take(edge, taken[as_index(edge)]++, span.end);
            }
        }
    }
    return occupancy.room(schedule);
}

Conditions without_capacity(const Plan& plan) {
    Conditions conditions = planned_conditions(plan);
    conditions.channel_capacity.reset();
    return conditions;
}

Unblocked unblocked(const Plan& plan, RecordLinks links) {
    if (!plan->contention.any()) {
        return in_fixed_order_unblocked(plan, links);
    }
    Timeline timeline = replay(plan, without_capacity(plan));
    Occupancy::Room room = room_of(timeline, plan->schedule);
    // Where ranks share what they compute with, times do not follow from what is waited for alone.
    room.most_without_ties = std::numeric_limits<int>::max();
    return {.times = step_times(std::move(timeline)), .room = room};
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
    const std::size_t boundaries = boundary_count(plan->schedule);
    for (std::size_t pair = 0; pair < pair_count(plan->schedule); ++pair) {
        const auto has_bytes = [pair](const std::vector<StageCost>& costs) {
            return costs[pair].output > Bytes{} || costs[pair + 1].input > Bytes{};
        };
        const bool bytes = plan->message_bytes.empty()
                               ? std::ranges::any_of(plan->costs, has_bytes)
                               : std::ranges::any_of(plan->message_bytes, [pair](const auto& each) {
                                     return each[pair] > Bytes{};
                                 });
        if (bytes && (pair >= boundaries || exchanges(plan->schedule, static_cast<int>(pair)))) {
            return true;
        }
    }
    return false;
}

/// The smallest capacity from 1 to `most` for which `is_enough` holds, as it does for every larger
/// one and for `most`, which is not asked for. In most plans one message or two are enough, and it
/// is looked for from there: 1, 2, 4, ..., and then by bisection.
template <class IsEnough>
int least_capacity(int most, IsEnough is_enough) {
    int low = 0;
    int high = 1;
    while (high < most && !is_enough(high)) {
        low = high;
        high = std::min(2 * high, most);
    }
    while (high - low > 1) {
        const int middle = low + (high - low) / 2;
        (is_enough(middle) ? high : low) = middle;
    }
    return high;
}

/// The capacity of a plan in which ranks or messages contend: nothing says that more room makes it
/// faster, but up to the capacity at which no send blocks there is one that is fast enough.
int capacity_under_contention(const Plan& plan) {
    const Unblocked run = unblocked(plan, RecordLinks::No);
    const int free = capacity_without_blocking(plan, run);
    if (free <= 1 || !room_takes_memory(plan)) {
        return free;
    }
    Conditions conditions = without_capacity(plan);
    const Duration unblocked = replayed_step(plan, conditions);
    return least_capacity(free, [&](int capacity) {
        conditions.channel_capacity = capacity;
        return find_deadlock(plan->schedule, capacity).deadlock_free &&
               is_as_fast(replayed_step(plan, conditions), unblocked);
    });
}

/// Tells whether steps of a plan without contention are as fast as with room for every message.
class FastEnough {
  public:
    explicit FastEnough(const Plan& plan) : plan_(plan) {}

    bool operator()(const EndedStep& ended) {
        if (unblocked_ < Duration{}) {
            unblocked_ = ended.unblocked ? *ended.unblocked
                                         : step_in_fixed_order(plan_, without_capacity(plan_));
        }
        return is_as_fast(ended.step, unblocked_);
    }

  private:
    const Plan& plan_;
    Duration unblocked_{-1};  ///< below 0: not known yet
};

/// With room for all messages of a step no send blocks.
int capacity_in_fixed_order(const Plan& plan) {
    if (!room_takes_memory(plan)) {
        return capacity_without_blocking(plan, unblocked(plan, RecordLinks::No));
    }
    Conditions conditions = planned_conditions(plan);
    FastEnough is_fast_enough(plan);
    return least_capacity(plan.micro_batches(), [&](int capacity) {
        conditions.channel_capacity = capacity;
        const std::optional<EndedStep> ended = step_if_it_ends(plan, conditions);
        return ended && is_fast_enough(*ended);
    });
}

/// [rank]: bytes that it holds before its first action. Peaks of plans that differ in capacity
/// alone differ by these.
std::vector<Bytes> resident_totals(const Plan& plan) {
    std::vector<Bytes> totals;
    for (int rank = 0; rank < plan.rank_count(); ++rank) {
        totals.push_back(resident_memory(plan, rank).total());
    }
    return totals;
}

/// Gives plans of one scenario their capacity, and tells whether the ranks have the memory for it.
class RoomInMemory {
  public:
    explicit RoomInMemory(const Plan& plan)
        : peaks_(peak_totals(plan)), resident_(resident_totals(plan)) {}

    bool fits_with(Plan& plan, int capacity) const {
        plan = std::move(plan).with_proven_capacity(capacity);
        const std::vector<Bytes> resident = resident_totals(plan);
        for (std::size_t rank = 0; rank < peaks_.size(); ++rank) {
            const Bytes peak = peaks_[rank] - resident_[rank] + resident[rank];
            if (peak > plan.memory_limit(static_cast<int>(rank)).value_or(peak)) {
                return false;
            }
        }
        return true;
    }

  private:
    std::vector<Bytes> peaks_;
    std::vector<Bytes> resident_;
};

/// The plan with a capacity, or where its ranks lack the memory for that with the largest one that
/// they have the memory for. Which plans fit follows from their sizes then, however fast they are.
/// The plan has the capacity itself where no other fits or is free of deadlock.
Plan with_capacity_in_memory(Plan plan, int capacity) {
    const bool is_limited = plan->memory_limit || !plan->memory_limits.empty();
    if (capacity <= 1 || !is_limited || plan->host_link || !room_takes_memory(plan)) {
        return std::move(plan).with_proven_capacity(capacity);
    }
    const RoomInMemory room(plan);
    if (room.fits_with(plan, capacity)) {
        return plan;
    }
    int low = 0;
    int high = capacity;
    while (high - low > 1) {
        const int middle = low + (high - low) / 2;
        (room.fits_with(plan, middle) ? low : high) = middle;
    }
    const bool is_one = low > 0 && find_deadlock(plan->schedule, low).deadlock_free;
    return std::move(plan).with_proven_capacity(is_one ? low : capacity);
}

/// A plan with its capacity, as `with_settled_capacity` gives it to one without contention whose
/// messages have bytes.
template <class Ended>
struct SettledBy {
    Plan plan;
    std::optional<Ended> ended;  ///< the step at that capacity; none: it was not simulated
};

/// Settles the capacity with steps that `try_step(plan, conditions)` simulates; it returns none for
/// rows that wait for each other. Steps that are not needed any more go to `recycle`.
template <class Ended, class TryStep, class Recycle>
SettledBy<Ended> settled_by(Plan plan, TryStep try_step, Recycle recycle) {
    Conditions conditions = planned_conditions(plan);
    FastEnough is_fast_enough(plan);
    std::optional<Ended> enough;  // with the smallest capacity so far
    std::optional<int> settled_at;
    const int capacity = least_capacity(plan.micro_batches(), [&](int some) {
        conditions.channel_capacity = some;
        std::optional<Ended> ended = try_step(plan, conditions);
        const bool is_enough = ended && is_fast_enough(*ended);
        if (is_enough) {
            std::swap(enough, ended);
            settled_at = some;
        }
        if (ended) {
            recycle(*std::move(ended));
        }
        return is_enough;
    });
    plan = with_capacity_in_memory(std::move(plan), capacity);
    if (plan->channel_capacity != settled_at) {
        enough.reset();
    }
    return {.plan = std::move(plan), .ended = std::move(enough)};
}

/// Settles the capacity of a plan whose rows fix all times, and keeps the times of its step.
SettledStep settled_in_fixed_order(Plan plan, RecordLinks links) {
    if (!room_takes_memory(plan)) {
        // In a fixed order times follow from what each action waits for. Of all messages the one
        // that makes room is taken when its room is asked for, so waiting for it changes nothing.
        Unblocked run = unblocked(plan, links);
        const int capacity = capacity_without_blocking(plan, run);
        return {.plan = std::move(plan).with_proven_capacity(capacity),
                .times = std::move(run.times)};
    }
    const auto try_step = [links](const Plan& some, const Conditions& conditions) {
        return times_if_it_ends(some, conditions, links);
    };
    auto [settled, ended] = settled_by<TimedStep>(std::move(plan), try_step, [](TimedStep&&) {});
    if (!ended) {
        ended = try_step(settled, planned_conditions(settled));
    }
    return {.plan = std::move(settled), .times = std::move(ended.value().times)};
}

}  // namespace

bool is_as_fast(Duration step, Duration unblocked) {
    constexpr int one_part_in = 1'000;
    return step <= unblocked + unblocked / one_part_in;
}

int settled_capacity(const Plan& plan) {
    return plan->contention.any() ? capacity_under_contention(plan) : capacity_in_fixed_order(plan);
}

Conditions conditions_for_other_costs(const Plan& plan) {
    Conditions conditions = planned_conditions(plan);
    if (!plan->channel_capacity || room_takes_memory(plan)) {
        return conditions;
    }
    Conditions roomy = conditions;
    roomy.channel_capacity.reset();
    return replayed_step(plan, roomy) == replayed_step(plan, conditions) ? roomy : conditions;
}

Plan with_settled_capacity(Plan plan) {
    if (plan->channel_capacity) {
        return plan;
    }
    const int capacity = settled_capacity(plan);
    return with_capacity_in_memory(std::move(plan), capacity);
}

SettledStep simulate_settled(Plan plan, RecordLinks links) {
    if (!plan->channel_capacity && !plan->contention.any()) {
        return settled_in_fixed_order(std::move(plan), links);
    }
    plan = with_settled_capacity(std::move(plan));
    StepTimes times = step_times(simulate(plan));
    return {.plan = std::move(plan), .times = std::move(times)};
}

SettledTimeline settled_timeline(Plan plan, Timeline recycled) {
    std::vector<Bytes> room = resident_totals(plan);
    const auto settled = [&room](Plan with_capacity, Timeline timeline) {
        const std::vector<Bytes> resident = resident_totals(with_capacity);
        std::ranges::transform(resident, room, room.begin(), std::minus{});
        return SettledTimeline{.plan = std::move(with_capacity),
                               .timeline = std::move(timeline),
                               .room = std::move(room)};
    };
    if (plan->channel_capacity || plan->contention.any() || !room_takes_memory(plan)) {
        plan = with_settled_capacity(std::move(plan));
        Timeline timeline = simulate(plan, std::move(recycled));
        return settled(std::move(plan), std::move(timeline));
    }
    auto [with_capacity, ended] = settled_by<EndedTimeline>(
        std::move(plan),
        [&](const Plan& some, const Conditions& conditions) {
            return timeline_if_it_ends(some, conditions, std::move(recycled));
        },
        [&](EndedTimeline&& step) { recycled = std::move(step.timeline); });
    Timeline timeline =
        ended ? std::move(ended->timeline) : simulate(with_capacity, std::move(recycled));
    return settled(std::move(with_capacity), std::move(timeline));
}

}  // namespace pipetwin::sim
