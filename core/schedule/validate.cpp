// SPDX-License-Identifier: Apache-2.0
#include "core/schedule/validate.h"

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <ranges>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "core/base/as_index.h"
#include "core/base/number_text.h"
#include "core/schedule/edge.h"
#include "core/schedule/lower.h"
#include "core/schedule/slips.h"

namespace pipetwin {

namespace {

constexpr int missing = -1;

/// Places of the actions of one stage in the row of its rank.
class StageCells {
  public:
    /// Cell of the action, or `missing`. Actions without a micro-batch are asked for with 0.
    int at(Op op, int micro_batch, int hop = 0) const {
        const Kind* const kind = of(op, hop);
        const std::size_t position = as_index(micro_batch);
        return kind != nullptr && position < kind->cells.size() ? kind->cells[position] : missing;
    }
    bool has(Op op, int micro_batch, int hop = 0) const {
        return at(op, micro_batch, hop) != missing;
    }

    void put(const Action& action, int cell) {
        Kind& kind =
            action.hop == 0 ? kinds_[as_index(action.op)] : skips_[{action.op, action.hop}];
        const std::size_t position = as_index(action.micro_batch);
        if (position >= kind.cells.size()) {
            kind.cells.resize(position + 1, missing);
        }
        kind.cells[position] = cell;
        if (is_message(action.op)) {
            kind.messages.push_back(action.micro_batch);
        }
    }

    /// Micro-batches of the stage's sends or receives of one kind, as they follow in the row.
    const std::vector<int>& messages(Op op, int hop) const {
        static const std::vector<int> none;
        const Kind* const kind = of(op, hop);
        return kind != nullptr ? kind->messages : none;
    }

  private:
    struct Kind {
        std::vector<int> cells;     ///< [micro-batch]
        std::vector<int> messages;  ///< micro-batches, as they follow in the row
    };

    const Kind* of(Op op, int hop) const {
        if (hop == 0) {
            return &kinds_[as_index(op)];
        }
        const auto found = skips_.find({op, hop});
        return found == skips_.end() ? nullptr : &found->second;
    }

    std::array<Kind, op_count> kinds_;          ///< [op]
    std::map<std::pair<Op, int>, Kind> skips_;  ///< skip messages, by op and hop
};

/// The schedule and its index that every rule reads, and the list to which it adds what it finds.
struct Inspection {
    const Schedule& schedule;
    MessageQueues queues = MessageQueues::PerStages;
    bool lowered = false;       ///< it has sends and receives, so it must have all of them
    bool forward_only = false;  ///< it has no backward, so it needs none
    /// Two pipelines of one model: the stage that does the same in the other one; else `missing`.
    std::vector<int> twins{};
    std::vector<StageCells> stages{};
    std::vector<Violation> found{};

    int rank_of(int stage) const { return schedule.rank_of_stage[as_index(stage)]; }
    const StageCells& cells(int stage) const { return stages[as_index(stage)]; }

    /// Any compute of the micro-batch stands on the stage.
    bool works_on(int stage, int k) const {
        const StageCells& own = cells(stage);
        return own.has(Op::Forward, k) || own.has(Op::Backward, k) ||
               own.has(Op::BackwardInput, k) || own.has(Op::BackwardWeight, k);
    }
    /// Every micro-batch goes through every stage; where there are two pipelines, through one of
    /// them.
    bool needs(int stage, int k) const {
        const int twin = twins[as_index(stage)];
        return twin == missing || works_on(stage, k) || (!works_on(twin, k) && stage < twin);
    }

