// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstdint>
#include <deque>
#include <optional>

#include <fmt/format.h>

#include "core/base/as_index.h"
#include "core/base/error.h"
#include "core/schedule/edge.h"
#include "core/schedule/validate.h"

namespace pipetwin {

namespace {

/// A queue of messages. Two ends, each with the rank that stands there waiting, if any.
struct Channel {
    int places = 0;  ///< messages that it has room for
    int begun = 0;   ///< receives, where they are begun before the first action
    int sent = 0;
    int received = 0;
    int waiting_sender = -1;
    int waiting_receiver = -1;
};

/// Which channel each action uses.
class Channels {
  public:
    Channels(const Schedule& schedule, MessageQueues queues)
        : schedule_(schedule), of_edge_(queues_of_edges(schedule, queues)) {}

    std::size_t count() const {
        return of_edge_.empty() ? 0 : 1 + *std::ranges::max_element(of_edge_);
    }
    std::size_t of_edge(std::size_t edge) const { return of_edge_[edge]; }

    /// Index of the channel that an action uses: the edge's. -1 if the stage exchanges nothing
    /// there.
    int of(const Action& action) const {
        return has_edge(schedule_, action)
                   ? static_cast<int>(of_edge_[as_index(edge_of(schedule_, action))])
                   : -1;
    }

  private:
    const Schedule& schedule_;
    std::vector<std::size_t> of_edge_;
};

/// Walks all rows as far as they go.
///
/// Ranks are sequential, channels are FIFO with one producer and one consumer, and nothing polls or
/// chooses: so moving one rank never takes a move from another, and whatever the interleaving, all
/// runs end in the same place (the argument of Kahn process networks). One run therefore decides.
/// Every turn of the loop in `advance` finishes an action or ends a visit, and a rank is visited
/// again only when a message or a free place came: O(actions).
class SymbolicRun {
  public:
    /// Without a capacity there is no room either, but all receives are begun first.
    SymbolicRun(const Schedule& schedule, std::optional<int> capacity, MessageQueues queues)
        : schedule_(schedule),
          capacity_(capacity),
          channel_of_(schedule, queues),
          channels_(channel_of_.count()),
          reduced_(schedule.rank_of_stage.size(), false),
          next_(schedule.ranks.size(), 0) {
        for (std::size_t edge = 0; edge < edge_count(schedule); ++edge) {
            int& places = channels_[channel_of_.of_edge(edge)].places;
            places = std::max(
                places,
                channel_places(schedule, stages_of_pair(schedule, edge / 2), capacity.value_or(0)));
        }
        for (const auto& row : schedule.ranks) {
            norms_left_ += std::ranges::count(row, Op::GradientNorm, &Action::op);
            begin_receives(row);
        }
        for (int rank = 0; rank < schedule.rank_count(); ++rank) {
            runnable_.push_back(rank);
        }
        while (!runnable_.empty()) {
            const int rank = runnable_.front();
            runnable_.pop_front();
            advance(rank);
        }
    }

    bool finished(int rank) const { return next(rank) == row(rank).size(); }
    /// The action that a rank which has not finished waits at.
    const Action& current(int rank) const { return row(rank)[next(rank)]; }
    int current_cell(int rank) const { return static_cast<int>(next(rank)); }

    /// The action of another rank that would let this one go on: the next of its channel's other
    /// end.
    struct Awaited {
        int rank = 0;
        std::size_t cell = 0;
    };
    std::optional<Awaited> awaited_by(int rank) const {
        const Action& waiting = current(rank);
        if (uses_gradients(waiting.op)) {
            return has_gradients(waiting.stage) ? norm_awaited_by(rank)
                                                : reduction_awaited_by(waiting);
        }
        const int channel = channel_of_.of(waiting);
        if (channel < 0) {
            return std::nullopt;
        }
        const int peer = schedule_.rank_of_stage[as_index(peer_stage(waiting))];
        if (peer < 0 || peer >= schedule_.rank_count()) {
            return std::nullopt;
        }
        for (std::size_t cell = next(peer); cell < row(peer).size(); ++cell) {
            if (other_end(row(peer)[cell], waiting, channel)) {
                return Awaited{peer, cell};
            }
        }
        return std::nullopt;
    }

  private:
    std::optional<Awaited> reduction_awaited_by(const Action& user) const {
        const int source = known_source_of(user.stage).value();
        const int peer = schedule_.rank_of_stage[as_index(source)];
        for (std::size_t cell = next(peer); cell < row(peer).size(); ++cell) {
            if (row(peer)[cell].op == Op::ReduceGradient && row(peer)[cell].stage == source) {
                return Awaited{peer, cell};
            }
        }
        return std::nullopt;
    }

