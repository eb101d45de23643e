// SPDX-License-Identifier: Apache-2.0
#include "core/interop/traces/torch_timeline.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "core/base/as_index.h"
#include "core/base/error.h"
#include "core/base/number_text.h"
#include "core/interop/traces/message_times.h"
#include "core/interop/traces/rank_steps.h"

namespace pipetwin {

namespace {

constexpr int most_ranks = 4096;

using Row = std::vector<Span>;

std::string and_more(const Action& first, std::size_t count) {
    return count == 1 ? to_string(first)
                      : fmt::format("{} and {} more", to_string(first), count - 1);
}

/// Traces in the place of their rank.
std::vector<TorchTrace> by_rank(std::vector<TorchTrace> traces,
                                std::vector<std::string>& problems) {
    std::map<int, TorchTrace> placed;
    for (TorchTrace& trace : traces) {
        int rank = 0;
        if (trace.rank) {
            rank = *trace.rank;
        } else {
            while (placed.contains(rank)) {
                ++rank;
            }
        }
        if (rank >= most_ranks) {
            throw Error(
                ErrorKind::BadInput,
                "",
                fmt::format("a trace of rank {}, expected one below {}", rank, most_ranks),
                "distributedInfo.rank of the trace says which rank it is: correct it there");
        }
        if (trace.overlapped_pairs > 0) {
            problems.push_back(fmt::format(
                "rank {}: left out: {}, as of two actions issued together none has its own time",
                rank,
                counted(trace.overlapped_pairs, "overlapped pair")));
        }
        if (!placed.emplace(rank, std::move(trace)).second) {
            problems.push_back(
                fmt::format("two traces are of rank {}: the second one is left out", rank));
        }
    }
    std::vector<TorchTrace> all(static_cast<std::size_t>(placed.rbegin()->first) + 1);
    int position = 0;
    for (auto& [rank, trace] : placed) {
        set_own_stage(trace, position++);
        for (const std::string& note : trace.notes) {
            problems.push_back(fmt::format("rank {}: {}", rank, note));
        }
        if (trace.spans.empty()) {
            throw Error(
                ErrorKind::BadInput,
                "",
                fmt::format("the trace of rank {} does not say when its actions began", rank),
                "record ranges with \"ts\", named as actions: PP:0F3");
        }
        all[as_index(rank)] = std::move(trace);
    }
    for (std::size_t rank = 0; rank < all.size(); ++rank) {
        if (all[rank].spans.empty()) {
            problems.push_back(fmt::format("there is no trace of rank {}", rank));
        }
    }
    return all;
}

/// The spans of a step in the cells of a row.
struct Fitted {
    Row row;
    std::vector<std::size_t> lacking;  ///< cells without a span; they take no time
    std::vector<Action> beyond;        ///< spans without a cell
    std::string disorder;              ///< the first two actions that ran the other way round
};

Fitted fit(const Row& step, const std::vector<Action>& cells) {
    Fitted fitted;
    std::map<Action, const Span*> left;
    for (const Span& span : step) {
        left.emplace(span.action, &span);
    }
    const Span* before = nullptr;
    for (std::size_t place = 0; place < cells.size(); ++place) {
        const Action& cell = cells[place];
        Action plain = cell;
        plain.with_next = false;
        const auto found = left.find(plain);
        if (found == left.end()) {
            const Duration time = before != nullptr ? before->end
                                  : step.empty()    ? Duration{}
                                                    : step.front().begin;
            fitted.lacking.push_back(place);
            fitted.row.push_back({.action = cell, .begin = time, .ready = time, .end = time});
            continue;
        }
        const Span& span = *found->second;
        const bool counts = !is_message(span.action.op);  // a message has its time where it fits
        if (counts && before != nullptr && span.begin < before->begin && fitted.disorder.empty()) {
            fitted.disorder =
                fmt::format("{} before {}", to_string(span.action), to_string(before->action));
        }
        before = counts ? &span : before;
        fitted.row.push_back(span);
        fitted.row.back().action = cell;
        left.erase(found);
    }
    for (const auto& [action, span] : left) {
        fitted.beyond.push_back(action);
    }
    make_room_for_compute(fitted.row);
    return fitted;
}

std::vector<Action> actions_of(const Row& step) {
    std::vector<Action> actions;
    for (const Span& span : step) {
        actions.push_back(span.action);
    }
    return actions;
}

class Merger {
  public:
    Merger(std::vector<TorchTrace> traces, const Schedule* plan) {
        std::vector<std::vector<RankStep>> ranks;
        bool on_gpu = false;
        for (const TorchTrace& trace : by_rank(std::move(traces), result_.problems)) {
            ranks.push_back(rank_steps(trace, static_cast<int>(ranks.size()), result_.problems));
            on_gpu = on_gpu || trace.on_gpu;
        }
        keep_common_steps(ranks, result_.problems);
        MessageTimes messages(ranks, on_gpu);
        messages.align_clocks(result_.problems);
        result_.transfers = messages.tell_waits();
        for (const std::vector<RankStep>& steps : ranks) {
            std::vector<Row>& rows = steps_.emplace_back();
            for (const RankStep& step : steps) {
                rows.push_back(with_messages(step));
            }
            count_ = std::max(count_, rows.size());
        }
        result_.fits_plan = plan != nullptr && fits(*plan);
        if (result_.fits_plan) {
            result_.trace.schedule = *plan;
        } else {
            result_.unfit.clear();
            lay_out_own_rows();
        }
    }

