// SPDX-License-Identifier: Apache-2.0
#include "core/schedule/lower.h"

#include <algorithm>
#include <compare>
#include <cstdint>
#include <map>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "core/base/as_index.h"
#include "core/base/error.h"
#include "core/schedule/edge.h"

namespace pipetwin {

std::string_view to_string(MessageOrder order) {
    switch (order) {
        case MessageOrder::AsScheduled:
            return "plain";
        case MessageOrder::LowerRankFirst:
            return "lower-rank-first";
    }
    PIPETWIN_EXPECT(false, "message order out of range");
}

namespace {

using Row = std::vector<Action>;

/// Rebuilds a row group by group: an action alone, or a pair issued together. What is needed goes
/// before the whole group and what follows goes behind it, so a pair is never torn apart.
///
/// `before` and `after` are called with each action of a group and the row to append to, of which
/// `room` actions are expected.
template <class Before, class After>
Row rebuild(const Row& row, std::size_t room, Before before, After after) {
    Row result;
    result.reserve(room);
    for (std::size_t begin = 0; begin < row.size();) {
        std::size_t end = begin;
        while (end + 1 < row.size() && row[end].with_next) {
            ++end;
        }
        ++end;
        for (std::size_t i = begin; i < end; ++i) {
            before(row[i], result);
        }
        for (std::size_t i = begin; i < end; ++i) {
            result.push_back(row[i]);
        }
        for (std::size_t i = begin; i < end; ++i) {
            after(row[i], result);
        }
        begin = end;
    }
    return result;
}

constexpr auto nothing = [](const Action&, Row&) {};

/// The gradient of the stage's output is used here first.
bool starts_backward(const Action& action) {
    return action.op == Op::Backward || action.op == Op::BackwardInput;
}

/// The micro-batch has added all that it adds to the stage's weight gradients.
bool completes_gradient(const Action& action) {
    return action.op == Op::Backward || action.op == Op::BackwardWeight;
}

Action with_op(Action action, Op op) {
    action.op = op;
    action.with_next = false;
    action.hop = 0;
    return action;
}

/// The skips of a schedule, by the stages at their ends.
class SkipsOfStages {
  public:
    explicit SkipsOfStages(const Schedule& schedule) {
        if (schedule.skips.empty()) {
            return;
        }
        to_.resize(schedule.rank_of_stage.size());
        from_.resize(schedule.rank_of_stage.size());
        for (const StagePair& skip : schedule.skips) {
            const auto hop = static_cast<std::int16_t>(distance(skip) - 1);
            to_.at(as_index(skip.from)).push_back(hop);
            from_.at(as_index(skip.to)).push_back(hop);
        }
        for (std::vector<std::int16_t>& hops : from_) {
            std::ranges::sort(hops);
        }
    }

    /// Appends the skip messages of kind `op` that an action needs or makes, the shortest way
    /// first.
    void add_messages(const Action& action, Op op, Row& row) const {
        const auto& hops = leads_to_later_stage(op) ? to_ : from_;
        if (hops.empty()) {
            return;
        }
        for (const std::int16_t hop : hops[as_index(action.stage)]) {
            row.push_back(with_op(action, op));
            row.back().hop = hop;
        }
    }

