// SPDX-License-Identifier: Apache-2.0
#include "sim/engine/fixed_order.h"

#include <algorithm>
#include <cstring>

#include "core/base/as_index.h"
#include "core/plan/plan.h"
#include "core/schedule/lower.h"
#include "sim/engine/host_copies.h"
#include "sim/engine/prefetch_for_write.h"
#include "sim/engine/row_walk.h"
#include "sim/engine/step_costs.h"
#include "sim/stats/fifo.h"

namespace pipetwin::sim {

namespace {

/// A row per edge that carries messages, empty and with room for them.
void prepare_links(const Schedule& schedule, std::vector<std::vector<Span>>& links) {
    links.resize(edge_count(schedule));
    for (std::size_t edge = 0; edge < links.size(); ++edge) {
        links[edge].clear();
        const bool is_skip = edge / 2 >= boundary_count(schedule);
        if (is_skip || exchanges(schedule, static_cast<int>(edge / 2))) {
            links[edge].reserve(as_index(schedule.micro_batches));
        }
    }
}

void add_message(std::vector<std::vector<Span>>& links,
                 const MessageEnd& end,
                 Duration begin,
                 Duration through) {
    std::vector<Span>& row = links[as_index(end.edge)];
    row.push_back({end.action, begin, begin, through});
    prefetch_for_write(&row.back());
}

/// No rows at all where no link carries anything.
void leave_out_empty(std::vector<std::vector<Span>>& links) {
    if (std::ranges::all_of(links, [](const auto& row) { return row.empty(); })) {
        links.clear();
    }
}

/// Writes the times of actions and messages into a timeline.
class Spans {
  public:
    using Row = Span*;

    Spans(const Schedule& schedule, Timeline recycled) : timeline_(std::move(recycled)) {
        timeline_.origin = Origin::Predicted;
        timeline_.ranks.resize(schedule.ranks.size());
        for (std::size_t rank = 0; rank < schedule.ranks.size(); ++rank) {
            timeline_.ranks[rank].resize(schedule.ranks[rank].size());  // each is written later
        }
        timeline_.host_copies.clear();
        prepare_links(schedule, timeline_.links);
    }

    Span* of_rank(int rank) { return timeline_.ranks[as_index(rank)].data(); }

    static void on_rank(Span* spans,
                        std::size_t cell,
                        const Action& action,
                        Duration begin,
                        Duration ready,
                        Duration end) {
        Span& span = spans[cell];
        // Copied as one block: the compiler copies an action field by field, 6 % of the walk.
        std::memcpy(&span.action, &action, sizeof(Action));
        span.begin = begin;
        span.ready = ready;
        span.end = end;
        prefetch_for_write(&span);
    }

    void on_link(const MessageEnd& end, Duration begin, Duration through) {
        add_message(timeline_.links, end, begin, through);
    }

    void host_copies(HostCopies& copies) { timeline_.host_copies = copies.take_rows(); }

    static void hand_over(const MessageEnd&, Duration) {}
    static void take(const MessageEnd&, Duration) {}

    Timeline timeline() {
        leave_out_empty(timeline_.links);
        return std::move(timeline_);
    }

  private:
    Timeline timeline_;
};

/// Keeps times without actions.
class TimesOnly {
  public:
    using Row = SpanTimes*;

    TimesOnly(const Schedule& schedule, RecordLinks links)
        : keeps_links_(links == RecordLinks::Yes) {
        times_.ranks.reserve(schedule.ranks.size());
        for (const std::vector<Action>& row : schedule.ranks) {
            times_.ranks.emplace_back(row.size());  // each is written later
        }
        if (keeps_links_) {
            prepare_links(schedule, times_.links);
        }
    }

    SpanTimes* of_rank(int rank) { return &times_.ranks[as_index(rank)]; }

    static void on_rank(SpanTimes* row,
                        std::size_t cell,
                        const Action&,
                        Duration begin,
                        Duration ready,
                        Duration end) {
        row->set(cell, begin, ready, end);
        row->prefetch_for_write(cell);
    }