    /// The first of the NORMs that an update waits for, its own rank's last.
    std::optional<Awaited> norm_awaited_by(int rank) const {
        for (int step = 1; step <= schedule_.rank_count(); ++step) {
            const int peer = (rank + step) % schedule_.rank_count();
            for (std::size_t cell = next(peer); cell < row(peer).size(); ++cell) {
                if (row(peer)[cell].op == Op::GradientNorm) {
                    return Awaited{peer, cell};
                }
            }
        }
        return std::nullopt;
    }

    void begin_receives(const std::vector<Action>& row) {
        for (const Action& action : row) {
            const int channel = is_receive(action.op) ? channel_of_.of(action) : -1;
            if (channel >= 0) {
                ++channels_[as_index(channel)].begun;
            }
        }
    }

    const std::vector<Action>& row(int rank) const { return schedule_.ranks[as_index(rank)]; }
    std::size_t next(int rank) const { return next_[as_index(rank)]; }
    std::size_t& next(int rank) { return next_[as_index(rank)]; }

    bool other_end(const Action& candidate, const Action& waiting, int channel) const {
        return (is_send(waiting.op) ? is_receive(candidate.op) : is_send(candidate.op)) &&
               channel_of_.of(candidate) == channel;
    }

    void advance(int rank) {
        while (!finished(rank) && passes(rank, current(rank))) {
            ++next(rank);
        }
    }

    bool passes(int rank, const Action& action) {
        if (action.op == Op::ReduceGradient) {
            return reduces(action.stage);
        }
        if (action.op == Op::GradientNorm) {
            return has_gradients(action.stage) && knows_norm();
        }
        if (action.op == Op::Optimizer) {
            return has_gradients(action.stage) && norms_left_ == 0;
        }
        if (!is_send(action.op) && !is_receive(action.op)) {
            return true;
        }
        const int index = channel_of_.of(action);
        if (index < 0) {
            return false;
        }
        Channel& channel = channels_[as_index(index)];
        if (capacity_ == 0) {
            return meets(rank, action, channel);
        }
        return is_send(action.op) ? sends(rank, channel) : receives(rank, channel);
    }

    /// The stage whose gradients this one needs, if both are stages that some rank holds: the rows
    /// may be of a schedule that breaks every rule.
    std::optional<int> known_source_of(int stage) const {
        if (stage < 0 || stage >= schedule_.stage_count()) {
            return std::nullopt;
        }
        const std::optional<int> source = gradient_source(schedule_, stage);
        const auto held = [this](int held_stage) {
            const int rank = schedule_.rank_of_stage[as_index(held_stage)];
            return rank >= 0 && rank < schedule_.rank_count();
        };
        return source && held(*source) ? source : std::nullopt;
    }

    bool has_gradients(int stage) const {
        const auto source = known_source_of(stage);
        return !source || reduced_[as_index(*source)];
    }

    /// Another rank may wait for these gradients: where they come from, they go to.
    bool reduces(int stage) {
        if (const auto source = known_source_of(stage)) {
            reduced_[as_index(stage)] = true;
            runnable_.push_back(schedule_.rank_of_stage[as_index(*source)]);
        }
        return true;
    }

    /// The updates of any rank may wait for the last norm.
    bool knows_norm() {
        if (--norms_left_ == 0) {
            for (int rank = 0; rank < schedule_.rank_count(); ++rank) {
                runnable_.push_back(rank);
            }
        }
        return true;
    }

    bool has_room(const Channel& channel) const {
        return capacity_ ? channel.sent - channel.received < channel.places
                         : channel.sent < channel.begun;
    }

    bool sends(int rank, Channel& channel) {
        if (!has_room(channel)) {
            channel.waiting_sender = rank;
            return false;
        }
        ++channel.sent;
        wake(channel.waiting_receiver);
        return true;
    }

    bool receives(int rank, Channel& channel) {
        if (channel.sent == channel.received) {
            channel.waiting_receiver = rank;
            return false;
        }
        ++channel.received;
        wake(channel.waiting_sender);
        return true;
    }

    /// For capacity 0: the end of a message that comes second moves both ends on.
    bool meets(int rank, const Action& action, Channel& channel) {
        int& other = is_send(action.op) ? channel.waiting_receiver : channel.waiting_sender;
        int& own = is_send(action.op) ? channel.waiting_sender : channel.waiting_receiver;
        if (other < 0) {
            own = rank;
            return false;
        }
        ++next(other);
        wake(other);
        return true;
    }