    TorchTimeline take() {
        for (std::size_t step = 0; step < count_; ++step) {
            add_step(step);
        }
        if (result_.trace.timelines.steps.empty()) {
            throw Error(ErrorKind::BadInput,
                        "",
                        "the traces have no whole step in common",
                        "record all ranks at the same time, at least one whole step");
        }
        result_.trace.schedule_name = "of a PyTorch trace";
        return std::move(result_);
    }

  private:
    Schedule& schedule() { return result_.trace.schedule; }

    /// Whether the first steps can stand in the plan's rows; says what differs.
    bool fits(const Schedule& plan) {
        std::vector<std::string>& differences = result_.differences;
        if (plan.ranks.size() < steps_.size()) {
            differences.push_back(fmt::format("the traces have {}, the plan {}",
                                              counted(steps_.size(), "rank"),
                                              plan.ranks.size()));
            return false;
        }
        for (std::size_t rank = steps_.size(); rank < plan.ranks.size(); ++rank) {
            differences.push_back(fmt::format("there is no trace of rank {}", rank));
        }
        steps_.resize(plan.ranks.size());
        result_.unfit.resize(plan.ranks.size());
        for (std::size_t rank = 0; rank < steps_.size(); ++rank) {
            UnfitActions& unfit = result_.unfit[rank];
            const std::vector<Action>& cells = plan.ranks[rank];
            unfit.has_trace = !steps_[rank].empty();
            if (!unfit.has_trace) {
                for (std::size_t cell = 0; cell < cells.size(); ++cell) {
                    unfit.lacking.push_back(cell);
                }
                continue;
            }
            const Row& first = steps_[rank].front();
            const Fitted fitted = fit(first, cells);
            if (!fitted.disorder.empty()) {
                differences.push_back(
                    fmt::format("rank {} ran {}, the plan lists them the other way round",
                                rank,
                                fitted.disorder));
                return false;
            }
            if (!fitted.beyond.empty()) {
                differences.push_back(
                    fmt::format("rank {}: the trace contains {}, the plan does not",
                                rank,
                                and_more(fitted.beyond.front(), fitted.beyond.size())));
            }
            if (fitted.beyond.size() == first.size()) {
                return false;
            }
            if (!fitted.lacking.empty()) {
                differences.push_back(
                    fmt::format("rank {}: the plan contains {}, the trace does not",
                                rank,
                                and_more(cells[fitted.lacking.front()], fitted.lacking.size())));
            }
            unfit.lacking = fitted.lacking;
            unfit.beyond = fitted.beyond;
        }
        return true;
    }

    void lay_out_own_rows() {
        Schedule& own = schedule();
        for (std::size_t rank = 0; rank < steps_.size(); ++rank) {
            own.ranks.push_back(steps_[rank].empty() ? std::vector<Action>{}
                                                     : actions_of(steps_[rank].front()));
            for (const Action& action : own.ranks.back()) {
                const std::size_t stage = as_index(action.stage);
                while (own.rank_of_stage.size() <= stage) {
                    own.weights_of_stage.push_back(own.stage_count());
                    own.rank_of_stage.push_back(0);
                }
                own.rank_of_stage[stage] = static_cast<int>(rank);
                own.micro_batches = std::max(own.micro_batches, action.micro_batch + 1);
            }
        }
    }

    void add_step(std::size_t number) {
        Timeline step;
        step.origin = Origin::Measured;
        std::optional<Duration> begin;
        for (std::size_t rank = 0; rank < schedule().ranks.size(); ++rank) {
            const bool has_trace = rank < steps_.size() && !steps_[rank].empty();
            const Row nothing;
            const Row& spans =
                has_trace && number < steps_[rank].size() ? steps_[rank][number] : nothing;
            Fitted fitted = fit(spans, schedule().ranks[rank]);
            if (has_trace && spans.size() != steps_[rank].front().size()) {
                leave_out(number, rank, "has other actions than the first one");
                return;
            }
            if (!fitted.disorder.empty()) {
                leave_out(number, rank, "ran " + fitted.disorder);
                return;
            }
            if (!spans.empty()) {
                begin = std::min(begin.value_or(spans.front().begin), spans.front().begin);
            }
            step.ranks.push_back(std::move(fitted.row));
        }
        for (Row& row : step.ranks) {
            move_to(row, begin.value_or(Duration{}));
        }
        result_.trace.timelines.steps.push_back(std::move(step));
    }

    /// Rows without any trace stay at 0.
    static void move_to(Row& row, Duration begin) {
        for (Span& span : row) {
            for (Duration* const time : {&span.begin, &span.ready, &span.end}) {
                *time = std::max(*time - begin, Duration{});
            }
        }
    }

    void leave_out(std::size_t step, std::size_t rank, const std::string& why) {
        result_.problems.push_back(
            fmt::format("step {} is left out: on rank {} it {}", step, rank, why));
    }

    TorchTimeline result_;
    std::vector<std::vector<Row>> steps_;  ///< [rank][step]
    std::size_t count_ = 0;
};

}  // namespace

TorchTimeline torch_timeline(std::vector<TorchTrace> ranks, const Schedule* plan) {
    PIPETWIN_EXPECT(!ranks.empty(), "at least one trace");
    return Merger(std::move(ranks), plan).take();
}

}  // namespace pipetwin