    void on_link(const MessageEnd& end, Duration begin, Duration through) {
        if (keeps_links_) {
            add_message(times_.links, end, begin, through);
        }
    }

    void host_copies(HostCopies& copies) { times_.host_copies = copies.take_rows(); }

    static void hand_over(const MessageEnd&, Duration) {}
    static void take(const MessageEnd&, Duration) {}

    StepTimes times() {
        leave_out_empty(times_.links);
        return std::move(times_);
    }

  private:
    bool keeps_links_;
    StepTimes times_;
};

/// Keeps times without actions, and how many messages wait on each edge.
class TimesAndRoom : public TimesOnly {
  public:
    TimesAndRoom(const Schedule& schedule, RecordLinks links)
        : TimesOnly(schedule, links), occupancy_(edge_count(schedule), schedule.micro_batches) {}

    void hand_over(const MessageEnd& end, Duration time) {
        occupancy_.hand_over(end.edge, end.number, time);
    }
    void take(const MessageEnd& end, Duration time) { occupancy_.take(end.edge, end.number, time); }
    Occupancy::Room room(const Schedule& schedule) const { return occupancy_.room(schedule); }

  private:
    Occupancy occupancy_;
};

/// Keeps nothing.
struct NoSpans {
    using Row = std::nullptr_t;
    static Row of_rank(int) { return nullptr; }
    static void on_rank(Row, std::size_t, const Action&, Duration, Duration, Duration) {}
    static void on_link(const MessageEnd&, Duration, Duration) {}
    static void host_copies(const HostCopies&) {}
    static void hand_over(const MessageEnd&, Duration) {}
    static void take(const MessageEnd&, Duration) {}
};

/// A time of the step, and the same of the step in which no send waits for room.
struct TwoTimes {
    Duration step{};
    Duration unblocked{};
};

TwoTimes operator+(const TwoTimes& times, Duration more) {
    return {times.step + more, times.unblocked + more};
}

using sim::later;  // of two durations

TwoTimes later(const TwoTimes& a, const TwoTimes& b) {
    return {std::max(a.step, b.step), std::max(a.unblocked, b.unblocked)};
}

Duration of_step(Duration time) {
    return time;
}
Duration of_step(const TwoTimes& times) {
    return times.step;
}

/// The time from which a message that is ready at `time` has the room that there is from `room` on.
Duration with_room(Duration time, Duration room) {
    return std::max(time, room);
}
TwoTimes with_room(const TwoTimes& times, Duration room) {
    return {std::max(times.step, room), times.unblocked};
}

EndedStep ended_at(Duration time) {
    return {.step = time, .unblocked = std::nullopt};
}
EndedStep ended_at(const TwoTimes& times) {
    return {.step = times.step, .unblocked = times.unblocked};
}

/// A visitor of the rows that knows when each rank, link and network is free; with `offloads`, also
/// what passes between each rank and its host memory. Its Time is a Duration or, without offloads,
/// TwoTimes.
template <class Time, class Keeper, bool offloads>
class Times {
  public:
    /// The rank at hand.
    struct State {
        int rank = 0;
        Time free{};  ///< it is done with the action before
        typename Keeper::Row row{};
    };

    Times(const Plan& plan, const Conditions& conditions, Keeper& keeper)
        : schedule_(plan->schedule),
          costs_(plan, conditions),
          bounded_(conditions.channel_capacity.has_value()),
          blocking_(conditions.transfer == TransferMode::Blocking),
          rank_free_(plan->schedule.ranks.size()),
          network_free_(plan->schedule.ranks.size()),
          edges_(edge_count(plan->schedule)),
          host_copies_(plan, conditions),
          gradients_complete_(plan->schedule.rank_of_stage.size()),
          keeper_(keeper) {}

    State enter(int rank) { return {rank, rank_free_[as_index(rank)], keeper_.of_rank(rank)}; }

