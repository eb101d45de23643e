// SPDX-License-Identifier: Apache-2.0
#include "tests/support/interleavings.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <tuple>

namespace pipetwin::testing {

namespace {

constexpr int nowhere = -1;

/// Where stages stand in their pipeline.
struct Layout {
    const Schedule& schedule;

    int rank_of(int stage) const { return schedule.rank_of_stage.at(index(stage)); }
    int model_stage_of(int stage) const { return schedule.weights_of_stage.at(index(stage)); }
    int after(int stage) const {
        const int next = stage + 1;
        return next < schedule.stage_count() && model_stage_of(next) == model_stage_of(stage) + 1
                   ? next
                   : nowhere;
    }
    int before(int stage) const { return model_stage_of(stage) == 0 ? nowhere : stage - 1; }
    bool on_rank(int stage, int rank) const {
        return stage >= 0 && stage < schedule.stage_count() && rank_of(stage) == rank;
    }

    /// The stage of the other pipeline with the same piece of the model.
    int weight_sharing_stage(int stage) const {
        for (int other = 0; other < schedule.stage_count(); ++other) {
            if (other != stage && model_stage_of(other) == model_stage_of(stage)) {
                return other;
            }
        }
        return nowhere;
    }

    /// Stages that are no neighbours of this one and send it something, or are sent something by
    /// it.
    std::vector<int> sources_over_stages(int stage) const {
        std::vector<int> sources;
        for (const StagePair& skip : schedule.skips) {
            if (skip.to == stage) {
                sources.push_back(skip.from);
            }
        }
        return sources;
    }
    std::vector<int> readers_over_stages(int stage) const {
        std::vector<int> readers;
        for (const StagePair& skip : schedule.skips) {
            if (skip.from == stage) {
                readers.push_back(skip.to);
            }
        }
        return readers;
    }

    static std::size_t index(int stage) { return static_cast<std::size_t>(stage); }
};

/// The stage at the other end of a message, by the words: ">3" names stage 3.
int named_stage(const Action& message) {
    const int stages = message.hop + 1;
    return message.op == Op::SendForward || message.op == Op::RecvBackward ? message.stage + stages
                                                                           : message.stage - stages;
}

// --- One rank: what it holds, and what it can do with that. ---

enum class Thing {
    Input,
    Output,  ///< to be sent
    KeptInput,
    Stash,
    HalfStash,  ///< what I leaves for W
    OutputGradient,
    InputGradient,  ///< to be sent
};

struct Held {
    Thing thing;
    int stage = 0;
    int micro_batch = 0;
    int other = nowhere;  ///< a stage that is no neighbour: from which it is, or to which it goes

    auto operator<=>(const Held&) const = default;
};

class Worker {
  public:
    Worker(const Schedule& schedule, int rank, bool trains)
        : layout_{schedule},
          row_(schedule.ranks[static_cast<std::size_t>(rank)]),
          rank_(rank),
          trains_(trains) {
        for (int stage = 0; stage < schedule.stage_count(); ++stage) {
            for (int k = 0; k < schedule.micro_batches; ++k) {
                if (layout_.before(stage) == nowhere && layout_.on_rank(stage, rank)) {
                    put(Thing::Input, stage, k);
                }
            }
        }
    }

    /// How many actions of its row the rank can carry out, if every receive brings what it names.
    std::size_t able() {
        std::size_t cell = 0;
        while (cell < row_.size() && pair_is_ready(cell) && carry_out(row_[cell])) {
            ++cell;
        }
        return cell;
    }

  private:
    void put(Thing thing, int stage, int k) { held_.insert({thing, stage, k}); }
    bool has(Thing thing, const Action& a) const {
        return held_.contains({thing, a.stage, a.micro_batch});
    }
    bool take(Thing thing, const Action& a, int other = nowhere) {
        return held_.erase({thing, a.stage, a.micro_batch, other}) > 0;
    }
    bool has_all(Thing thing, const Action& a, const std::vector<int>& others) const {
        return has(thing, a) && std::ranges::all_of(others, [&](int other) {
                   return held_.contains({thing, a.stage, a.micro_batch, other});
               });
    }
    bool take_all(Thing thing, const Action& a, const std::vector<int>& others) {
        return take(thing, a) &&
               std::ranges::all_of(others, [&](int other) { return take(thing, a, other); });
    }
    void leave_all(Thing thing, const Action& a, const std::vector<int>& others) {
        for (const int other : others) {
            held_.insert({thing, a.stage, a.micro_batch, other});
        }
    }

