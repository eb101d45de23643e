#include "core/lower.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "core/error.h"

namespace pipetwin {

std::string_view to_string(Recompute recompute) {
    switch (recompute) {
        case Recompute::None:
            return "none";
        case Recompute::Always:
            return "always";
        case Recompute::ExceptLast:
            return "except-last";
    }
    PIPETWIN_EXPECT(false, "recompute mode out of range");
}

std::string_view to_string(RecomputeTiming timing) {
    switch (timing) {
        case RecomputeTiming::Eager:
            return "eager";
        case RecomputeTiming::Lazy:
            return "lazy";
    }
    PIPETWIN_EXPECT(false, "recompute timing out of range");
}

namespace {

using Row = std::vector<Action>;

/// Rebuilds a row group by group: an action alone, or a pair issued together. What is needed goes
/// before the whole group and what follows goes behind it, so a pair is never torn apart.
///
/// `before` and `after` are called with each action of a group and the row to append to.
template <class Before, class After>
Row rebuild(const Row& row, Before before, After after) {
    Row result;
    result.reserve(row.size());
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
    return action;
}

}  // namespace

bool recomputes(Recompute recompute, int micro_batch, int micro_batches) {
    return recompute == Recompute::Always ||
           (recompute == Recompute::ExceptLast && micro_batch != micro_batches - 1);
}

std::optional<Recompute> recompute_of(const Schedule& schedule) {
    const int last = schedule.micro_batches - 1;
    std::int64_t all = 0;
    std::int64_t of_last = 0;
    for (const Row& row : schedule.ranks) {
        for (const Action& action : row) {
            if (action.op == Op::Recompute) {
                ++all;
                of_last += action.micro_batch == last ? 1 : 0;
            }
        }
    }
    if (all == 0) {
        return Recompute::None;
    }
    const std::int64_t pieces = piece_count(schedule);  // each micro-batch goes through each once
    if (all == pieces * schedule.micro_batches) {
        return Recompute::Always;
    }
    if (all == pieces * last && of_last == 0) {
        return Recompute::ExceptLast;
    }
    return std::nullopt;
}

bool exchanges(const Schedule& schedule, int boundary) {
    if (boundary < 0 || !has_next_stage(schedule, boundary)) {
        return false;
    }
    const auto left = static_cast<std::size_t>(boundary);
    return schedule.rank_of_stage[left] != schedule.rank_of_stage[left + 1];
}

bool has_communication(const Schedule& schedule) {
    return std::ranges::any_of(schedule.ranks, [](const Row& row) {
        return std::ranges::any_of(
            row, [](const Action& a) { return is_send(a.op) || is_receive(a.op); });
    });
}

Schedule add_recompute(Schedule schedule, Recompute recompute) {
    if (recompute == Recompute::None) {
        return schedule;
    }
    const auto before = [&](const Action& action, Row& row) {
        if (starts_backward(action) &&
            recomputes(recompute, action.micro_batch, schedule.micro_batches)) {
            row.push_back(with_op(action, Op::Recompute));
        }
    };
    for (Row& row : schedule.ranks) {
        row = rebuild(row, before, nothing);
    }
    return schedule;
}

Schedule add_communication(Schedule schedule, RecomputeTiming timing) {
    // Lazy: a recompute takes over the receive of its backward. (stage, micro-batch) of the row
    // being rebuilt.
    std::set<std::pair<int, int>> recomputed;
    const auto needs_gradient = [&](const Action& action) {
        return recomputed.contains({action.stage, action.micro_batch}) ? action.op == Op::Recompute
                                                                       : starts_backward(action);
    };
    const auto before = [&](const Action& action, Row& row) {
        if (action.op == Op::Forward && exchanges(schedule, action.stage - 1)) {
            row.push_back(with_op(action, Op::RecvForward));
        }
        if (needs_gradient(action) && exchanges(schedule, action.stage)) {
            row.push_back(with_op(action, Op::RecvBackward));
        }
    };
    const auto after = [&](const Action& action, Row& row) {
        if (action.op == Op::Forward && exchanges(schedule, action.stage)) {
            row.push_back(with_op(action, Op::SendForward));
        }
        if (starts_backward(action) && exchanges(schedule, action.stage - 1)) {
            row.push_back(with_op(action, Op::SendBackward));
        }
    };
    for (Row& row : schedule.ranks) {
        recomputed.clear();
        for (const Action& action : row) {
            if (action.op == Op::Recompute && timing == RecomputeTiming::Lazy) {
                recomputed.emplace(action.stage, action.micro_batch);
            }
        }
        row = rebuild(row, before, after);
    }
    return schedule;
}

Schedule add_reduction(Schedule schedule) {
    if (piece_count(schedule) == schedule.stage_count()) {
        return schedule;
    }
    for (Row& row : schedule.ranks) {
        std::map<int, Action> last;  // of each stage: the action that completes its gradients
        for (const Action& action : row) {
            if (completes_gradient(action)) {
                last[action.stage] = action;
            }
        }
        row = rebuild(row, nothing, [&last](const Action& action, Row& result) {
            if (completes_gradient(action) && action == last.at(action.stage)) {
                result.push_back({.op = Op::ReduceGradient, .stage = action.stage});
            }
        });
    }
    return schedule;
}

Schedule add_optimizer(Schedule schedule) {
    for (int stage = 0; stage < schedule.stage_count(); ++stage) {
        const int rank = schedule.rank_of_stage[static_cast<std::size_t>(stage)];
        PIPETWIN_EXPECT(rank >= 0 && rank < schedule.rank_count(), "stage on no rank");
        schedule.ranks[static_cast<std::size_t>(rank)].push_back(
            {.op = Op::Optimizer, .stage = stage});
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

}  // namespace pipetwin