    void leave(const State& state) { rank_free_[as_index(state.rank)] = state.free; }

    void act(State& state, std::size_t cell, const Action& action) {
        const Time begin = state.free;
        Time ready = begin;
        if (!is_compute(action.op)) {
            ready = update_or_reduce(state.rank, action, begin);
        } else if constexpr (offloads) {
            ready = std::max(begin, host_copies_.came(state.rank, cell));
            host_copies_.begins(state.rank, cell, ready);
        }
        state.free = ready + costs_.action(state.rank, cell, action);
        if (action.op == Op::GradientNorm) {
            norm_known_ = later(norm_known_, state.free);
        }
        if constexpr (offloads) {
            host_copies_.ends(state.rank, cell, state.free);
        }
        keep(state, cell, action, begin, ready);
    }

    void send(State& state, const MessageEnd& end) {
        Edge& edge = edges_[as_index(end.edge)];
        const Time begin = state.free;
        const bool may_wait = bounded_ && end.number >= end.places;
        const Time ready = may_wait ? with_room(begin, edge.room.pop()) : begin;
        const Time leaves = later(ready, edge.link_free);
        edge.link_free = leaves + costs_.message(end.edge, end.action.micro_batch);
        edge.arrivals.push(edge.link_free + costs_.latency(end.edge));
        state.free = blocking_ ? edge.link_free : ready;
        keep(state, end.cell, end.action, begin, ready);
        keeper_.on_link(end, of_step(leaves), of_step(edge.link_free));
        keeper_.hand_over(end, of_step(ready));
    }

    void begin_receive(State& state, const MessageEnd& end) {
        if (bounded_ && end.places == 0) {
            edges_[as_index(end.edge)].room.push(of_step(state.free));
        }
    }

    void receive(State& state, const MessageEnd& end) {
        Edge& edge = edges_[as_index(end.edge)];
        const Time begin = state.free;
        state.free = later(begin, edge.arrivals.pop());
        if (bounded_ && end.places > 0) {
            edge.room.push(of_step(state.free));
        }
        keep(state, end.cell, end.action, begin, state.free);
        keeper_.take(end, of_step(state.free));
    }

    void finish() { keeper_.host_copies(host_copies_); }

    /// What is known once every rank has come to the end of its row.
    EndedStep ended() const {
        Time end{};
        for (const Time& free : rank_free_) {
            end = later(end, free);
        }
        return ended_at(end);
    }

  private:
    struct Edge {
        Time link_free{};
        Fifo<Time> arrivals;  ///< of messages that are not taken yet
        Fifo<Duration> room;  ///< when receives made room: when they ended, or, with a capacity
                              ///< of 0, began
    };

    /// Hands over the times of an action that ends when the rank is free again.
    void keep(State& state,
              std::size_t cell,
              const Action& action,
              const Time& begin,
              const Time& ready) {
        keeper_.on_rank(
            state.row, cell, action, of_step(begin), of_step(ready), of_step(state.free));
    }

    /// Time at which the rank goes on after an action that is no compute action.
    Time update_or_reduce(int rank, const Action& action, const Time& begin) {
        if (action.op == Op::ReduceGradient) {
            reduce(rank, action.stage, begin);
        }
        if (!uses_gradients(action.op)) {
            return begin;
        }
        const Time ready = later(begin, gradients_complete_[as_index(action.stage)]);
        return action.op == Op::Optimizer ? later(ready, norm_known_) : ready;
    }

    /// The gradients set out: for the stage with the same weights, and over the rank's network for
    /// the other replicas.
    void reduce(int rank, int stage, const Time& begin) {
        Time& network = network_free_[as_index(rank)];
        if (costs_.overlapped_reduction(stage) > Duration{}) {
            network = costs_.summed(stage, network, begin);
            complete(stage, network);
        }
        if (const auto other = gradient_source(schedule_, stage)) {
            complete(*other, begin + costs_.hand_over_of_gradients(stage));
        }
    }

