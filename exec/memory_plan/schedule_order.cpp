// SPDX-License-Identifier: Apache-2.0
#include "exec/memory_plan/schedule_order.h"

#include <algorithm>
#include <cstddef>
#include <optional>

#include "core/base/as_index.h"
#include "core/base/error.h"
#include "core/schedule/edge.h"

namespace pipetwin::exec {
namespace {

/// Messages of one pair of stages in one direction.
struct Flow {
    std::vector<int> sent;   ///< the column in which the k-th was sent
    std::vector<int> taken;  ///< the column in which the k-th was received
};

/// A run of the schedule in columns.
class Columns {
  public:
    Columns(const Schedule& schedule, int capacity)
        : schedule_(schedule),
          capacity_(capacity),
          next_(schedule.ranks.size(), 0),
          column_(schedule.ranks.size(), 0),
          order_(schedule.ranks.size()),
          flows_(edge_count(schedule)),
          reduced_(static_cast<std::size_t>(schedule.stage_count())) {
        for (const auto& row : schedule.ranks) {
            norms_left_ += std::ranges::count(row, Op::GradientNorm, &Action::op);
        }
    }

    std::vector<std::vector<int>> run() {
        while (true) {
            std::optional<std::size_t> first;
            int first_column = 0;
            for (std::size_t rank = 0; rank < next_.size(); ++rank) {
                const std::optional<int> column = ready_in(rank);
                if (column && (!first || *column < first_column)) {
                    first = rank;
                    first_column = *column;
                }
            }
            if (!first) {
                break;
            }
            perform(*first, first_column);
        }
        for (std::size_t rank = 0; rank < next_.size(); ++rank) {
            PIPETWIN_EXPECT(next_[rank] == schedule_.ranks[rank].size(), "the schedule deadlocks");
        }
        return order_;
    }

  private:
    Flow& flow(const Action& action) { return flows_.at(as_index(edge_of(schedule_, action))); }

    const Action* next_action(std::size_t rank) const {
        const std::vector<Action>& row = schedule_.ranks[rank];
        return next_[rank] < row.size() ? &row[next_[rank]] : nullptr;
    }

    std::size_t receiver(const Action& send) const {
        return as_index(schedule_.rank_of_stage[as_index(peer_stage(send))]);
    }

    /// The receiver stands at the receive of the message that `send` is about to send.
    bool receiver_waits(const Action& send) const {
        const Action* action = next_action(receiver(send));
        const Action wanted = other_end(send);
        return action != nullptr && action->stage == wanted.stage && action->op == wanted.op &&
               action->hop == wanted.hop;
    }

    /// The column in which the rank's next action can run; none if something it needs is still
    /// missing.
    std::optional<int> ready_in(std::size_t rank) {
        const Action* action = next_action(rank);
        if (action == nullptr) {
            return std::nullopt;
        }
        const int column = column_[rank];
        if (is_receive(action->op)) {
            const Flow& messages = flow(*action);
            if (messages.sent.size() <= messages.taken.size()) {
                return std::nullopt;
            }
            return std::max(column, messages.sent[messages.taken.size()]);
        }
        if (is_send(action->op) && capacity_ >= 0) {
            const Flow& messages = flow(*action);
            const std::size_t waiting = messages.sent.size() - messages.taken.size();
            const std::size_t room =
                as_index(channel_places(schedule_, stages_of(*action), capacity_));
            if (capacity_ == 0 ? !receiver_waits(*action) : waiting >= room) {
                return std::nullopt;
            }
            return messages.taken.empty() ? column : std::max(column, messages.taken.back());
        }
        if (!uses_gradients(action->op)) {
            return column;
        }
        if (action->op == Op::Optimizer && norms_left_ > 0) {
            return std::nullopt;
        }
        const int known = action->op == Op::Optimizer ? std::max(column, norms_known_) : column;
        if (const std::optional<int> source = gradient_source(schedule_, action->stage)) {
            const std::optional<int>& reduced = reduced_[as_index(*source)];
            return reduced ? std::optional(std::max(known, *reduced)) : std::nullopt;
        }
        return known;
    }

    void perform(std::size_t rank, int column) {
        const Action& action = *next_action(rank);
        if (is_send(action.op)) {
            flow(action).sent.push_back(column);
        } else if (is_receive(action.op)) {
            flow(action).taken.push_back(column);
        } else if (action.op == Op::ReduceGradient) {
            reduced_[as_index(action.stage)] = column;
        } else if (action.op == Op::GradientNorm) {
            norms_known_ = std::max(norms_known_, column);
            --norms_left_;
        }
        column_[rank] = is_compute(action.op) ? column + 1 : column;
        ++next_[rank];
        order_[rank].push_back(number_++);
        if (is_send(action.op) && capacity_ == 0) {  // a rendezvous is one event of two ranks
            perform(receiver(action), std::max(column, column_[receiver(action)]));
        }
    }

    const Schedule& schedule_;
    int capacity_;
    std::vector<std::size_t> next_;  ///< per rank: the cell it stands at
    std::vector<int> column_;        ///< per rank: where it is free again
    std::vector<std::vector<int>> order_;
    int number_ = 0;
    std::vector<Flow> flows_;
    std::vector<std::optional<int>> reduced_;  ///< [stage]: the column of its REDUCE_GRAD
    std::ptrdiff_t norms_left_ = 0;
    int norms_known_ = 0;  ///< the column of the last NORM
};

}  // namespace

std::vector<std::vector<int>> schedule_order(const Schedule& schedule, int capacity) {
    return Columns(schedule, capacity).run();
}

}  // namespace pipetwin::exec