    /// Two actions issued together begin together: neither waits for what the other makes.
    bool pair_is_ready(std::size_t cell) const {
        if (!row_[cell].with_next) {
            return true;
        }
        if (cell + 1 == row_.size() || row_[cell + 1].with_next) {
            return false;
        }
        const auto forward_and_backward = [this](const Action& forward, const Action& backward) {
            return forward.op == Op::Forward &&
                   has_all(Thing::Input, forward, layout_.sources_over_stages(forward.stage)) &&
                   (backward.op == Op::Backward || backward.op == Op::BackwardInput) &&
                   has(Thing::Stash, backward) &&
                   has_all(Thing::OutputGradient,
                           backward,
                           layout_.readers_over_stages(backward.stage));
        };
        return forward_and_backward(row_[cell], row_[cell + 1]) ||
               forward_and_backward(row_[cell + 1], row_[cell]);
    }

    bool carry_out(const Action& a) {
        if (!layout_.on_rank(a.stage, rank_)) {
            return false;
        }
        if (a.hop != 0) {
            return carry_out_skip(a);
        }
        switch (a.op) {
            case Op::Forward:
                return forward(a);
            case Op::Recompute:
                return take(Thing::KeptInput, a) && leave(Thing::Stash, a);
            case Op::Backward:
                return input_gradient(a) && weight_gradient(a);
            case Op::BackwardInput:
                return input_gradient(a) && leave(Thing::HalfStash, a);
            case Op::BackwardWeight:
                return take(Thing::HalfStash, a) && weight_gradient(a);
            case Op::SendForward:
                return take(Thing::Output, a);
            case Op::SendBackward:
                return take(Thing::InputGradient, a);
            case Op::RecvForward:
                return comes_from(layout_.before(a.stage)) && leave(Thing::Input, a);
            case Op::RecvBackward:
                return comes_from(layout_.after(a.stage)) && leave(Thing::OutputGradient, a);
            case Op::ReduceGradient:
            case Op::GradientNorm:
            case Op::Optimizer:
                return a.micro_batch == 0 && use_gradients(a);
            case Op::Unshard:
            case Op::Reshard:
                return a.micro_batch == 0;
        }
        return false;
    }

    /// A message between stages that are no neighbours.
    bool carry_out_skip(const Action& a) {
        const int other = named_stage(a);
        const auto is_one_of = [other](const std::vector<int>& stages) {
            return std::ranges::find(stages, other) != stages.end();
        };
        const bool from_earlier = is_one_of(layout_.sources_over_stages(a.stage));
        const bool to_later = is_one_of(layout_.readers_over_stages(a.stage));
        switch (a.op) {
            case Op::SendForward:
                return take(Thing::Output, a, other);
            case Op::SendBackward:
                return take(Thing::InputGradient, a, other);
            case Op::RecvForward:
                leave_all(Thing::Input, a, {other});
                return from_earlier;
            case Op::RecvBackward:
                leave_all(Thing::OutputGradient, a, {other});
                return to_later;
            default:
                return false;
        }
    }

    bool leave(Thing thing, const Action& a) {
        put(thing, a.stage, a.micro_batch);
        return true;
    }
    bool comes_from(int stage) const { return stage != nowhere && !layout_.on_rank(stage, rank_); }

    bool forward(const Action& a) {
        const std::vector<int> readers = layout_.readers_over_stages(a.stage);
        if (!take_all(Thing::Input, a, layout_.sources_over_stages(a.stage))) {
            return false;
        }
        leave_all(Thing::Output, a, readers);
        const int next = layout_.after(a.stage);
        if (layout_.on_rank(next, rank_)) {
            put(Thing::Input, next, a.micro_batch);
        } else if (next != nowhere) {
            leave(Thing::Output, a);
        }
        if (trains_) {
            leave(is_recomputed(a) ? Thing::KeptInput : Thing::Stash, a);
            if (next == nowhere) {
                leave(Thing::OutputGradient, a);
            }
        }
        return true;
    }