    void wake(int& waiting) {
        if (waiting >= 0) {
            runnable_.push_back(waiting);
            waiting = -1;
        }
    }

    const Schedule& schedule_;
    std::optional<int> capacity_;
    Channels channel_of_;
    std::vector<Channel> channels_;
    std::vector<bool> reduced_;      ///< per stage: its gradients have been handed over
    std::int64_t norms_left_ = 0;    ///< to be known before any update
    std::vector<std::size_t> next_;  ///< per rank: the cell that it has come to
    std::deque<int> runnable_;
};

/// chain that ends at a message without a send is returned whole.
std::vector<int> waiting_cycle(const Schedule& schedule, const SymbolicRun& run, int start) {
    std::vector<int> chain;
    std::vector<bool> seen(schedule.ranks.size(), false);
    int rank = start;
    while (!seen[as_index(rank)]) {
        seen[as_index(rank)] = true;
        chain.push_back(rank);
        const auto awaited = run.awaited_by(rank);
        if (!awaited) {
            return chain;
        }
        rank = awaited->rank;
    }
    chain.erase(chain.begin(), std::ranges::find(chain, rank));
    return chain;
}

Violation describe(const Schedule& schedule, const SymbolicRun& run, int rank) {
    const Action& action = run.current(rank);
    Violation violation{rank, run.current_cell(rank), to_string(action), {}};
    const auto awaited = run.awaited_by(rank);
    if (!awaited) {
        violation.why = is_send(action.op) ? "waits for room, but no rank receives this message"
                                           : "waits for a message that no rank sends";
        return violation;
    }
    const auto& row = schedule.ranks[as_index(awaited->rank)];
    violation.why = fmt::format("waits for {} on rank {} (cell {})",
                                to_string(row[awaited->cell]),
                                awaited->rank,
                                awaited->cell);
    if (static_cast<int>(awaited->cell) != run.current_cell(awaited->rank)) {
        violation.why +=
            fmt::format(", which comes after {}", to_string(run.current(awaited->rank)));
    }
    return violation;
}

/// With room for every message of the fullest channel no send ever waits.
int unbounded_capacity(const Schedule& schedule, MessageQueues queues) {
    const Channels channels(schedule, queues);
    std::vector<int> sends(channels.count(), 0);
    int largest = 1;
    for (const auto& row : schedule.ranks) {
        for (const Action& action : row) {
            const int channel = is_send(action.op) ? channels.of(action) : -1;
            if (channel >= 0) {
                largest = std::max(largest, ++sends[as_index(channel)]);
            }
        }
    }
    return largest;
}

DeadlockReport report_of(const Schedule& schedule, const SymbolicRun& run) {
    DeadlockReport report;
    for (int rank = 0; rank < schedule.rank_count() && report.deadlock_free; ++rank) {
        if (run.finished(rank)) {
            continue;
        }
        report.deadlock_free = false;
        for (const int waiting : waiting_cycle(schedule, run, rank)) {
            report.waiting.push_back(describe(schedule, run, waiting));
        }
    }
    return report;
}

}  // namespace

DeadlockReport find_deadlock(const Schedule& schedule,
                             std::optional<int> capacity,
                             MessageQueues queues) {
    PIPETWIN_EXPECT(capacity.value_or(0) >= 0, "capacity is not negative");
    return report_of(
        schedule,
        SymbolicRun(schedule, capacity.value_or(unbounded_capacity(schedule, queues)), queues));
}

DeadlockReport find_deadlock_with_preposted_receives(const Schedule& schedule,
                                                     MessageQueues queues) {
    return report_of(schedule, SymbolicRun(schedule, std::nullopt, queues));
}

int smallest_capacity(const Schedule& schedule, MessageQueues queues) {
    const auto runs = [&schedule, queues](int capacity) {
        const SymbolicRun run(schedule, capacity, queues);
        for (int rank = 0; rank < schedule.rank_count(); ++rank) {
            if (!run.finished(rank)) {
                return false;
            }
        }
        return true;
    };
    int high = unbounded_capacity(schedule, queues);
    if (!runs(high)) {
        return -1;
    }
    int low = -1;  // more room never hurts, so the answer can be bisected: low fails, high runs
    while (high - low > 1) {
        const int middle = low + (high - low) / 2;
        (runs(middle) ? high : low) = middle;
    }
    return high;
}

}  // namespace pipetwin
