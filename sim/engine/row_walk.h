// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <optional>
#include <vector>

#include "core/base/as_index.h"
#include "core/base/error.h"
#include "core/schedule/edge.h"
#include "core/schedule/schedule.h"

namespace pipetwin::sim {

/// One end of a message: the place in the row of the rank at hand, the action, the edge, the number
/// of earlier messages of the edge, and how many it has room for.
struct MessageEnd {
    std::size_t cell = 0;
    const Action& action;
    int edge = 0;
    int number = 0;
    int places = 0;
};

/// Visits every action of a schedule once, each after all that it has to wait for: the action
/// before it in its row, a receive after its send, a send after the receive that makes room for
/// it, a norm and an update after the reduction of the stage that hands gradients to this one, and
/// an update after all norms.
///
/// A rank is followed as far as it goes. Where it has to wait, the rank that it waits for takes it
/// up again later. As ranks choose nothing, every order of visits that keeps these rules ends at
/// the end of every row (Kahn process networks). O(actions).
///
/// All rows are followed for a stretch before any goes beyond it. In a pipeline a rank is soon
/// waiting for its neighbours, so that within a stretch the walk goes to and fro between a few
/// ranks, whose state and rows stay in the cache, and not over all ranks at every step: a third of
/// the time with 1024 of them.
///
/// The visitor has a State of a rank, and
///     State enter(int rank);  void leave(State&);      around the actions that follow each other
///     void act(State&, std::size_t cell, const Action&);         all but sends and receives
///     void send(State&, const MessageEnd&);
///     void begin_receive(State&, const MessageEnd&);             the rank turns to it
///     void receive(State&, const MessageEnd&);                   the message was sent before
template <class Visitor>
class RowWalk {
  public:
    /// Walks the schedule's rows with channels of `capacity`, those of skips with room for each
    /// boundary between; none: there is always room.
    RowWalk(const Schedule& schedule, std::optional<int> capacity, Visitor& visitor)
        : schedule_(schedule),
          capacity_(capacity.value_or(unlimited)),
          visitor_(visitor),
          next_(schedule.ranks.size(), 0),
          edges_(edge_count(schedule)),
          reduced_(schedule.rank_of_stage.size(), false),
          gradients_awaited_(schedule.rank_of_stage.size(), false),
          runnable_(schedule.ranks.size()),
          at_stretch_end_(schedule.ranks.size()) {
        for (Edge& edge : edges_) {
            edge.places = capacity_;
        }
        for (std::size_t pair = boundary_count(schedule); pair < pair_count(schedule); ++pair) {
            const int places = channel_places(schedule, stages_of_pair(schedule, pair), capacity_);
            edges_[2 * pair].places = places;
            edges_[2 * pair + 1].places = places;
        }
    }

    /// Visits all actions. Throws InternalError if the rows wait for each other.
    void run() { PIPETWIN_EXPECT(runs_to_end(), "a validated plan runs to its end"); }

    /// Visits actions until every row is at its end, or all that are left wait for each other.
    /// Returns whether every row is at its end.
    bool runs_to_end() {
        for (int rank = schedule_.rank_count() - 1; rank >= 0; --rank) {
            runnable_.push(rank);
        }
        for (stretch_end_ = stretch; !runnable_.empty(); stretch_end_ += stretch) {
            while (!runnable_.empty()) {
                follow(runnable_.pop());
            }
            while (!at_stretch_end_.empty()) {
                runnable_.push(at_stretch_end_.pop());
            }
        }
        return std::ranges::equal(
            next_, schedule_.ranks, {}, {}, [](const auto& row) { return row.size(); });
    }

  private:
    struct Edge {
        int places = 0;
        int sent = 0;
        int received = 0;
        int waiting_sender = nobody;
        int waiting_receiver = nobody;
        bool receive_begun = false;  ///< of message `received`
    };

    /// A stack of ranks, each at most once. A rank goes in for every message.
    class Ranks {
      public:
        explicit Ranks(std::size_t most) : ranks_(most) {}
        bool empty() const { return count_ == 0; }
        void push(int rank) { ranks_[count_++] = rank; }
        int pop() { return ranks_[--count_]; }

      private:
        std::vector<int> ranks_;
        std::size_t count_ = 0;
    };

    using State = typename Visitor::State;

    void follow(int rank) {
        const std::size_t index = as_index(rank);
        const std::vector<Action>& row = schedule_.ranks[index];
        const Action* const actions = row.data();
        const std::size_t end = std::min(row.size(), stretch_end_);
        std::size_t cell = next_[index];
        State state = visitor_.enter(rank);
        for (; cell < end; ++cell) {
            const Action& action = actions[cell];
            __builtin_prefetch(actions + cell + ahead);
            if (is_compute(action.op)) {
                visitor_.act(state, cell, action);
            } else if (!passes(rank, state, cell, action)) {
                break;
            }
        }
        visitor_.leave(state);
        next_[index] = cell;
        if (cell == stretch_end_) {
            at_stretch_end_.push(rank);
        }
    }