    bool is_recomputed(const Action& forward) const {
        return std::ranges::any_of(row_, [&forward](const Action& a) {
            return a.op == Op::Recompute && a.stage == forward.stage &&
                   a.micro_batch == forward.micro_batch;
        });
    }

    bool input_gradient(const Action& a) {
        if (!take(Thing::Stash, a) ||
            !take_all(Thing::OutputGradient, a, layout_.readers_over_stages(a.stage))) {
            return false;
        }
        leave_all(Thing::InputGradient, a, layout_.sources_over_stages(a.stage));
        const int previous = layout_.before(a.stage);
        if (layout_.on_rank(previous, rank_)) {
            put(Thing::OutputGradient, previous, a.micro_batch);
        } else if (previous != nowhere) {
            leave(Thing::InputGradient, a);
        }
        return true;
    }

    /// Too late once the stage's gradients have been used.
    bool weight_gradient(const Action& a) {
        gradients_.insert(a.stage);
        return !used_.contains(a.stage);
    }

    /// Reduced at most once, its norm taken at most once, then updated at most once; with the
    /// gradients of both pipelines.
    bool use_gradients(const Action& a) {
        if (!gradients_.contains(a.stage)) {
            return false;
        }
        const auto earlier = used_.find(a.stage);
        const bool first = earlier == used_.end();
        const bool follows = !first && earlier->second < a.op;
        used_[a.stage] = a.op;
        const bool alone = layout_.weight_sharing_stage(a.stage) == nowhere;
        return a.op == Op::ReduceGradient ? first : (first && alone) || follows;
    }

    Layout layout_;
    const std::vector<Action>& row_;
    int rank_;
    bool trains_;
    std::set<Held> held_;
    std::set<int> gradients_;  ///< stages that have some
    std::map<int, Op> used_;   ///< stage to what was done last with its gradients
};

// --- All ranks. ---

/// Goes through every order of the moves, depth first, and remembers the states that it has seen. A
/// state is how far each rank has come: what ranks hold and queues contain follows from that.
class Interleavings {
  public:
    /// Rank r can carry out the first able[r] actions of its row. With `by_name` a receive takes no
    /// message but the one which it names.
    Interleavings(const Schedule& schedule,
                  int capacity,
                  MessageQueues queues,
                  std::vector<std::size_t> able,
                  bool by_name)
        : schedule_(schedule),
          capacity_(capacity),
          queues_(queues),
          able_(std::move(able)),
          by_name_(by_name),
          done_(schedule.ranks.size(), 0) {
        std::size_t states = 1;
        for (const auto& row : schedule.ranks) {
            stride_.push_back(states);
            states *= row.size() + 1;
        }
        seen_.resize(states, false);
    }

    bool all_come_to_the_end() {
        if (seen_[state_]) {
            return true;  // judged where it was first met
        }
        seen_[state_] = true;
        bool moved = false;
        for (std::size_t rank = 0; rank < done_.size(); ++rank) {
            const auto partner = partner_of(rank);
            if (!partner) {
                continue;
            }
            moved = true;
            if (!comes_to_the_end_after(rank, *partner)) {
                return false;
            }
        }
        return moved || finished();
    }

  private:
    /// The stage that sends, the stage that receives, and the micro-batch.
    using Message = std::tuple<int, int, int>;

    static Message message_of(const Action& a) {
        return is_send(a.op) ? Message{a.stage, named_stage(a), a.micro_batch}
                             : Message{named_stage(a), a.stage, a.micro_batch};
    }

    /// A queue, with what was taken from it, so that a move can be taken back.
    struct Channel {
        std::vector<Message> sent;
        std::size_t received = 0;

        std::size_t waiting() const { return sent.size() - received; }
    };

    const Action* next_of(std::size_t rank) const {
        return done_[rank] < able_[rank] ? &schedule_.ranks[rank][done_[rank]] : nullptr;
    }

