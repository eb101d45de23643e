// SPDX-License-Identifier: Apache-2.0
#include "core/interop/traces/beside_plan.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/base/as_index.h"
#include "core/base/error.h"
#include "core/base/median.h"
#include "core/base/number_text.h"
#include "core/interop/traces/torch_timeline.h"

namespace pipetwin {

namespace {

using std::string_view;

constexpr string_view name_the_plan =
    "predict the schedule that ran, with its stages and micro-batches: pipeline.schedule of a "
    "scenario, or 'pipetwin simulate --schedule-file' for rows of your own";

[[noreturn]] void refuse_other_plan(string_view place, std::string what) {
    throw Error(
        ErrorKind::BadInput, std::string(place), std::move(what), std::string(name_the_plan));
}

/// The plan's rank of a trace whose ranges name their stages; none where they do not, or the plan
/// has no such stage.
std::optional<int> rank_by_stage(const TorchTrace& trace, const Schedule& plan) {
    for (const auto& [stage, times] : trace.stages) {
        if (stage >= 0 && stage < plan.stage_count()) {
            return plan.rank_of_stage[as_index(stage)];
        }
    }
    return std::nullopt;
}

/// Makes the stage that a trace does not name the only one of its rank in the plan.
void name_own_stage(TorchTrace& trace, const Schedule& plan, string_view place) {
    if (!trace.stages.contains(own_stage)) {
        return;
    }
    std::vector<int> stages;
    for (int stage = 0; stage < plan.stage_count(); ++stage) {
        if (plan.rank_of_stage[as_index(stage)] == trace.rank) {
            stages.push_back(stage);
        }
    }
    if (stages.size() > 1) {
        throw Error(
            ErrorKind::BadInput,
            std::string(place),
            fmt::format("the traces do not name stages, and the plan has {} of them on rank "
                        "{}",
                        stages.size(),
                        *trace.rank),
            "name the ranges of each action: 'with torch.profiler.record_function("
            "\"PP:0F3\")' (stage, F, B, I or W, micro-batch)");
    }
    if (stages.size() == 1) {
        set_own_stage(trace, stages.front());
    }
}

constexpr string_view one_trace_each =
    "give one trace for each rank of the pipeline: those of one replica, and of one device where "
    "several share a stage";

/// Sorts traces by their places in the pipeline, else by their ranks in the training, where all
/// have them. Throws Error(BadInput) with `place` where two have the same.
void sort_by_rank(std::vector<TorchTrace>& traces, string_view place) {
    for (std::size_t i = 1; i < traces.size(); ++i) {
        for (std::size_t other = 0; other < i; ++other) {
            if (is_same_trace(traces[i], traces[other])) {
                throw Error(ErrorKind::BadInput,
                            std::string(place),
                            fmt::format("traces {} and {} have the same actions at the same times",
                                        other + 1,
                                        i + 1),
                            std::string(one_trace_each));
            }
        }
    }
    const bool have_places = std::ranges::all_of(
        traces, [](const TorchTrace& trace) { return trace.pipeline_rank.has_value(); });
    std::set<int> seen;
    for (TorchTrace& trace : traces) {
        trace.rank = have_places ? trace.pipeline_rank : trace.rank;
        if (trace.rank && !seen.insert(*trace.rank).second) {
            throw Error(ErrorKind::BadInput,
                        std::string(place),
                        fmt::format("two traces are of {}rank {}, expected one of each",
                                    have_places ? "the pipeline's " : "",
                                    *trace.rank),
                        std::string(one_trace_each));
        }
    }
    const bool all_ranks =
        std::ranges::all_of(traces, [](const TorchTrace& trace) { return trace.rank.has_value(); });
    if (all_ranks) {
        std::ranges::stable_sort(traces, {}, [](const TorchTrace& trace) { return *trace.rank; });
    }
}

/// Gives each trace the plan's rank that it is of: by the stages that its ranges name, else by its
/// place among as many traces as the plan has ranks, since a rank of the whole training counts
/// replicas and groups, too.
void number_ranks(std::vector<TorchTrace>& traces, const Schedule& plan, string_view place) {
    std::map<int, std::size_t> taken;  // [rank of the plan]: place of the trace
    bool by_stages = true;
    for (std::size_t i = 0; i < traces.size(); ++i) {
        const std::optional<int> rank = rank_by_stage(traces[i], plan);
        by_stages = by_stages && rank.has_value();
        if (rank && !taken.emplace(*rank, i).second) {
            throw Error(ErrorKind::BadInput,
                        std::string(place),
                        fmt::format("two traces are of the plan's rank {}", *rank),
                        std::string(one_trace_each));
        }
    }
    if (by_stages) {
        for (const auto& [rank, i] : taken) {
            traces[i].rank = rank;
        }
        return;
    }
    sort_by_rank(traces, place);
    for (std::size_t i = 0; i < traces.size(); ++i) {
        const bool is_whole = std::ssize(traces) == plan.rank_count();
        traces[i].rank =
            is_whole ? static_cast<int>(i) : traces[i].rank.value_or(static_cast<int>(i));
        name_own_stage(traces[i], plan, place);
    }
}

/// Cells of one row of the plan that are left out on both sides.
using CellsLeftOut = std::set<std::size_t>;

template <class Values>
void erase_cells(Values& values, const CellsLeftOut& left_out) {
    std::size_t cell = 0;
    std::erase_if(values, [&](const auto&) { return left_out.contains(cell++); });
}

/// Adds the time of each R to the B or I of its micro-batch, behind which it ends.
void add_recompute(std::vector<Span>& row) {
    for (const Span& again : row) {
        if (again.action.op != Op::Recompute) {
            continue;
        }
        for (Span& span : row) {
            const bool is_backward =
                span.action.op == Op::Backward || span.action.op == Op::BackwardInput;
            if (is_backward && span.action.stage == again.action.stage &&
                span.action.micro_batch == again.action.micro_batch) {
                span.ready -= again.end - again.ready;
                span.begin = std::min(span.begin, span.ready);
            }
        }
    }
}

/// "SEND_F, RECV_F and OPT".
std::string listed_ops(const std::set<Op>& ops) {
    std::vector<string_view> words;
    for (const Op op : ops) {
        words.push_back(op_text(op));
    }
    if (words.size() == 1) {
        return std::string(words.front());
    }
    const string_view last = words.back();
    words.pop_back();
    return fmt::format("{} and {}", fmt::join(words, ", "), last);
}

/// Finds what is left out, and refuses traces of another plan.
class CommonRows {
  public:
    CommonRows(const Schedule& plan, const TorchTimeline& found, string_view place)
        : plan_(plan), found_(found), place_(place) {
        if (!found.fits_plan) {
            refuse_other_plan(place,
                              "the traces are not those of this plan: " + found.differences.back());
        }
        for (std::size_t rank = 0; rank < plan.ranks.size(); ++rank) {
            left_out_.push_back(cells_of_rank(rank));
        }
    }

