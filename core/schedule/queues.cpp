// SPDX-License-Identifier: Apache-2.0
#include "core/schedule/queues.h"

#include <cstdint>
#include <functional>
#include <map>
#include <numeric>
#include <utility>

#include <queue>

#include "core/base/as_index.h"
#include "core/schedule/edge.h"

namespace pipetwin {

std::vector<std::size_t> queues_of_edges(const Schedule& schedule, MessageQueues queues) {
    std::vector<std::size_t> queue_of(edge_count(schedule));
    if (queues == MessageQueues::PerStages) {
        std::iota(queue_of.begin(), queue_of.end(), std::size_t{0});
        return queue_of;
    }
    std::map<std::pair<int, int>, std::size_t> known;  // by the ranks that send and receive
    for (std::size_t edge = 0; edge < queue_of.size(); ++edge) {
        const StagePair stages = stages_of_pair(schedule, edge / 2);
        std::pair ends(schedule.rank_of_stage[as_index(stages.from)],
                       schedule.rank_of_stage[as_index(stages.to)]);
        if (edge % 2 != 0) {
            std::swap(ends.first, ends.second);
        }
        queue_of[edge] = known.try_emplace(ends, known.size()).first->second;
    }
    return queue_of;
}

namespace {

/// Carries out the rows in the time of `receive_in_order_of_sends`, and writes them down as it
/// goes: a send together with its receive.
class SendOrder {
  public:
    explicit SendOrder(const Schedule& schedule)
        : schedule_(schedule),
          sent_(edge_count(schedule) * as_index(schedule.micro_batches), false),
          ranks_(schedule.ranks.size()) {}

    std::vector<std::vector<Action>> rows() {
        for (int rank = 0; rank < schedule_.rank_count(); ++rank) {
            begin_next(rank, 0);
        }
        while (!running_.empty()) {
            const auto [now, rank] = running_.top();
            running_.pop();
            end(rank, now);
            begin_next(rank, now);
        }
        std::vector<std::vector<Action>> rows;
        for (int rank = 0; rank < schedule_.rank_count(); ++rank) {
            keep_rest(rank);
            rows.push_back(std::move(ranks_[as_index(rank)].written));
        }
        return rows;
    }

  private:
    struct Rank {
        std::size_t next = 0;  ///< cell of the row
        bool waits = false;    ///< for a message
        std::vector<Action> written;
    };

    const std::vector<Action>& row(int rank) const { return schedule_.ranks[as_index(rank)]; }

    /// Whether the send of a receive is done. Refers to the send's, too.
    std::vector<bool>::reference sent(const Action& message) {
        return sent_[as_index(edge_of(schedule_, message)) * as_index(schedule_.micro_batches) +
                     as_index(message.micro_batch)];
    }

    static std::int64_t time_of(const Action& action) {
        if (!is_compute(action.op)) {
            return 0;
        }
        return action.op == Op::Backward ? 2 : 1;
    }

    /// Passes the receives that the rank has, and begins the actions behind them, up to the next
    /// receive or the end of a pair.
    void begin_next(int rank, std::int64_t now) {
        Rank& state = ranks_[as_index(rank)];
        while (state.next < row(rank).size() && is_receive(row(rank)[state.next].op)) {
            if (!sent(row(rank)[state.next])) {
                state.waits = true;
                return;
            }
            ++state.next;
        }
        if (state.next < row(rank).size()) {
            std::int64_t time = 0;
            for (std::size_t cell = state.next; cell < group_end(rank); ++cell) {
                time += time_of(row(rank)[cell]);
            }
            running_.emplace(now + time, rank);
        }
    }

    /// Behind the action that a rank has come to, or both of a pair.
    std::size_t group_end(int rank) const {
        std::size_t end = ranks_[as_index(rank)].next;
        while (end + 1 < row(rank).size() && row(rank)[end].with_next) {
            ++end;
        }
        return end + 1;
    }

    void end(int rank, std::int64_t now) {
        Rank& state = ranks_[as_index(rank)];
        for (const std::size_t end = group_end(rank); state.next < end; ++state.next) {
            const Action& action = row(rank)[state.next];
            state.written.push_back(action);
            if (is_send(action.op)) {
                deliver(action, now);
            }
        }
    }

    void deliver(const Action& send, std::int64_t now) {
        const Action receive = other_end(send);
        const int peer = schedule_.rank_of_stage[as_index(receive.stage)];
        Rank& state = ranks_[as_index(peer)];
        state.written.push_back(receive);
        sent(send) = true;
        if (state.waits) {
            state.waits = false;
            begin_next(peer, now);
        }
    }

    /// Writes what a deadlock has left undone as it stands.
    void keep_rest(int rank) {
        Rank& state = ranks_[as_index(rank)];
        for (; state.next < row(rank).size(); ++state.next) {
            const Action& action = row(rank)[state.next];
            if (!is_receive(action.op) || !sent(action)) {
                state.written.push_back(action);
            }
        }
    }

    const Schedule& schedule_;
    std::vector<bool> sent_;  ///< [edge * micro_batches + micro-batch]
    std::vector<Rank> ranks_;
    /// By the time at which the rank ends what it has begun, then by rank.
    using Running = std::pair<std::int64_t, int>;
    std::priority_queue<Running, std::vector<Running>, std::greater<>> running_;
};

}  // namespace

Schedule receive_in_order_of_sends(Schedule schedule) {
    schedule.ranks = SendOrder(schedule).rows();
    return schedule;
}

}  // namespace pipetwin