    /// The stage, or the rank, that sends and the one that receives.
    using Ends = std::pair<int, int>;

    Ends channel_of(const Action& a) const {
        const auto [from, to, micro_batch] = message_of(a);
        const Layout layout{schedule_};
        return queues_ == MessageQueues::PerStages ? Ends{from, to}
                                                   : Ends{layout.rank_of(from), layout.rank_of(to)};
    }

    /// Places for a skip: as many for each boundary between, at most one for each micro-batch.
    std::size_t places_of(const Ends& ends) const {
        if (queues_ == MessageQueues::PerRanks) {
            return static_cast<std::size_t>(capacity_);
        }
        const int apart =
            ends.second > ends.first ? ends.second - ends.first : ends.first - ends.second;
        const int places =
            apart == 1 ? capacity_ : std::min(apart * capacity_, schedule_.micro_batches);
        return static_cast<std::size_t>(places);
    }

    std::size_t waiting_in(const Ends& ends) const {
        const auto found = channels_.find(ends);
        return found == channels_.end() ? 0 : found->second.waiting();
    }

    bool accepts(const Action& receive, const Message& message) const {
        return !by_name_ || message_of(receive) == message;
    }

    /// The rank which must move together with this one: itself, except at capacity 0, where a send
    /// and its receive are one move, found from the send. None if the rank cannot move.
    std::optional<std::size_t> partner_of(std::size_t rank) const {
        const Action* const action = next_of(rank);
        if (action == nullptr) {
            return std::nullopt;
        }
        if (uses_gradients(action->op) && !twin_has_reduced(*action)) {
            return std::nullopt;
        }
        if (action->op == Op::Optimizer && norms_are_missing()) {
            return std::nullopt;
        }
        if (!is_send(action->op) && !is_receive(action->op)) {
            return rank;
        }
        if (capacity_ == 0) {
            return is_send(action->op) ? receiver_of(*action) : std::nullopt;
        }
        const Ends ends = channel_of(*action);
        if (is_send(action->op)) {
            return waiting_in(ends) < places_of(ends) ? std::optional(rank) : std::nullopt;
        }
        if (waiting_in(ends) == 0) {
            return std::nullopt;
        }
        const Channel& channel = channels_.at(ends);
        return accepts(*action, channel.sent[channel.received]) ? std::optional(rank)
                                                                : std::nullopt;
    }

    bool norms_are_missing() const {
        for (std::size_t rank = 0; rank < done_.size(); ++rank) {
            const auto& row = schedule_.ranks[rank];
            if (std::any_of(row.begin() + static_cast<std::ptrdiff_t>(done_[rank]),
                            row.end(),
                            [](const Action& a) { return a.op == Op::GradientNorm; })) {
                return true;
            }
        }
        return false;
    }

    /// What an update needs of the other pipeline, where there is one, is there.
    bool twin_has_reduced(const Action& update) const {
        const Layout layout{schedule_};
        const int twin = layout.weight_sharing_stage(update.stage);
        if (twin == nowhere) {
            return true;
        }
        const auto rank = static_cast<std::size_t>(layout.rank_of(twin));
        const auto& row = schedule_.ranks[rank];
        return std::any_of(
            row.begin(),
            row.begin() + static_cast<std::ptrdiff_t>(done_[rank]),
            [twin](const Action& a) { return a.op == Op::ReduceGradient && a.stage == twin; });
    }

    std::optional<std::size_t> receiver_of(const Action& send) const {
        for (std::size_t rank = 0; rank < done_.size(); ++rank) {
            const Action* const action = next_of(rank);
            if (action != nullptr && is_receive(action->op) &&
                channel_of(*action) == channel_of(send) && accepts(*action, message_of(send))) {
                return rank;
            }
        }
        return std::nullopt;
    }

    bool comes_to_the_end_after(std::size_t rank, std::size_t partner) {
        step(rank);
        if (partner != rank) {
            step(partner);
        }
        const bool result = all_come_to_the_end();
        if (partner != rank) {
            step_back(partner);
        }
        step_back(rank);
        return result;
    }