    /// What both sides lack, in sentences.
    std::vector<std::string> notes() const {
        std::vector<std::string> notes;
        if (!ops_.empty()) {
            notes.push_back(fmt::format("left out on both sides, as the traces do not show it: {}",
                                        listed_ops(ops_)));
        }
        if (ops_.contains(Op::Recompute)) {
            notes.emplace_back("a predicted R counts in its B or I, as a trace has it");
        }
        return notes;
    }

    void apply(TimelineSet& side) const {
        for (Timeline& step : side.steps) {
            for (std::size_t rank = 0; rank < left_out_.size(); ++rank) {
                if (ops_.contains(Op::Recompute)) {
                    add_recompute(step.ranks[rank]);
                }
                erase_cells(step.ranks[rank], left_out_[rank]);
                if (rank < step.in_groups.size()) {
                    erase_cells(step.in_groups[rank], left_out_[rank]);
                }
            }
            step.links.clear();
            step.host_copies.clear();
            step.replicas.clear();
            step = aligned(std::move(step));
        }
    }

  private:
    CellsLeftOut cells_of_rank(std::size_t rank) {
        const std::vector<Action>& row = plan_.ranks[rank];
        const UnfitActions& unfit = found_.unfit[rank];
        CellsLeftOut cells(unfit.lacking.begin(), unfit.lacking.end());
        if (!unfit.has_trace) {
            return cells;
        }
        const auto only_there = std::ranges::find_if(
            unfit.beyond, [](const Action& action) { return is_cost(action.op); });
        if (only_there != unfit.beyond.end()) {
            refuse_other_plan(place_,
                              fmt::format("rank {}: the trace contains {}, the plan does not",
                                          rank,
                                          to_string(*only_there)));
        }
        for (const std::size_t cell : cells) {
            const Op op = row[cell].op;
            if (is_cost(op)) {
                refuse_other_plan(place_,
                                  fmt::format("rank {}: the plan contains {}, the trace does not",
                                              rank,
                                              to_string(row[cell])));
            }
            ops_.insert(op);
        }
        return cells;
    }

