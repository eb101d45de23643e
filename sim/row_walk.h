#pragma once

#include <algorithm>
#include <iterator>
#include <optional>
#include <vector>

#include "core/edge.h"
#include "core/error.h"
#include "core/schedule.h"

namespace pipetwin::sim {

/// Two for each boundary.
inline std::size_t edge_count(const Schedule& schedule) {
    return schedule.rank_of_stage.empty() ? 0 : 2 * (schedule.rank_of_stage.size() - 1);
}

/// One end of a message: the place in the row of the rank at hand, the action, the edge, and how
/// many messages of the edge came before.
struct MessageEnd {
    std::size_t cell = 0;
    const Action& action;
    int edge = 0;
    int number = 0;
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
    /// `capacity` as of the channels; none: there is always room.
    RowWalk(const Schedule& schedule, std::optional<int> capacity, Visitor& visitor)
        : schedule_(schedule),
          capacity_(capacity.value_or(unlimited)),
          visitor_(visitor),
          next_(schedule.ranks.size(), 0),
          edges_(edge_count(schedule)),
          reduced_(schedule.rank_of_stage.size(), false),
          gradients_awaited_(schedule.rank_of_stage.size(), false) {
        for (const auto& row : schedule.ranks) {
            norms_left_ += std::ranges::count(row, Op::GradientNorm, &Action::op);
        }
    }

    /// InternalError if the rows wait for each other.
    void run() {
        for (int rank = schedule_.rank_count() - 1; rank >= 0; --rank) {
            runnable_.push_back(rank);
        }
        for (stretch_end_ = stretch; !runnable_.empty(); stretch_end_ += stretch) {
            while (!runnable_.empty()) {
                const int rank = runnable_.back();
                runnable_.pop_back();
                follow(rank);
            }
            std::ranges::reverse_copy(at_stretch_end_, std::back_inserter(runnable_));
            at_stretch_end_.clear();
        }
        for (std::size_t rank = 0; rank < next_.size(); ++rank) {
            PIPETWIN_EXPECT(next_[rank] == schedule_.ranks[rank].size(),
                            "a validated plan runs to its end");
        }
    }

  private:
    struct Edge {
        int sent = 0;
        int received = 0;
        int waiting_sender = nobody;
        int waiting_receiver = nobody;
        bool receive_begun = false;  ///< of message `received`
    };

    using State = typename Visitor::State;

    void follow(int rank) {
        const auto index = static_cast<std::size_t>(rank);
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
            at_stretch_end_.push_back(rank);
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
        if (action.op == Op::Optimizer && norms_left_ > 0) {
            norm_awaited_by_.push_back(rank);
            return false;
        }
        visitor_.act(state, cell, action);
        if (action.op == Op::ReduceGradient) {
            reduces(action.stage);
        } else if (action.op == Op::GradientNorm && --norms_left_ == 0) {
            std::ranges::copy(norm_awaited_by_, std::back_inserter(runnable_));
            norm_awaited_by_.clear();
        }
        return true;
    }

    bool sends(int rank, State& state, std::size_t cell, const Action& action) {
        const int index = edge_of(action);
        Edge& edge = edges_[static_cast<std::size_t>(index)];
        const bool room = edge.sent - edge.received < capacity_ ||
                          (edge.sent == edge.received && edge.receive_begun);
        if (!room) {
            edge.waiting_sender = rank;
            return false;
        }
        visitor_.send(state, {cell, action, index, edge.sent});
        ++edge.sent;
        wake(edge.waiting_receiver);
        return true;
    }

    bool receives(int rank, State& state, std::size_t cell, const Action& action) {
        const int index = edge_of(action);
        Edge& edge = edges_[static_cast<std::size_t>(index)];
        const MessageEnd end{cell, action, index, edge.received};
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
        reduced_[static_cast<std::size_t>(stage)] = true;
        // Where gradients come from, they go to.
        if (const auto other = gradient_source(schedule_, stage)) {
            const auto index = static_cast<std::size_t>(*other);
            if (gradients_awaited_[index]) {
                gradients_awaited_[index] = false;
                runnable_.push_back(schedule_.rank_of_stage[index]);
            }
        }
    }

    bool gradients_are_missing(int rank, int stage) {
        const auto source = gradient_source(schedule_, stage);
        const bool waits = source && !reduced_[static_cast<std::size_t>(*source)];
        gradients_awaited_[static_cast<std::size_t>(stage)] = waits;
        PIPETWIN_EXPECT(schedule_.rank_of_stage[static_cast<std::size_t>(stage)] == rank,
                        "a rank updates its own stages");
        return waits;
    }

    void wake(int& rank) {
        if (rank != nobody) {
            runnable_.push_back(rank);
            rank = nobody;
        }
    }

    static constexpr int nobody = -1;
    static constexpr int unlimited = 1 << 30;
    static constexpr std::size_t stretch = 256;  ///< cells

    /// Rows are read in turns, so many of them that the processor does not see that each goes on:
    /// it is told what the next visit reads, which may be beyond the row, where nothing is fetched.
    static constexpr std::size_t ahead = 12;

    const Schedule& schedule_;
    int capacity_;
    Visitor& visitor_;
    std::vector<std::size_t> next_;  ///< [rank] cell
    std::vector<Edge> edges_;
    std::vector<bool> reduced_;            ///< [stage]
    std::vector<bool> gradients_awaited_;  ///< [stage]
    std::ptrdiff_t norms_left_ = 0;
    std::vector<int> norm_awaited_by_;  ///< ranks
    std::vector<int> runnable_;
    std::vector<int> at_stretch_end_;  ///< ranks that can go on, in the next stretch
    std::size_t stretch_end_ = 0;
};

}  // namespace pipetwin::sim