    void report(int rank, int cell, const Action& action, std::string why) {
        found.push_back({rank, cell, to_string(action), std::move(why)});
    }
    void report(int rank, std::string why) { found.push_back({rank, missing, "", std::move(why)}); }
};

/// May occur more than once for one stage.
bool is_repeatable(Op op) {
    return op == Op::Unshard || op == Op::Reshard;
}

// --- The frame: without it the other rules have nothing to stand on. ---

void check_sizes(Inspection& in) {
    const Schedule& schedule = in.schedule;
    if (schedule.ranks.empty() || schedule.rank_of_stage.empty() || schedule.micro_batches < 1) {
        in.report(missing,
                  fmt::format("{}, {}, {}: at least one of each is needed",
                              counted(schedule.rank_count(), "rank"),
                              counted(schedule.stage_count(), "stage"),
                              counted(schedule.micro_batches, "micro-batch")));
        return;
    }
    const std::int64_t pairs = std::int64_t{schedule.stage_count()} * schedule.micro_batches;
    std::int64_t actions = 0;
    for (const auto& row : schedule.ranks) {
        actions += std::ranges::count_if(
            row, [](const Action& action) { return !is_repeatable(action.op); });
    }
    // A few cells can name a stage and a micro-batch between which lie millions, and millions of
    // cells can be one action: saying so once is better than listing what is missing or doubled.
    constexpr std::int64_t worth_listing = 100'000;
    const auto& weights = schedule.weights_of_stage;
    const bool two_pipelines = !weights.empty() && weights.back() + 1 < schedule.stage_count();
    const std::int64_t needed = (in.forward_only ? 1 : 2) * (two_pipelines ? pairs / 2 : pairs);
    if (pairs > worth_listing && actions < needed) {
        in.report(missing,
                  fmt::format("{}, but {} x {} need at least {}",
                              counted(actions, "action"),
                              counted(schedule.stage_count(), "stage"),
                              counted(schedule.micro_batches, "micro-batch"),
                              needed));
    }
    const std::int64_t most =
        largest_actions_per_pair * pairs + 2 * schedule.stage_count() +
        4 * static_cast<std::int64_t>(schedule.skips.size()) * schedule.micro_batches;
    if (actions > most + worth_listing) {
        in.report(missing,
                  fmt::format("{}, but {} x {} have at most {}",
                              counted(actions, "action"),
                              counted(schedule.stage_count(), "stage"),
                              counted(schedule.micro_batches, "micro-batch"),
                              most));
    }
}

void check_placement(Inspection& in) {
    const Schedule& schedule = in.schedule;
    std::set<int> used;
    for (int stage = 0; stage < schedule.stage_count(); ++stage) {
        const int rank = in.rank_of(stage);
        used.insert(rank);
        if (rank < 0 || rank >= schedule.rank_count()) {
            in.report(
                missing,
                fmt::format("stage {} is on no rank; stages count from 0 without gaps", stage));
            in.found.back().mend = fmt::format("give stage {} to a rank", stage);
        }
    }
    for (int rank = 0; rank < schedule.rank_count(); ++rank) {
        if (!used.contains(rank)) {
            in.report(rank, fmt::format("rank {} has no stage", rank));
        }
    }
}

/// Every stage uses its own weights; or there are two pipelines, and each stage of the second uses
/// those of the first.
void check_weights(Inspection& in) {
    const auto& weights = in.schedule.weights_of_stage;
    const std::size_t stages = in.schedule.rank_of_stage.size();
    const auto counts_up = [&weights](std::size_t begin, std::size_t end) {
        for (std::size_t stage = begin; stage < end; ++stage) {
            if (weights[stage] != static_cast<int>(stage - begin)) {
                return false;
            }
        }
        return true;
    };
    in.twins.assign(stages, missing);
    if (weights.size() == stages && counts_up(0, stages)) {
        return;
    }
    const std::size_t half = stages / 2;
    if (weights.size() != stages || stages % 2 != 0 || !counts_up(0, half) ||
        !counts_up(half, stages)) {
        in.report(missing,
                  "every stage must use its own weights, or those of the first pipeline's stage");
        return;
    }
    for (std::size_t stage = 0; stage < half; ++stage) {
        in.twins[stage] = static_cast<int>(stage + half);
        in.twins[stage + half] = static_cast<int>(stage);
    }
}

/// Skips lead between two stages of one pipeline that are no neighbours and live on two ranks.
/// Returns whether messages can be looked up in them.
bool check_skips(Inspection& in) {
    const Schedule& schedule = in.schedule;
    bool usable = true;
    const auto report = [&in](const StagePair& skip, std::string_view why) {
        in.report(missing, fmt::format("a skip from stage {} to {}: {}", skip.from, skip.to, why));
    };
    for (const StagePair& skip : schedule.skips) {
        if (skip.from < 0 || skip.to >= schedule.stage_count() || distance(skip) < 2 ||
            distance(skip) > largest_hop + 1) {
            report(skip,
                   "it must pass over at least one stage, from an earlier stage to a later one of "
                   "the schedule");
            usable = false;
        } else if (in.rank_of(skip.from) == in.rank_of(skip.to)) {
            report(skip, "both are on one rank, where nothing is sent");
        } else if (const int twin = in.twins[as_index(skip.from)];
                   twin != missing &&
                   (skip.from < twin) != (skip.to < in.twins[as_index(skip.to)])) {
            report(skip, "they belong to two pipelines");
        }
    }
    if (std::ranges::adjacent_find(schedule.skips, std::ranges::greater_equal{}) !=
        schedule.skips.end()) {
        in.report(missing, "the skips must be in order, each once");
        usable = false;
    }
    return usable;
}

// --- Single cells: a first look at every action, which fills the index of the others. ---

std::optional<std::string> out_of_range(const Schedule& schedule, const Action& action) {
    if (action.stage < 0 || action.stage >= schedule.stage_count()) {
        return fmt::format("is of stage {}, which is out of range: the schedule has 0 to {}",
                           action.stage,
                           schedule.stage_count() - 1);
    }
    if (action.micro_batch < 0 || action.micro_batch >= schedule.micro_batches) {
        return fmt::format("is of micro-batch {}, which is out of range: the schedule has 0 to {}",
                           action.micro_batch,
                           schedule.micro_batches - 1);
    }
    if (action.hop != 0 && (!is_message(action.op) || !has_edge(schedule, action))) {
        return fmt::format(
            "goes from stage {} to {}, which are not neighbours, and no skip connects them",
            stages_of(action).from,
            stages_of(action).to);
    }
    if (!has_micro_batch(action.op) && action.micro_batch != 0) {
        return fmt::format("concerns the stage as a whole, but names micro-batch {}; leave it at 0",
                           action.micro_batch);
    }
    return std::nullopt;
}

void check_cell(Inspection& in, int rank, int cell, const Action& action) {
    if (auto why = out_of_range(in.schedule, action)) {
        in.report(rank, cell, action, std::move(*why));
        return;
    }
    if (in.rank_of(action.stage) != rank) {
        in.report(
            rank,
            cell,
            action,
            fmt::format("is of stage {}, which is on rank {}; a stage lives on exactly one rank",
                        action.stage,
                        in.rank_of(action.stage)));
        return;
    }
    if (in.cells(action.stage).has(action.op, action.micro_batch, action.hop) &&
        !is_repeatable(action.op)) {
        const int first = in.cells(action.stage).at(action.op, action.micro_batch, action.hop);
        in.report(rank,
                  cell,
                  action,
                  fmt::format("is in cells {} and {}; every action occurs once", first, cell));
        in.found.back().second_cell = first;
        return;
    }
    in.stages[as_index(action.stage)].put(action, cell);
}

void check_cells(Inspection& in) {
    in.stages.resize(in.schedule.rank_of_stage.size());
    for (int rank = 0; rank < in.schedule.rank_count(); ++rank) {
        const auto& row = in.schedule.ranks[as_index(rank)];
        for (std::size_t cell = 0; cell < row.size(); ++cell) {
            check_cell(in, rank, static_cast<int>(cell), row[cell]);
        }
    }
}

/// An overlapped pair is a forward and a backward that do not depend on each other.
void check_pairs(Inspection& in) {
    const auto is_backward = [](Op op) { return op == Op::Backward || op == Op::BackwardInput; };
    for (int rank = 0; rank < in.schedule.rank_count(); ++rank) {
        const auto& row = in.schedule.ranks[as_index(rank)];
        for (std::size_t cell = 0; cell < row.size(); ++cell) {
            if (!row[cell].with_next) {
                continue;
            }
            const Action& first = row[cell];
            const Action& second = cell + 1 < row.size() ? row[cell + 1] : first;
            const bool forward_and_backward = (first.op == Op::Forward && is_backward(second.op)) ||
                                              (is_backward(first.op) && second.op == Op::Forward);
            const bool dependent =
                first.stage == second.stage && first.micro_batch == second.micro_batch;
            if (!forward_and_backward || dependent || second.with_next) {
                in.report(rank,
                          static_cast<int>(cell),
                          first,
                          "is paired with the next action, but a pair is one forward and one "
                          "backward that do not depend on each other");
            }
        }
    }
}

// --- Completeness of a stage. ---

/// "; 2B0 is in cell 5, 2B2 in cell 9": where the actions before and behind those of micro-batches
/// that are missing, up to `last`, are.
std::string neighbours_text(const StageCells& cells, Action first, int last) {
    std::string text;
    for (const int micro_batch : {first.micro_batch - 1, last + 1}) {
        const int cell = micro_batch < 0 ? missing : cells.at(first.op, micro_batch, first.hop);
        if (cell != missing) {
            first.micro_batch = micro_batch;
            text += fmt::format("{} {} {}in cell {}",
                                text.empty() ? ";" : ",",
                                to_string(first),
                                text.empty() ? "is " : "",
                                cell);
        }
    }
    return text;
}

/// Reports what `needed` lacks, neighbouring micro-batches in one sentence.
template <class Lacks>
void report_missing(Inspection& in, int stage, Op op, Lacks lacks, std::int16_t hop = 0) {
    const auto is_missing = [&](int k) { return in.needs(stage, k) && lacks(k); };
    for (int first = 0; first < in.schedule.micro_batches; ++first) {
        if (!is_missing(first)) {
            continue;
        }
        int last = first;
        while (last + 1 < in.schedule.micro_batches && is_missing(last + 1)) {
            ++last;
        }
        const std::string which = first == last
                                      ? fmt::format("micro-batch {}", first)
                                      : fmt::format("micro-batches {} to {}", first, last);
        const Action action{.op = op, .stage = stage, .micro_batch = first, .hop = hop};
        in.report(in.rank_of(stage),
                  missing,
                  action,
                  fmt::format("is missing: {} of {} on stage {}{}",
                              op_words(op),
                              which,
                              stage,
                              neighbours_text(in.cells(stage), action, last)));
        const Action end{.op = op, .stage = stage, .micro_batch = last, .hop = hop};
        in.found.back().mend = fmt::format("add {}{} to rank {}",
                                           to_string(action),
                                           first == last ? "" : " to " + to_string(end),
                                           in.rank_of(stage));
        first = last;
    }
}

void check_forwards(Inspection& in, int stage) {
    report_missing(
        in, stage, Op::Forward, [&](int k) { return !in.cells(stage).has(Op::Forward, k); });
}

/// One full backward, or both of its parts; never a mixture.
void check_backwards(Inspection& in, int stage) {
    if (in.forward_only) {
        return;
    }
    const StageCells& cells = in.cells(stage);
    const auto whole = [&](int k) { return cells.has(Op::Backward, k); };
    const auto input = [&](int k) { return cells.has(Op::BackwardInput, k); };
    const auto weight = [&](int k) { return cells.has(Op::BackwardWeight, k); };
    const auto none = [&](int k) { return !whole(k) && !input(k) && !weight(k); };
    const auto count = [&](const auto& has) {
        return std::ranges::count_if(std::views::iota(0, in.schedule.micro_batches), has);
    };
    const bool has_parts = count(input) + count(weight) > 2 * count(whole);
    report_missing(in, stage, Op::Backward, [&](int k) { return none(k) && !has_parts; });
    report_missing(in, stage, Op::BackwardInput, [&](int k) {
        return none(k) ? has_parts : !whole(k) && !input(k);
    });
    report_missing(in, stage, Op::BackwardWeight, [&](int k) {
        return none(k) ? has_parts : !whole(k) && !weight(k);
    });
    for (int k = 0; k < in.schedule.micro_batches; ++k) {
        if (whole(k) && has_parts && input(k) != weight(k)) {
            const Action lacking{.op = input(k) ? Op::BackwardWeight : Op::BackwardInput,
                                 .stage = stage,
                                 .micro_batch = k};
            const Op part = input(k) ? Op::BackwardInput : Op::BackwardWeight;
            in.report(in.rank_of(stage),
                      cells.at(Op::Backward, k),
                      {.op = Op::Backward, .stage = stage, .micro_batch = k},
                      fmt::format("is a full backward, but {} in cell {} is a part of one, and the "
                                  "other backwards of stage {} are in two parts",
                                  to_string({.op = part, .stage = stage, .micro_batch = k}),
                                  cells.at(part, k),
                                  stage));
            in.found.back().mend = fmt::format("write {} in rank {}, cell {}",
                                               to_string(lacking),
                                               in.rank_of(stage),
                                               cells.at(Op::Backward, k));
            continue;
        }
        for (const Op part : {Op::BackwardInput, Op::BackwardWeight}) {
            if (whole(k) && cells.has(part, k)) {
                in.report(
                    in.rank_of(stage),
                    cells.at(part, k),
                    {.op = part, .stage = stage, .micro_batch = k},
                    fmt::format("is part of the full backward in cell {}; use one or the other",
                                cells.at(Op::Backward, k)));
            }
        }
    }
}

/// Reports recomputes, reductions and updates of a stage without a backward.
void check_what_serves_a_backward(Inspection& in, int stage) {
    const StageCells& cells = in.cells(stage);
    const auto refuse = [&](Op op, int k) {
        in.report(in.rank_of(stage),
                  cells.at(op, k),
                  {.op = op, .stage = stage, .micro_batch = k},
                  "serves a backward, but there is none");
    };
    for (int k = 0; k < in.schedule.micro_batches; ++k) {
        if (cells.has(Op::Recompute, k) && (in.forward_only || !in.needs(stage, k))) {
            refuse(Op::Recompute, k);
        }
    }
    for (const Op op : {Op::ReduceGradient, Op::GradientNorm, Op::Optimizer}) {
        if (cells.has(op, 0) && in.forward_only) {
            refuse(op, 0);
        }
    }
}

/// With two pipelines, a micro-batch goes through one of them.
void check_one_pipeline(Inspection& in, int stage) {
    const int twin = in.twins[as_index(stage)];
    for (int k = 0; k < in.schedule.micro_batches && stage < twin; ++k) {
        if (in.works_on(stage, k) && in.works_on(twin, k)) {
            in.report(in.rank_of(twin),
                      in.cells(twin).at(Op::Forward, k),
                      {.op = Op::Forward, .stage = twin, .micro_batch = k},
                      fmt::format(
                          "is of micro-batch {}, which goes through stage {} of the other pipeline "
                          "already",
                          k,
                          stage));
        }
    }
}

// --- Order inside a stage. ---

struct Before {
    Op first;
    Op second;
};

/// For one stage and micro-batch: `first` must stand before `second` wherever both occur.
constexpr std::array required_order{
    Before{Op::RecvForward, Op::Forward},
    Before{Op::Forward, Op::SendForward},
    Before{Op::Forward, Op::Recompute},
    Before{Op::Forward, Op::Backward},
    Before{Op::Forward, Op::BackwardInput},
    Before{Op::Forward, Op::BackwardWeight},
    Before{Op::Recompute, Op::Backward},
    Before{Op::Recompute, Op::BackwardInput},
    Before{Op::RecvBackward, Op::Backward},
    Before{Op::RecvBackward, Op::BackwardInput},
    Before{Op::BackwardInput, Op::BackwardWeight},
    Before{Op::Backward, Op::SendBackward},
    Before{Op::BackwardInput, Op::SendBackward},
};

/// `hop` is that of the messages; other actions have none.
void check_order(Inspection& in, int stage, const Before& before, std::int16_t hop) {
    const StageCells& cells = in.cells(stage);
    const auto action = [&](Op op, int k) {
        return Action{.op = op,
                      .stage = stage,
                      .micro_batch = k,
                      .hop = is_message(op) ? hop : std::int16_t{0}};
    };
    for (int k = 0; k < in.schedule.micro_batches; ++k) {
        const Action first = action(before.first, k);
        const Action second = action(before.second, k);
        const int cell_of_first = cells.at(first.op, k, first.hop);
        const int cell_of_second = cells.at(second.op, k, second.hop);
        if (cell_of_first == missing || cell_of_second == missing ||
            cell_of_first < cell_of_second) {
            continue;
        }
        in.report(in.rank_of(stage),
                  cell_of_second,
                  second,
                  fmt::format("comes before {} (cell {}), which must come first",
                              to_string(first),
                              cell_of_first));
    }
}

void check_order(Inspection& in, int stage) {
    for (const Before& before : required_order) {
        check_order(in, stage, before, 0);
        if (!is_message(before.first) && !is_message(before.second)) {
            continue;
        }
        for (const StagePair& skip : in.schedule.skips) {
            const bool to_later =
                leads_to_later_stage(is_message(before.first) ? before.first : before.second);
            if (stage == (to_later ? skip.from : skip.to)) {
                check_order(in, stage, before, static_cast<std::int16_t>(distance(skip) - 1));
            }
        }
    }
}

/// The gradients of all micro-batches are complete before they are reduced and used.
void check_update(Inspection& in, int stage) {
    const StageCells& cells = in.cells(stage);
    int last = missing;
    for (int k = 0; k < in.schedule.micro_batches; ++k) {
        last = std::max({last, cells.at(Op::Backward, k), cells.at(Op::BackwardWeight, k)});
    }
    for (const Op op : {Op::ReduceGradient, Op::GradientNorm, Op::Optimizer}) {
        if (cells.has(op, 0) && cells.at(op, 0) < last) {
            in.report(in.rank_of(stage),
                      cells.at(op, 0),
                      {.op = op, .stage = stage},
                      fmt::format("comes before the stage's last backward (cell {})", last));
        }
        last = std::max(last, cells.at(op, 0));
    }
}

/// All stages are updated or none is; with the gradients of both pipelines, where there are two,
/// and of both ends, where they are tied; with the norms of all gradients or of none.
void check_updates_complete(Inspection& in) {
    const auto updated = [](const StageCells& cells) { return cells.has(Op::Optimizer, 0); };
    const auto has_norm = [](const StageCells& cells) { return cells.has(Op::GradientNorm, 0); };
    if (std::ranges::none_of(in.stages, updated) && std::ranges::none_of(in.stages, has_norm)) {
        return;
    }
    const bool norms = std::ranges::any_of(in.stages, has_norm);
    const int last = in.schedule.stage_count() - 1;
    for (int stage = 0; stage < in.schedule.stage_count(); ++stage) {
        const auto report_missing = [&](Op op, std::string why) {
            in.report(in.rank_of(stage), missing, {.op = op, .stage = stage}, std::move(why));
        };
        if (!updated(in.cells(stage))) {
            report_missing(Op::Optimizer, "is missing: the other stages are updated");
        }
        const int twin = in.twins[as_index(stage)];
        if (twin != missing && !in.cells(stage).has(Op::ReduceGradient, 0)) {
            report_missing(Op::ReduceGradient,
                           fmt::format("is missing: stage {} has the same weights and needs the "
                                       "gradients before its update",
                                       twin));
        }
        const bool tied = in.schedule.tied_ends && last > 0 && (stage == 0 || stage == last);
        if (tied && !in.cells(stage).has(Op::ReduceGradient, 0)) {
            report_missing(Op::ReduceGradient,
                           fmt::format("is missing: stage {} has the tied weights, too, and needs "
                                       "their gradient before its update",
                                       last - stage));
        }
        if (norms && !has_norm(in.cells(stage))) {
            report_missing(Op::GradientNorm,
                           "is missing: updates wait for the norm of all gradients");
        }
    }
}

// --- Between stages. ---

/// Neighbouring stages on one rank hand over in place: the row itself must have the right order.
void check_shared_rank(Inspection& in, int boundary) {
    const int left = boundary;
    const int right = boundary + 1;
    const auto check = [&](const Action& first, const Action& second) {
        const int before = in.cells(first.stage).at(first.op, first.micro_batch);
        const int after = in.cells(second.stage).at(second.op, second.micro_batch);
        if (before != missing && after != missing && before > after) {
            in.report(
                in.rank_of(second.stage),
                after,
                second,
                fmt::format("comes before {} (cell {}) on the same rank, whose result it needs",
                            to_string(first),
                            before));
        }
    };
    const auto backward = [&in](int stage, int k) {
        const Op op = in.cells(stage).has(Op::Backward, k) ? Op::Backward : Op::BackwardInput;
        return Action{.op = op, .stage = stage, .micro_batch = k};
    };
    for (int k = 0; k < in.schedule.micro_batches; ++k) {
        check({.op = Op::Forward, .stage = left, .micro_batch = k},
              {.op = Op::Forward, .stage = right, .micro_batch = k});
        check(backward(right, k), backward(left, k));
    }
}

/// A stage sends to and receives from its neighbours on other ranks every micro-batch, and nothing
/// else.
void check_messages(Inspection& in, int stage) {
    struct Message {
        Op op;
        int boundary;
    };
    const std::array messages{Message{Op::RecvForward, stage - 1},
                              Message{Op::SendForward, stage},
                              Message{Op::RecvBackward, stage},
                              Message{Op::SendBackward, stage - 1}};
    const StageCells& cells = in.cells(stage);
    for (const auto& [op, boundary] : messages) {
        const bool backward = op == Op::RecvBackward || op == Op::SendBackward;
        const bool travels = exchanges(in.schedule, boundary) && !(backward && in.forward_only);
        if (travels) {
            report_missing(in, stage, op, [&, op = op](int k) { return !cells.has(op, k); });
        }
        for (int k = 0; k < in.schedule.micro_batches; ++k) {
            if (cells.has(op, k) && !(travels && in.needs(stage, k))) {
                in.report(in.rank_of(stage),
                          cells.at(op, k),
                          {.op = op, .stage = stage, .micro_batch = k},
                          travels ? "is of a micro-batch that this stage does not compute"
                                  : "has no stage on another rank to exchange with");
            }
        }
    }
}

/// Over a skip goes every micro-batch that its stages compute.
void check_skip_messages(Inspection& in, const StagePair& skip) {
    const auto hop = static_cast<std::int16_t>(distance(skip) - 1);
    const auto check = [&](int stage, Op op) {
        const bool backward = op == Op::RecvBackward || op == Op::SendBackward;
        const StageCells& cells = in.cells(stage);
        if (!backward || !in.forward_only) {
            report_missing(
                in, stage, op, [&](int k) { return !cells.has(op, k, hop); }, hop);
        }
        for (int k = 0; k < in.schedule.micro_batches; ++k) {
            if (cells.has(op, k, hop) && !in.needs(stage, k)) {
                in.report(in.rank_of(stage),
                          cells.at(op, k, hop),
                          {.op = op, .stage = stage, .micro_batch = k, .hop = hop},
                          "is of a micro-batch that this stage does not compute");
            } else if (cells.has(op, k, hop) && backward && in.forward_only) {
                in.report(in.rank_of(stage),
                          cells.at(op, k, hop),
                          {.op = op, .stage = stage, .micro_batch = k, .hop = hop},
                          "serves a backward, but there is none");
            }
        }
    };
    check(skip.from, Op::SendForward);
    check(skip.to, Op::RecvForward);
    check(skip.to, Op::SendBackward);
    check(skip.from, Op::RecvBackward);
}

/// The k-th message sent must be the k-th received: a channel is a queue and messages carry no
/// name.
void check_message_order(
    Inspection& in, Op send, int sender, Op receive, int receiver, std::int16_t hop = 0) {
    const std::vector<int>& sent = in.cells(sender).messages(send, hop);
    const std::vector<int>& received = in.cells(receiver).messages(receive, hop);
    if (sent.size() != received.size()) {
        return;  // reported as missing; pairing the rest would only blame the innocent
    }
    for (std::size_t k = 0; k < sent.size(); ++k) {
        if (sent[k] == received[k]) {
            continue;
        }
        in.report(
            in.rank_of(receiver),
            in.cells(receiver).at(receive, received[k], hop),
            {.op = receive, .stage = receiver, .micro_batch = received[k], .hop = hop},
            fmt::format(
                "causes an order mismatch: it is receive {} of its channel, but send {} is {} "
                "(rank {}, cell {})",
                k,
                k,
                to_string({.op = send, .stage = sender, .micro_batch = sent[k], .hop = hop}),
                in.rank_of(sender),
                in.cells(sender).at(send, sent[k], hop)));
        in.found.back().mend =
            fmt::format("compute the micro-batches in the same order on stages {} and {}",
                        std::min(sender, receiver),
                        std::max(sender, receiver));
        return;  // what follows on this channel is shifted by the same mistake
    }
}

/// Checks that the messages between two ranks, of all their stages together, are sent and received
/// in one order each way.
void check_message_order_of_ranks(Inspection& in) {
    struct MessageCell {
        int rank = 0;
        std::size_t cell = 0;
    };
    struct Queue {
        std::vector<MessageCell> sent;
        std::vector<MessageCell> received;
    };
    const Schedule& schedule = in.schedule;
    const std::vector<std::size_t> queue_of = queues_of_edges(schedule, MessageQueues::PerRanks);
    std::vector<Queue> queues(queue_of.size());
    for (int rank = 0; rank < schedule.rank_count(); ++rank) {
        const auto& row = schedule.ranks[as_index(rank)];
        for (std::size_t cell = 0; cell < row.size(); ++cell) {
            if (is_message(row[cell].op) && has_edge(schedule, row[cell])) {
                Queue& queue = queues[queue_of[as_index(edge_of(schedule, row[cell]))]];
                (is_send(row[cell].op) ? queue.sent : queue.received).push_back({rank, cell});
            }
        }
    }
    const auto action_at = [&schedule](const MessageCell& place) {
        return schedule.ranks[as_index(place.rank)][place.cell];
    };
    for (const Queue& queue : queues) {
        const auto [sent, received] = std::ranges::mismatch(
            queue.sent, queue.received, [&](const MessageCell& send, const MessageCell& receive) {
                return other_end(action_at(send)) == action_at(receive);
            });
        if (queue.sent.size() != queue.received.size() || sent == queue.sent.end()) {
            continue;  // complete, or reported as missing
        }
        in.report(received->rank,
                  static_cast<int>(received->cell),
                  action_at(*received),
                  fmt::format("causes an order mismatch: it is receive {0} from rank {1}, but send "
                              "{0} of rank {1} to rank {2} is {3} (cell {4}), and the messages "
                              "from rank {1} to {2} are one queue",
                              sent - queue.sent.begin(),
                              sent->rank,
                              received->rank,
                              to_string(action_at(*sent)),
                              sent->cell));
        in.found.back().mend = fmt::format(
            "let rank {} receive in the order of rank {}'s sends ('pipetwin export torch-csv' "
            "writes "
            "such rows)",
            received->rank,
            sent->rank);
    }
}

void check_boundary(Inspection& in, int boundary) {
    if (!has_next_stage(in.schedule, boundary)) {
        return;  // the next stage begins another pipeline
    }
    if (!exchanges(in.schedule, boundary)) {
        check_shared_rank(in, boundary);
    } else if (in.lowered && in.queues == MessageQueues::PerStages) {
        check_message_order(in, Op::SendForward, boundary, Op::RecvForward, boundary + 1);
        check_message_order(in, Op::SendBackward, boundary + 1, Op::RecvBackward, boundary);
    }
}

void sort_by_place(std::vector<Violation>& violations) {
    std::ranges::stable_sort(
        violations, {}, [](const Violation& v) { return std::pair(v.rank, v.cell); });
}

std::vector<Violation> broken_rules(const Schedule& schedule, MessageQueues queues) {
    Inspection in{.schedule = schedule,
                  .queues = queues,
                  .lowered = has_communication(schedule),
                  .forward_only = is_forward_only(schedule)};
    check_sizes(in);
    if (!in.found.empty()) {
        return in.found;
    }
    check_placement(in);
    check_weights(in);
    if (!check_skips(in)) {
        return in.found;
    }
    check_cells(in);
    check_pairs(in);
    for (int stage = 0; stage < schedule.stage_count(); ++stage) {
        check_forwards(in, stage);
        check_backwards(in, stage);
        check_what_serves_a_backward(in, stage);
        check_one_pipeline(in, stage);
        check_order(in, stage);
        check_update(in, stage);
        if (in.lowered) {
            check_messages(in, stage);
        }
    }
    check_updates_complete(in);
    for (int boundary = 0; boundary + 1 < schedule.stage_count(); ++boundary) {
        check_boundary(in, boundary);
    }
    if (in.lowered) {
        for (const StagePair& skip : schedule.skips) {
            const auto hop = static_cast<std::int16_t>(distance(skip) - 1);
            check_skip_messages(in, skip);
            if (queues == MessageQueues::PerRanks) {
                continue;
            }
            check_message_order(in, Op::SendForward, skip.from, Op::RecvForward, skip.to, hop);
            check_message_order(in, Op::SendBackward, skip.to, Op::RecvBackward, skip.from, hop);
        }
    }
    if (queues == MessageQueues::PerRanks) {
        check_message_order_of_ranks(in);
    }
    sort_by_place(in.found);
    return in.found;
}

}  // namespace

std::vector<Violation> validate(const Schedule& schedule, MessageQueues queues) {
    std::vector<Violation> found = broken_rules(schedule, queues);
    if (found.empty()) {
        return found;
    }
    if (std::optional<Mended> mended = mend_slips(schedule)) {
        found = broken_rules(mended->schedule, queues);
        found.insert(found.end(), mended->slips.begin(), mended->slips.end());
        sort_by_place(found);
    }
    return found;
}

}  // namespace pipetwin