    const Schedule& plan_;
    const TorchTimeline& found_;
    string_view place_;
    std::vector<CellsLeftOut> left_out_;  ///< [rank]
    std::set<Op> ops_;                    ///< of ranks with a trace
};

/// An action without what a plan alone knows of it.
Action plain_action_of(Action action) {
    action.with_next = false;
    return action;
}

/// The plan's rows in the order of `ran`, the rows of the traces; what these lack stands last.
Schedule in_order_of(const Schedule& plan, const Schedule& ran) {
    Schedule ordered = plan;
    for (std::size_t rank = 0; rank < std::min(plan.ranks.size(), ran.ranks.size()); ++rank) {
        std::map<Action, std::size_t> places;
        for (std::size_t cell = 0; cell < ran.ranks[rank].size(); ++cell) {
            places.emplace(ran.ranks[rank][cell], cell);
        }
        std::ranges::stable_sort(ordered.ranks[rank], {}, [&](const Action& action) {
            const auto place = places.find(plain_action_of(action));
            return place == places.end() ? places.size() : place->second;
        });
    }
    return ordered;
}

/// Puts the spans of a step, which are in the order of `from`, into that of `to`.
void reorder(Timeline& step, const Schedule& from, const Schedule& to) {
    for (std::size_t rank = 0; rank < step.ranks.size(); ++rank) {
        const std::vector<Span> before = step.ranks[rank];
        const std::vector<Duration> in_groups =
            rank < step.in_groups.size() ? step.in_groups[rank] : std::vector<Duration>{};
        std::map<Action, std::size_t> cells;
        for (std::size_t cell = 0; cell < from.ranks[rank].size(); ++cell) {
            cells.emplace(from.ranks[rank][cell], cell);
        }
        for (std::size_t cell = 0; cell < to.ranks[rank].size(); ++cell) {
            const std::size_t source = cells.at(to.ranks[rank][cell]);
            step.ranks[rank][cell] = before[source];
            if (!in_groups.empty()) {
                step.in_groups[rank][cell] = in_groups[source];
            }
        }
    }
}

/// How long the training loop's own steps took, with what is outside of the pipeline.
std::optional<std::string> loop_note(const std::vector<TorchTrace>& traces) {
    std::vector<Duration> lengths;
    for (const TorchTrace& trace : traces) {
        if (trace.step_lengths.size() > lengths.size()) {
            lengths = trace.step_lengths;
        }
    }
    if (lengths.empty()) {
        return std::nullopt;
    }
    return fmt::format(
        "a step of the training loop took {}, the median of {}: with data, optimizer "
        "and what else is not in the rows",
        format_duration(median(lengths)),
        lengths.size());
}

BesidePlan beside_rows(Trace predicted, std::vector<TorchTrace> ranks, string_view place) {
    number_ranks(ranks, predicted.schedule, place);
    const std::optional<std::string> loop = loop_note(ranks);
    const auto timeline_of = [&](const Schedule& plan) {
        try {
            return torch_timeline(ranks, &plan);
        } catch (const Error& error) {
            throw error.place().empty() ? error.at(std::string(place)) : error;
        }
    };
    TorchTimeline found = timeline_of(predicted.schedule);
    std::optional<std::string> other_order;
    if (!found.fits_plan) {
        other_order = found.differences.empty() ? "" : found.differences.back();
        const Schedule ran = in_order_of(predicted.schedule, found.trace.schedule);
        for (Timeline& step : predicted.timelines.steps) {
            reorder(step, predicted.schedule, ran);
        }
        predicted.schedule = ran;
        found = timeline_of(ran);
    }
    const CommonRows rows(predicted.schedule, found, place);
    BesidePlan both{.predicted = std::move(predicted), .measured = std::move(found.trace)};
    rows.apply(both.predicted.timelines);
    rows.apply(both.measured.timelines);
    both.notes = std::move(found.problems);
    if (other_order) {
        both.notes.push_back(
            "the run had another order than the plan, which is in the errors, too: " +
            *other_order);
    }
    const std::vector<std::string> common = rows.notes();
    both.notes.insert(both.notes.end(), common.begin(), common.end());
    if (loop) {
        both.notes.push_back(*loop);
    }
    return both;
}

}  // namespace

BesidePlan beside_plan(Trace predicted, std::vector<TorchTrace> ranks, string_view place) {
    std::string cut;
    for (const TorchTrace& trace : ranks) {
        cut = cut.empty() ? trace.cut : cut;
    }
    try {
        return beside_rows(std::move(predicted), std::move(ranks), place);
    } catch (const Error& error) {
        if (cut.empty()) {
            throw;
        }
        throw error.with_text(fmt::format("{}; {}", error.text(), cut));
    }
}

}  // namespace pipetwin