    void complete(int stage, const Time& time) {
        Time& complete = gradients_complete_[as_index(stage)];
        complete = later(complete, time);
    }

    const Schedule& schedule_;
    StepCosts costs_;
    bool bounded_;
    bool blocking_;
    std::vector<Time> rank_free_;
    std::vector<Time> network_free_;  ///< [rank]: of its overlapped reductions
    std::vector<Edge> edges_;
    HostCopies host_copies_;
    std::vector<Time> gradients_complete_;  ///< [stage]: all that its norm or update waits for
    Time norm_known_{};                     ///< of all gradients, once every NORM is visited
    Keeper& keeper_;
};

/// None if the rows wait for each other.
template <class Time, bool offloads, class Keeper>
std::optional<EndedStep> walk_rows(const Plan& plan, const Conditions& conditions, Keeper& keeper) {
    Times<Time, Keeper, offloads> times(plan, conditions, keeper);
    if (!RowWalk(plan->schedule, conditions.channel_capacity, times).runs_to_end()) {
        return std::nullopt;
    }
    times.finish();
    return times.ended();
}

template <class Keeper>
std::optional<EndedStep> try_walk(const Plan& plan, const Conditions& conditions, Keeper& keeper) {
    PIPETWIN_EXPECT(!conditions.contention.any(), "nothing is shared");
    return conditions.host_link ? walk_rows<Duration, true>(plan, conditions, keeper)
                                : walk_rows<Duration, false>(plan, conditions, keeper);
}

/// Walks as `try_walk` does, and finds the time of the unblocked step where one walk can find both.
template <class Keeper>
std::optional<EndedStep> try_walk_of_both(const Plan& plan,
                                          const Conditions& conditions,
                                          Keeper& keeper) {
    return conditions.host_link || !conditions.channel_capacity
               ? try_walk(plan, conditions, keeper)
               : walk_rows<TwoTimes, false>(plan, conditions, keeper);
}

template <class Keeper>
Duration walk(const Plan& plan, const Conditions& conditions, Keeper& keeper) {
    const std::optional<EndedStep> ended = try_walk(plan, conditions, keeper);
    PIPETWIN_EXPECT(ended, "a validated plan runs to its end");
    return ended->step;
}

}  // namespace

Timeline in_fixed_order(const Plan& plan, const Conditions& conditions, Timeline recycled) {
    Spans spans(plan->schedule, std::move(recycled));
    walk(plan, conditions, spans);
    return spans.timeline();
}

Unblocked in_fixed_order_unblocked(const Plan& plan, RecordLinks links) {
    Conditions conditions = planned_conditions(plan);
    conditions.channel_capacity.reset();
    TimesAndRoom times(plan->schedule, links);
    walk(plan, conditions, times);
    return {.times = times.times(), .room = times.room(plan->schedule)};
}

std::optional<TimedStep> times_if_it_ends(const Plan& plan,
                                          const Conditions& conditions,
                                          RecordLinks links) {
    TimesOnly times(plan->schedule, links);
    const std::optional<EndedStep> ended = try_walk_of_both(plan, conditions, times);
    return ended ? std::optional(TimedStep{*ended, times.times()}) : std::nullopt;
}

std::optional<EndedTimeline> timeline_if_it_ends(const Plan& plan,
                                                 const Conditions& conditions,
                                                 Timeline recycled) {
    Spans spans(plan->schedule, std::move(recycled));
    const std::optional<EndedStep> ended = try_walk_of_both(plan, conditions, spans);
    return ended ? std::optional(EndedTimeline{*ended, spans.timeline()}) : std::nullopt;
}

Duration step_in_fixed_order(const Plan& plan, const Conditions& conditions) {
    NoSpans nothing;
    return walk(plan, conditions, nothing);
}

std::optional<EndedStep> step_if_it_ends(const Plan& plan, const Conditions& conditions) {
    NoSpans nothing;
    return try_walk_of_both(plan, conditions, nothing);
}

}  // namespace pipetwin::sim
