#include "sim/simulate.h"

#include <algorithm>

#include "core/edge.h"
#include "core/error.h"
#include "sim/event_queue.h"

namespace pipetwin::sim {

namespace {

/// Messages over one boundary in one direction. First in, first out, so counters tell which message
/// is meant:
///
///     handed over  >=  arrived  >=  taken            receives begun is taken, or taken + 1
struct Edge {
    LinkCost link;
    Duration link_free{};  ///< when the link can take the next message
    int sender = 0;        ///< ranks
    int receiver = 0;
    int handed_over = 0;
    int arrived = 0;
    int receives_begun = 0;
    int taken = 0;
    bool sender_waits = false;
    bool receiver_waits = false;

    /// Room for one more? With capacity 0 a message needs a receive that has begun.
    bool has_room(std::optional<int> capacity) const {
        return !capacity || handed_over < std::max(taken + *capacity, receives_begun);
    }
};

/// The message of a send.
Bytes message_bytes(const Plan& plan, const Action& send) {
    const StageCost& cost = plan.cost(send.stage, send.micro_batch);
    return send.op == Op::SendForward ? cost.output : cost.input;
}

/// Two pipelines of one model: a stage's share of the reduction of its gradients.
struct Reduction {
    bool complete = false;  ///< those of the other pipeline are here
    bool update_waits = false;
};

class Simulation {
  public:
    Simulation(const Plan& plan, Conditions conditions)
        : plan_(plan),
          conditions_(std::move(conditions)),
          reductions_(plan->schedule.rank_of_stage.size()),
          next_cell_(plan->schedule.ranks.size(), 0) {
        make_edges();
        timeline_.origin = Origin::Predicted;
        for (const auto& row : plan->schedule.ranks) {
            auto& spans = timeline_.ranks.emplace_back();
            for (const Action& action : row) {
                spans.push_back({.action = action});
            }
        }
        timeline_.links.resize(edges_.size());
    }

    Timeline run() {
        for (int rank = 0; rank < plan_.rank_count(); ++rank) {
            queue_.announce(now_, EventKind::RankFree, rank);
        }
        while (!queue_.empty()) {
            happen(queue_.take_next());
        }
        expect_all_done();
        const bool silent = std::all_of(timeline_.links.begin(),
                                        timeline_.links.end(),
                                        [](const auto& row) { return row.empty(); });
        if (silent) {
            timeline_.links.clear();
        }
        return std::move(timeline_);
    }

  private:
    void make_edges() {
        const std::vector<int>& rank_of = plan_->schedule.rank_of_stage;
        for (std::size_t boundary = 0; boundary + 1 < rank_of.size(); ++boundary) {
            const LinkCost& link = conditions_.links.at(boundary);
            const int before = rank_of[boundary];
            const int after = rank_of[boundary + 1];
            edges_.push_back({.link = link, .sender = before, .receiver = after});
            edges_.push_back({.link = link, .sender = after, .receiver = before});
        }
    }

    void happen(const Event& event) {
        now_ = event.time;
        switch (event.kind) {
            case EventKind::RankFree:
                turn_to_next(event.index);
                break;
            case EventKind::MessageArrived: {
                Edge& edge = edge_at(event.index);
                ++edge.arrived;
                if (edge.receiver_waits) {
                    try_receive(edge, event.index);
                }
                break;
            }
            case EventKind::RoomMade: {
                Edge& edge = edge_at(event.index);
                if (edge.sender_waits) {
                    try_send(edge, event.index);
                }
                break;
            }
            case EventKind::GradientsCame: {
                Reduction& reduction = reductions_.at(static_cast<std::size_t>(event.index));
                reduction.complete = true;
                if (reduction.update_waits) {
                    try_update(rank_of(event.index));
                }
                break;
            }
        }
    }

    /// The same switch as the executor's worker.
    void turn_to_next(int rank) {
        const auto row = static_cast<std::size_t>(rank);
        if (next_cell_[row] == timeline_.ranks[row].size()) {
            return;
        }
        Span& span = current(rank);
        span.begin = span.ready = now_;
        switch (span.action.op) {
            case Op::Forward:
            case Op::Backward:
            case Op::BackwardInput:
            case Op::BackwardWeight:
            case Op::Recompute:
            case Op::Unshard:
            case Op::Reshard:
                finish(rank, now_ + duration(rank));
                break;
            case Op::ReduceGradient:
                hand_gradients_over(rank);
                break;
            case Op::Optimizer:
                try_update(rank);
                break;
            case Op::SendForward:
            case Op::SendBackward: {
                const int index = edge_of(span.action);
                try_send(edge_at(index), index);
                break;
            }
            case Op::RecvForward:
            case Op::RecvBackward: {
                const int index = edge_of(span.action);
                Edge& edge = edge_at(index);
                ++edge.receives_begun;
                make_room(edge, index);
                try_receive(edge, index);
                break;
            }
        }
    }