  private:
    std::vector<std::vector<std::int16_t>> to_;    ///< [stage]: ascending hops of what it sends
    std::vector<std::vector<std::int16_t>> from_;  ///< [stage]: ascending hops of what it is sent
};

}  // namespace

std::optional<RecomputeRules> recompute_of(const Schedule& schedule) {
    struct Count {
        int all = 0;
        int of_last = 0;
    };
    const int last = schedule.micro_batches - 1;
    std::vector<Count> counts(as_index(std::max(1, model_stage_count(schedule))));
    for (const Row& row : schedule.ranks) {
        for (const Action& action : row) {
            if (action.op == Op::Recompute) {
                Count& count = counts.at(as_index(model_stage_of(schedule, action.stage)));
                ++count.all;
                count.of_last += action.micro_batch == last ? 1 : 0;
            }
        }
    }
    std::vector<Recompute> modes;  // each micro-batch goes through each piece once
    for (const Count& count : counts) {
        if (count.all == 0) {
            modes.push_back(Recompute::None);
        } else if (count.all == schedule.micro_batches) {
            modes.push_back(Recompute::Always);
        } else if (count.all == last && count.of_last == 0) {
            modes.push_back(Recompute::ExceptLast);
        } else {
            return std::nullopt;
        }
    }
    return RecomputeRules(std::move(modes));
}

bool exchanges(const Schedule& schedule, int boundary) {
    if (boundary < 0 || !has_next_stage(schedule, boundary)) {
        return false;
    }
    const std::size_t left = as_index(boundary);
    return schedule.rank_of_stage[left] != schedule.rank_of_stage[left + 1];
}

bool has_communication(const Schedule& schedule) {
    return std::ranges::any_of(schedule.ranks, [](const Row& row) {
        return std::ranges::any_of(row, [](const Action& a) { return is_message(a.op); });
    });
}

Schedule add_recompute(Schedule schedule, const RecomputeRules& recompute) {
    if (recompute == Recompute::None) {
        return schedule;
    }
    const auto before = [&](const Action& action, Row& row) {
        if (starts_backward(action) &&
            recomputes(recompute.of(model_stage_of(schedule, action.stage)),
                       action.micro_batch,
                       schedule.micro_batches)) {
            row.push_back(with_op(action, Op::Recompute));
        }
    };
    for (Row& row : schedule.ranks) {
        row = rebuild(row, row.size(), before, nothing);
    }
    return schedule;
}

Schedule add_communication(Schedule schedule, RecomputeTiming timing) {
    // Lazy: a recompute takes over the receive of its backward. (stage, micro-batch) of the row
    // being rebuilt.
    std::vector<std::pair<int, int>> recomputed;
    const auto needs_gradient = [&](const Action& action) {
        const bool has_recompute =
            !recomputed.empty() &&
            std::ranges::binary_search(recomputed, std::pair(action.stage, action.micro_batch));
        return has_recompute ? action.op == Op::Recompute : starts_backward(action);
    };
    std::vector<char> exchanging;  // [boundary + 1]: none before the first stage
    for (int boundary = -1; boundary < schedule.stage_count(); ++boundary) {
        exchanging.push_back(exchanges(schedule, boundary) ? 1 : 0);
    }
    const auto exchanges_over = [&exchanging](int boundary) {
        return exchanging.at(as_index(boundary + 1)) != 0;
    };
    const SkipsOfStages skips(schedule);
    const auto add_messages = [&](const Action& action, Op op, Row& row) {
        if (exchanges_over(leads_to_later_stage(op) ? action.stage : action.stage - 1)) {
            row.push_back(with_op(action, op));
        }
        skips.add_messages(action, op, row);
    };
    const auto before = [&](const Action& action, Row& row) {
        if (action.op == Op::Forward) {
            add_messages(action, Op::RecvForward, row);
        }
        if (needs_gradient(action)) {
            add_messages(action, Op::RecvBackward, row);
        }
    };
    const auto after = [&](const Action& action, Row& row) {
        if (action.op == Op::Forward) {
            add_messages(action, Op::SendForward, row);
        }
        if (starts_backward(action)) {
            add_messages(action, Op::SendBackward, row);
        }
    };
    // Two messages for each of most actions; and what updates the rank's stages at the end.
    const auto room = [&schedule](const Row& row) {
        return 3 * row.size() + 2 * schedule.rank_of_stage.size() / schedule.ranks.size() +
               2 * schedule.skips.size() * as_index(schedule.micro_batches);
    };
    for (Row& row : schedule.ranks) {
        recomputed.clear();
        for (const Action& action : row) {
            if (action.op == Op::Recompute && timing == RecomputeTiming::Lazy) {
                recomputed.emplace_back(action.stage, action.micro_batch);
            }
        }
        std::ranges::sort(recomputed);
        row = rebuild(row, room(row), before, after);
    }
    return schedule;
}

Schedule add_reduction(Schedule schedule, bool replicas) {
    std::vector<char> reduces;  // [stage]
    for (int stage = 0; stage < schedule.stage_count(); ++stage) {
        reduces.push_back(replicas || gradient_source(schedule, stage) ? 1 : 0);
    }
    for (const Row& row : schedule.ranks) {
        for (const Action& action : row) {
            if (action.op == Op::ReduceGradient) {
                reduces.at(as_index(action.stage)) = 0;
            }
        }
    }
    if (std::ranges::count(reduces, 1) == 0) {
        return schedule;
    }
    for (Row& row : schedule.ranks) {
        std::map<int, Action> last;  // of each stage: the action that completes its gradients
        for (const Action& action : row) {
            if (completes_gradient(action)) {
                last[action.stage] = action;
            }
        }
        row = rebuild(row, row.size(), nothing, [&](const Action& action, Row& result) {
            if (completes_gradient(action) && action == last.at(action.stage) &&
                reduces.at(as_index(action.stage)) != 0) {
                result.push_back({.op = Op::ReduceGradient, .stage = action.stage});
            }
        });
    }
    return schedule;
}

Schedule add_optimizer(Schedule schedule, bool norms) {
    if (is_forward_only(schedule)) {
        return schedule;
    }
    const auto append = [&schedule](Op op) {
        for (int stage = 0; stage < schedule.stage_count(); ++stage) {
            const int rank = schedule.rank_of_stage[as_index(stage)];
            PIPETWIN_EXPECT(rank >= 0 && rank < schedule.rank_count(), "stage on no rank");
            schedule.ranks[as_index(rank)].push_back({.op = op, .stage = stage});
        }
    };
    if (norms) {
        append(Op::GradientNorm);
    }
    append(Op::Optimizer);
    return schedule;
}

namespace {

/// A send with a receive directly behind it: what crosses it is the same at the other end.
struct Exchange {
    Action sent;      ///< by the rank, as the receive at the other end
    Action received;  ///< by the rank
    auto operator<=>(const Exchange&) const = default;
};

std::optional<Exchange> exchange_at(const Row& row, std::size_t cell) {
    if (cell + 1 < row.size() && is_send(row[cell].op) && is_receive(row[cell + 1].op)) {
        return Exchange{.sent = other_end(row[cell]), .received = row[cell + 1]};
    }
    return std::nullopt;
}

}  // namespace

Schedule lower_rank_receives_first(Schedule schedule) {
    std::vector<std::set<Exchange>> exchanges_of(schedule.ranks.size());
    for (std::size_t rank = 0; rank < schedule.ranks.size(); ++rank) {
        for (std::size_t cell = 0; cell < schedule.ranks[rank].size(); ++cell) {
            if (const auto exchange = exchange_at(schedule.ranks[rank], cell)) {
                exchanges_of[rank].insert(*exchange);
            }
        }
    }
    for (std::size_t rank = 0; rank < schedule.ranks.size(); ++rank) {
        Row& row = schedule.ranks[rank];
        for (std::size_t cell = 0; cell < row.size(); ++cell) {
            const auto own = exchange_at(row, cell);
            if (!own) {
                continue;
            }
            const int peer = schedule.rank_of_stage[as_index(own->sent.stage)];
            const Exchange theirs{.sent = own->received, .received = own->sent};
            if (static_cast<int>(rank) < peer && exchanges_of[as_index(peer)].contains(theirs)) {
                std::swap(row[cell], row[cell + 1]);
            }
        }
    }
    return schedule;
}

bool splits_backward(const Schedule& schedule) {
    return std::ranges::any_of(schedule.ranks, [](const Row& row) {
        return std::ranges::find(row, Op::BackwardInput, &Action::op) != row.end();
    });
}

Schedule split_backward(Schedule schedule) {
    for (Row& row : schedule.ranks) {
        Row result;
        for (std::size_t cell = 0; cell < row.size(); ++cell) {
            const bool paired = row[cell].with_next || (cell > 0 && row[cell - 1].with_next);
            if (row[cell].op == Op::Backward && !paired) {
                result.push_back(with_op(row[cell], Op::BackwardInput));
                result.push_back(with_op(row[cell], Op::BackwardWeight));
            } else {
                result.push_back(row[cell]);
            }
        }
        row = std::move(result);
    }
    return schedule;
}

Schedule compute_only(Schedule schedule) {
    for (Row& row : schedule.ranks) {
        std::erase_if(row,
                      [](const Action& a) { return !is_compute(a.op) || a.op == Op::Recompute; });
    }
    return schedule;
}

namespace {

bool has_any(const Schedule& schedule, Op op) {
    return std::ranges::any_of(schedule.ranks, [op](const Row& row) {
        return std::ranges::any_of(row, [op](const Action& a) { return a.op == op; });
    });
}

Schedule lower_recompute(Schedule schedule, const RecomputeRules& wanted, std::string_view place) {
    const std::optional<RecomputeRules> own = recompute_of(schedule);
    if (!own) {
        throw Error(ErrorKind::Infeasible,
                    std::string(place),
                    "some micro-batches of a stage are recomputed and others are not",
                    "recompute all of a stage's, all but the last, or none");
    }
    if (*own == Recompute::None) {
        return add_recompute(std::move(schedule), wanted);
    }
    if (wanted != Recompute::None && wanted.at(schedule.micro_batches) != *own) {
        throw Error(
            ErrorKind::Infeasible,
            std::string(place),
            fmt::format(
                "the rows recompute already: {}, not {}", to_string(*own), to_string(wanted)),
            "leave 'recompute' out");
    }
    return schedule;
}

Schedule lower_messages(Schedule schedule, const Lowering& how) {
    if (has_communication(schedule)) {
        return schedule;
    }
    schedule = add_communication(std::move(schedule), how.timing);
    if (how.queues == MessageQueues::PerRanks) {
        return receive_in_order_of_sends(std::move(schedule));
    }
    if (how.messages != MessageOrder::AsScheduled) {
        schedule = lower_rank_receives_first(std::move(schedule));
    }
    return schedule;
}

}  // namespace

Schedule lower(Schedule schedule, const Lowering& how, std::string_view place) {
    const bool backward = !is_forward_only(schedule);
    schedule = lower_recompute(
        std::move(schedule), backward ? how.recompute : RecomputeRules(Recompute::None), place);
    const bool updates = how.updates && backward && !has_any(schedule, Op::Optimizer);
    if (updates && !has_any(schedule, Op::ReduceGradient)) {
        schedule = add_reduction(std::move(schedule),
                                 how.replicas);  // before the messages, which then go first
    }
    schedule = lower_messages(std::move(schedule), how);
    if (updates) {
        schedule = add_optimizer(std::move(schedule), how.norms);
    }
    return schedule;
}

}  // namespace pipetwin