    void step(std::size_t rank) {
        const Action& action = schedule_.ranks[rank][done_[rank]++];
        state_ += stride_[rank];
        if (is_send(action.op)) {
            channels_[channel_of(action)].sent.push_back(message_of(action));
        } else if (is_receive(action.op)) {
            ++channels_[channel_of(action)].received;
        }
    }

    void step_back(std::size_t rank) {
        const Action& action = schedule_.ranks[rank][--done_[rank]];
        state_ -= stride_[rank];
        if (is_send(action.op)) {
            channels_[channel_of(action)].sent.pop_back();
        } else if (is_receive(action.op)) {
            --channels_[channel_of(action)].received;
        }
    }

    bool finished() const {
        for (std::size_t rank = 0; rank < done_.size(); ++rank) {
            if (done_[rank] < schedule_.ranks[rank].size()) {
                return false;
            }
        }
        return !by_name_ || std::ranges::all_of(channels_, [](const auto& channel) {
            return channel.second.waiting() == 0;
        });
    }

    const Schedule& schedule_;
    int capacity_;
    MessageQueues queues_;
    std::vector<std::size_t> able_;
    bool by_name_;
    std::vector<std::size_t> done_;
    std::map<Ends, Channel> channels_;
    std::vector<std::size_t> stride_;  ///< of each rank's progress in the number of a state
    std::size_t state_ = 0;
    std::vector<bool> seen_;
};

/// What has been done when all rows have been carried out: each micro-batch once forward and, in
/// training, once backward through each piece; and all stages updated or none.
bool does_everything_once(const Schedule& schedule, bool trains) {
    const Layout layout{schedule};
    std::map<std::pair<int, int>, int> forwards;  ///< piece, micro-batch
    std::map<std::pair<int, int>, int> gradients;
    int updates = 0;
    int norms = 0;
    int pieces = 0;
    for (int stage = 0; stage < schedule.stage_count(); ++stage) {
        pieces = std::max(pieces, layout.model_stage_of(stage) + 1);
    }
    for (const auto& row : schedule.ranks) {
        for (const Action& a : row) {
            const std::pair place{layout.model_stage_of(a.stage), a.micro_batch};
            forwards[place] += a.op == Op::Forward ? 1 : 0;
            gradients[place] += a.op == Op::Backward || a.op == Op::BackwardWeight ? 1 : 0;
            updates += a.op == Op::Optimizer ? 1 : 0;
            norms += a.op == Op::GradientNorm ? 1 : 0;
        }
    }
    for (int piece = 0; piece < pieces; ++piece) {
        for (int k = 0; k < schedule.micro_batches; ++k) {
            if (forwards[{piece, k}] != 1 || gradients[{piece, k}] != (trains ? 1 : 0)) {
                return false;
            }
        }
    }
    // A norm is for the updates of all stages, and of the gradients of all.
    const int stages = schedule.stage_count();
    return (norms == 0 && updates == 0) || (updates == stages && (norms == 0 || norms == stages));
}

bool has_backward(const Schedule& schedule) {
    return std::ranges::any_of(schedule.ranks, [](const auto& row) {
        return std::ranges::any_of(row, [](const Action& a) {
            return a.op == Op::Backward || a.op == Op::BackwardInput || a.op == Op::BackwardWeight;
        });
    });
}

}  // namespace

bool every_interleaving_completes(const Schedule& schedule, int capacity, MessageQueues queues) {
    const bool trains = has_backward(schedule);
    std::vector<std::size_t> able(schedule.ranks.size());
    for (std::size_t rank = 0; rank < able.size(); ++rank) {
        able[rank] = Worker(schedule, static_cast<int>(rank), trains).able();
    }
    return Interleavings(schedule, capacity, queues, able, true).all_come_to_the_end() &&
           does_everything_once(schedule, trains);
}

bool no_interleaving_blocks(const Schedule& schedule, int capacity) {
    std::vector<std::size_t> able(schedule.ranks.size());
    std::ranges::transform(schedule.ranks, able.begin(), &std::vector<Action>::size);
    return Interleavings(schedule, capacity, MessageQueues::PerStages, able, false)
        .all_come_to_the_end();
}

}  // namespace pipetwin::testing