    /// Hands the message over, if there is room; otherwise the rank waits.
    void try_send(Edge& edge, int index) {
        edge.sender_waits = !edge.has_room(conditions_.channel_capacity);
        if (edge.sender_waits) {
            return;
        }
        Span& span = current(edge.sender);
        span.ready = now_;
        const Duration leaves = std::max(now_, edge.link_free);
        edge.link_free = leaves + occupation(edge.link, message_bytes(plan_, span.action));
        timeline_.links[static_cast<std::size_t>(index)].push_back(
            {.action = span.action, .begin = leaves, .ready = leaves, .end = edge.link_free});
        queue_.announce(edge.link_free + edge.link.latency, EventKind::MessageArrived, index);
        ++edge.handed_over;
        finish(edge.sender, now_);
    }

    /// Takes the message, if it has arrived; otherwise the rank waits.
    void try_receive(Edge& edge, int index) {
        edge.receiver_waits = edge.arrived == edge.taken;
        if (edge.receiver_waits) {
            return;
        }
        current(edge.receiver).ready = now_;
        ++edge.taken;
        make_room(edge, index);
        finish(edge.receiver, now_);
    }

    /// The stage's gradients set out for its twin; the rank goes on at once.
    void hand_gradients_over(int rank) {
        const int stage = current(rank).action.stage;
        if (const auto twin = twin_of(plan_->schedule, stage)) {
            const auto index = static_cast<std::size_t>(stage);
            const LinkCost& link = conditions_.reductions.at(index);
            const Bytes message = plan_->states.at(index).weights;
            queue_.announce(
                now_ + occupation(link, message) + link.latency, EventKind::GradientsCame, *twin);
        }
        finish(rank, now_ + duration(rank));
    }

    /// Updates the weights, if the gradients of both pipelines are there.
    void try_update(int rank) {
        Span& span = current(rank);
        const bool shared = twin_of(plan_->schedule, span.action.stage).has_value();
        Reduction& reduction = reductions_.at(static_cast<std::size_t>(span.action.stage));
        reduction.update_waits = shared && !reduction.complete;
        if (!reduction.update_waits) {
            span.ready = now_;
            finish(rank, now_ + duration(rank));
        }
    }

    void make_room(const Edge& edge, int index) {
        if (edge.sender_waits) {
            queue_.announce(now_, EventKind::RoomMade, index);
        }
    }

    void finish(int rank, Duration end) {
        current(rank).end = end;
        ++next_cell_[static_cast<std::size_t>(rank)];
        queue_.announce(end, EventKind::RankFree, rank);
    }

    Duration duration(int rank) const {
        const auto row = static_cast<std::size_t>(rank);
        return conditions_.durations[row][next_cell_[row]];
    }

    int rank_of(int stage) const {
        return plan_->schedule.rank_of_stage[static_cast<std::size_t>(stage)];
    }

    Span& current(int rank) {
        const auto row = static_cast<std::size_t>(rank);
        return timeline_.ranks[row].at(next_cell_[row]);
    }

    Edge& edge_at(int index) { return edges_.at(static_cast<std::size_t>(index)); }

    void expect_all_done() const {
        for (std::size_t row = 0; row < next_cell_.size(); ++row) {
            PIPETWIN_EXPECT(next_cell_[row] == timeline_.ranks[row].size(),
                            "a validated plan runs to its end");
        }
    }

    const Plan& plan_;
    Conditions conditions_;
    std::vector<Edge> edges_;
    std::vector<Reduction> reductions_;   ///< [stage]
    std::vector<std::size_t> next_cell_;  ///< of every rank's row
    EventQueue queue_;
    Duration now_{};
    Timeline timeline_;
};

}  // namespace

Timeline replay(const Plan& plan, Conditions conditions) {
    return Simulation(plan, std::move(conditions)).run();
}

Timeline simulate(const Plan& plan) {
    return replay(plan, planned_conditions(plan));
}

}  // namespace pipetwin::sim
