#include "sim/fixed_order.h"

#include <algorithm>

#include "sim/per_message.h"
#include "sim/row_walk.h"
#include "sim/step_costs.h"

namespace pipetwin::sim {

namespace {

/// Keeps what it is told as a timeline.
class Spans {
  public:
    Spans(const Schedule& schedule, const std::vector<std::size_t>& messages) {
        timeline_.origin = Origin::Predicted;
        timeline_.ranks.resize(schedule.ranks.size());
        for (std::size_t rank = 0; rank < schedule.ranks.size(); ++rank) {
            timeline_.ranks[rank].reserve(schedule.ranks[rank].size());
        }
        const auto edges = 2 * std::max(std::size_t{1}, schedule.rank_of_stage.size()) - 2;
        timeline_.links.resize(edges);
        for (std::size_t edge = 0; edge < edges; ++edge) {
            timeline_.links[edge].reserve(messages[edge]);
        }
    }

    void on_rank(int rank, const Action& action, Duration begin, Duration ready, Duration end) {
        timeline_.ranks[static_cast<std::size_t>(rank)].push_back({action, begin, ready, end});
    }

    void on_link(int edge, const Action& send, Duration begin, Duration end) {
        timeline_.links[static_cast<std::size_t>(edge)].push_back({send, begin, begin, end});
    }

    Timeline take() {
        if (std::ranges::all_of(timeline_.links, [](const auto& row) { return row.empty(); })) {
            timeline_.links.clear();
        }
        return std::move(timeline_);
    }

  private:
    Timeline timeline_;
};

/// Keeps nothing.
struct NoSpans {
    void on_rank(int, const Action&, Duration, Duration, Duration) {}
    void on_link(int, const Action&, Duration, Duration) {}
};

/// A visitor of the rows that knows when each rank, link and network is free.
template <class Keeper>
class Times {
  public:
    Times(const Plan& plan,
          const Conditions& conditions,
          const std::vector<std::size_t>& messages,
          Keeper& keeper)
        : schedule_(plan->schedule),
          costs_(plan, conditions),
          capacity_(conditions.channel_capacity),
          blocking_(conditions.transfer == TransferMode::Blocking),
          rank_free_(plan->schedule.ranks.size()),
          network_free_(plan->schedule.ranks.size()),
          link_free_(messages.size()),
          arrival_(messages),
          room_(capacity_ ? messages : std::vector<std::size_t>(messages.size(), 0)),
          gradients_complete_(plan->schedule.rank_of_stage.size()),
          keeper_(keeper) {}

    void act(int rank, std::size_t cell, const Action& action) {
        Duration& free = rank_free_[static_cast<std::size_t>(rank)];
        const Duration begin = free;
        const Duration ready =
            action.op == Op::Optimizer
                ? std::max(begin, gradients_complete_[static_cast<std::size_t>(action.stage)])
                : begin;
        if (action.op == Op::ReduceGradient) {
            reduce(rank, action.stage, begin);
        }
        free = ready + costs_.action(static_cast<std::size_t>(rank), cell, action);
        keeper_.on_rank(rank, action, begin, ready, free);
    }

    void send(const MessageEnd& end) {
        Duration& free = rank_free_[static_cast<std::size_t>(end.rank)];
        const Duration begin = free;
        const Duration ready = std::max(begin, room_for(end));
        Duration& link = link_free_[static_cast<std::size_t>(end.edge)];
        const Duration leaves = std::max(ready, link);
        link = leaves + costs_.message(end.edge, end.action.micro_batch);
        arrival_.at(end.edge, end.number) = link + costs_.latency(end.edge);
        free = blocking_ ? link : ready;
        keeper_.on_rank(end.rank, end.action, begin, ready, free);
        keeper_.on_link(end.edge, end.action, leaves, link);
    }

    void begin_receive(const MessageEnd& end) {
        if (capacity_ == 0) {
            room_.at(end.edge, end.number) = rank_free_[static_cast<std::size_t>(end.rank)];
        }
    }

    void receive(const MessageEnd& end) {
        Duration& free = rank_free_[static_cast<std::size_t>(end.rank)];
        const Duration begin = free;
        free = std::max(begin, arrival_.at(end.edge, end.number));
        if (capacity_ && *capacity_ > 0) {
            room_.at(end.edge, end.number) = free;
        }
        keeper_.on_rank(end.rank, end.action, begin, free, free);
    }

    /// When the last rank has come to the end of its row.
    Duration last() const {
        return rank_free_.empty() ? Duration{} : *std::ranges::max_element(rank_free_);
    }

  private:
    /// When there was room for a message: its receive had begun, or that of the message which is
    /// as far ahead of it as the capacity was over.
    Duration room_for(const MessageEnd& send) {
        if (!capacity_ || send.number < *capacity_) {
            return Duration{};
        }
        return room_.at(send.edge, send.number - *capacity_);
    }

    /// The gradients set out: for the stage with the same weights, and over the rank's network for
    /// the other replicas.
    void reduce(int rank, int stage, Duration begin) {
        Duration& network = network_free_[static_cast<std::size_t>(rank)];
        const Duration length = costs_.overlapped_reduction(stage);
        if (length > Duration{}) {
            network = std::max(network, begin) + length;
            complete(stage, network);
        }
        if (const auto twin = twin_of(schedule_, stage)) {
            complete(*twin, begin + costs_.hand_over_of_gradients(stage));
        }
    }

    void complete(int stage, Duration time) {
        Duration& complete = gradients_complete_[static_cast<std::size_t>(stage)];
        complete = std::max(complete, time);
    }

    const Schedule& schedule_;
    StepCosts costs_;
    std::optional<int> capacity_;
    bool blocking_;
    std::vector<Duration> rank_free_;
    std::vector<Duration> network_free_;  ///< [rank]: of its overlapped reductions
    std::vector<Duration> link_free_;     ///< [edge]
    PerMessage<Duration> arrival_;
    PerMessage<Duration>
        room_;  ///< when a receive made room: when it ended, or, without capacity, began
    std::vector<Duration> gradients_complete_;  ///< [stage]: all that its update waits for
    Keeper& keeper_;
};

template <class Keeper>
Duration walk(const Plan& plan,
              const Conditions& conditions,
              const std::vector<std::size_t>& messages,
              Keeper& keeper) {
    PIPETWIN_EXPECT(!conditions.contention.any(), "nothing is shared");
    Times<Keeper> times(plan, conditions, messages, keeper);
    RowWalk(plan->schedule, conditions.channel_capacity, times).run();
    return times.last();
}

}  // namespace

Timeline in_fixed_order(const Plan& plan, const Conditions& conditions) {
    const std::vector<std::size_t> messages = messages_of_edges(plan->schedule);
    Spans spans(plan->schedule, messages);
    walk(plan, conditions, messages, spans);
    return spans.take();
}

Duration step_in_fixed_order(const Plan& plan, const Conditions& conditions) {
    NoSpans nothing;
    return walk(plan, conditions, messages_of_edges(plan->schedule), nothing);
}

}  // namespace pipetwin::sim