    bool passes(int rank, State& state, std::size_t cell, const Action& action) {
        if (is_send(action.op)) {
            return sends(rank, state, cell, action);
        }
        if (is_receive(action.op)) {
            return receives(rank, state, cell, action);
        }
        if (uses_gradients(action.op) && gradients_are_missing(rank, action.stage)) {
            return false;
        }
        if (action.op == Op::Optimizer && norms_are_missing(rank, cell)) {
            norm_awaited_by_.push_back(rank);
            return false;
        }
        visitor_.act(state, cell, action);
        if (action.op == Op::ReduceGradient) {
            reduces(action.stage);
        } else if (action.op == Op::GradientNorm && norms_left_ && --*norms_left_ == 0) {
            for (const int waiting : norm_awaited_by_) {
                runnable_.push(waiting);
            }
            norm_awaited_by_.clear();
        }
        return true;
    }

    bool sends(int rank, State& state, std::size_t cell, const Action& action) {
        const int index = edge_of(schedule_, action);
        Edge& edge = edges_[as_index(index)];
        const bool room = edge.sent - edge.received < edge.places ||
                          (edge.sent == edge.received && edge.receive_begun);
        if (!room) {
            edge.waiting_sender = rank;
            return false;
        }
        visitor_.send(state, {cell, action, index, edge.sent, edge.places});
        ++edge.sent;
        wake(edge.waiting_receiver);
        return true;
    }

    bool receives(int rank, State& state, std::size_t cell, const Action& action) {
        const int index = edge_of(schedule_, action);
        Edge& edge = edges_[as_index(index)];
        const MessageEnd end{cell, action, index, edge.received, edge.places};
        if (!edge.receive_begun) {
            edge.receive_begun = true;
            visitor_.begin_receive(state, end);
        }
        if (edge.sent == edge.received) {
            edge.waiting_receiver = rank;
            wake(edge.waiting_sender);
            return false;
        }
        visitor_.receive(state, end);
        ++edge.received;
        edge.receive_begun = false;
        wake(edge.waiting_sender);
        return true;
    }

    void reduces(int stage) {
        reduced_[as_index(stage)] = true;
        // Where gradients come from, they go to.
        if (const auto other = gradient_source(schedule_, stage)) {
            const std::size_t index = as_index(*other);
            if (gradients_awaited_[index]) {
                gradients_awaited_[index] = false;
                runnable_.push(schedule_.rank_of_stage[index]);
            }
        }
    }

    bool gradients_are_missing(int rank, int stage) {
        const auto source = gradient_source(schedule_, stage);
        const bool waits = source && !reduced_[as_index(*source)];
        gradients_awaited_[as_index(stage)] = waits;
        PIPETWIN_EXPECT(schedule_.rank_of_stage[as_index(stage)] == rank,
                        "a rank updates its own stages");
        return waits;
    }

    /// Counts the norms that are left when the first update is met: that is near the end of all
    /// rows.
    bool norms_are_missing(int rank, std::size_t cell) {
        if (!norms_left_) {
            norms_left_ = 0;
            next_[as_index(rank)] = cell;
            for (std::size_t i = 0; i < next_.size(); ++i) {
                const std::vector<Action>& row = schedule_.ranks[i];
                *norms_left_ += std::count_if(
                    row.begin() + static_cast<std::ptrdiff_t>(next_[i]),
                    row.end(),
                    [](const Action& action) { return action.op == Op::GradientNorm; });
            }
        }
        return *norms_left_ > 0;
    }

    void wake(int& rank) {
        if (rank != nobody) {
            runnable_.push(rank);
            rank = nobody;
        }
    }

    static constexpr int nobody = -1;
    static constexpr int unlimited = 1 << 30;
    static constexpr std::size_t stretch = 256;  ///< cells

    /// Cells that are prefetched ahead: with many rows read in turn the hardware prefetcher cannot
    /// follow. They may be beyond the row, where nothing is fetched.
    static constexpr std::size_t ahead = 12;

    const Schedule& schedule_;
    int capacity_;
    Visitor& visitor_;
    std::vector<std::size_t> next_;  ///< [rank] cell
    std::vector<Edge> edges_;
    std::vector<bool> reduced_;                 ///< [stage]
    std::vector<bool> gradients_awaited_;       ///< [stage]
    std::optional<std::ptrdiff_t> norms_left_;  ///< none: not counted yet, and no rank waits
    std::vector<int> norm_awaited_by_;          ///< ranks
    Ranks runnable_;
    Ranks at_stretch_end_;  ///< can go on, in the next stretch
    std::size_t stretch_end_ = 0;
};

}  // namespace pipetwin::sim
