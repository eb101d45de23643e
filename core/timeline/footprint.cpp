// SPDX-License-Identifier: Apache-2.0
#include "core/timeline/footprint.h"

#include <algorithm>
#include <array>
#include <limits>
#include <numeric>
#include <span>
#include <tuple>
#include <utility>

#include <fmt/format.h>

#include "core/base/as_index.h"
#include "core/base/error.h"
#include "core/plan/offload.h"
#include "core/plan/plan.h"
#include "core/plan/stage_cost.h"
#include "core/schedule/edge.h"
#include "core/schedule/lower.h"
#include "core/schedule/recompute.h"

namespace pipetwin {

namespace {

/// Tensors that an F leaves for the backward.
enum class Kept { Everything, Input, Nothing };

}  // namespace

/// What each F keeps, by stage and micro-batch: its input where an R makes the rest again, nothing
/// where no backward follows.
class KeptByForward {
  public:
    explicit KeptByForward(const Plan& plan)
        : micro_batches_(as_index(plan.micro_batches())),
          usual_(is_forward_only(plan->schedule) ? Kept::Nothing : Kept::Everything) {
        if (plan->recompute == Recompute::None) {
            return;  // its rows are as it says
        }
        const Schedule& schedule = plan->schedule;
        for (const auto& row : schedule.ranks) {
            for (const Action& action : row) {
                if (action.op == Op::Recompute) {
                    // Most plans have none, and then there is nothing to remember.
                    pairs_.resize(static_cast<std::size_t>(schedule.stage_count()) * micro_batches_,
                                  usual_);
                    pairs_.at(index(action)) = Kept::Input;
                }
            }
        }
    }

    /// What a forward keeps of a micro-batch that is not recomputed.
    Kept usual() const { return usual_; }

    /// True if any micro-batch is recomputed.
    bool any_input() const { return !pairs_.empty(); }

    Kept of(const Action& action) const {
        return pairs_.empty() ? usual_ : pairs_.at(index(action));
    }

  private:
    std::size_t index(const Action& action) const {
        return as_index(action.stage) * micro_batches_ +
               static_cast<std::size_t>(action.micro_batch);
    }

    std::size_t micro_batches_;
    Kept usual_;
    std::vector<Kept> pairs_;  ///< empty: all as usual
};

namespace {

/// Bytes of a message where a stage exchanges one alone with later stages, and one with earlier
/// ones.
Bytes only_message(const StageCost& cost, Op op) {
    return leads_to_later_stage(op) ? cost.output : cost.input;
}

/// The table of footprint.h. At the first stage F loads the input itself, and no gradient of it is
/// made. `message`: bytes of a send or receive.
MemoryChange change_of(
    const StageCost& cost, const Action& action, bool first_stage, Kept kept, Bytes message) {
    const Bytes received_input = first_stage ? Bytes{} : cost.input;
    const Bytes input_gradient = received_input;
    const Bytes output_gradient = cost.output;
    MemoryChange change;
    const auto both = [&change](MemoryKind kind, Bytes bytes) {
        change.during[kind] += bytes;
        change.after[kind] += bytes;
    };
    switch (action.op) {
        case Op::RecvForward:
        case Op::RecvBackward:
            change.after[MemoryKind::Boundary] = message;
            break;
        case Op::SendForward:
        case Op::SendBackward:
            change.after[MemoryKind::Boundary] = -message;
            break;
        case Op::Forward:
            both(MemoryKind::Boundary, -received_input);
            if (kept == Kept::Everything) {
                both(MemoryKind::Stash, cost.saved);
                change.during[MemoryKind::Stash] =
                    std::max(cost.saved, cost.forward_peak - cost.output);
                both(MemoryKind::Boundary, cost.output);
            } else {
                change.during[MemoryKind::Stash] = cost.forward_drop_peak;
                change.after[MemoryKind::Stash] = kept == Kept::Input ? cost.input : Bytes{};
                change.after[MemoryKind::Boundary] += cost.output;
            }
            break;
        case Op::Recompute:
            both(MemoryKind::Stash, cost.saved - cost.input);
            change.during[MemoryKind::Stash] +=
                std::max(cost.output, cost.forward_peak - cost.saved);
            break;
        case Op::Backward:
            change.during[MemoryKind::Stash] = cost.backward_peak - cost.saved - output_gradient;
            change.after[MemoryKind::Stash] = -cost.saved;
            change.after[MemoryKind::Boundary] = input_gradient - output_gradient;
            break;
        case Op::BackwardInput:
            change.during[MemoryKind::Boundary] = input_gradient;
            change.during[MemoryKind::Stash] =
                cost.backward_input_peak > Bytes{}
                    ? cost.backward_input_peak - cost.saved - output_gradient - input_gradient
                    : cost.split;
            change.after[MemoryKind::Stash] = cost.split - cost.input_saved;
            change.after[MemoryKind::Boundary] = input_gradient - cost.unread_gradient;
            break;
        case Op::BackwardWeight:
            change.after[MemoryKind::Stash] = -(cost.saved - cost.input_saved + cost.split);
            change.after[MemoryKind::Boundary] = cost.unread_gradient - output_gradient;
            break;
        case Op::ReduceGradient:
        case Op::Unshard:
        case Op::Reshard:
        case Op::GradientNorm:
        case Op::Optimizer:
            break;
    }
    return change;
}

MemoryUse operator+(MemoryUse a, const MemoryUse& b) {
    for (std::size_t kind = 0; kind < a.bytes.size(); ++kind) {
        a.bytes[kind] += b.bytes[kind];
    }
    return a;
}

/// The memory change of an action of a plan, at a cost that may be another than the plan's, which
/// has no messages of a size of their own.
MemoryChange change_of(const Plan& plan,
                       const StageCost& cost,
                       const Action& action,
                       const KeptByForward& kept) {
    return change_of(cost,
                     action,
                     !has_stage_before(plan->schedule, action.stage),
                     kept.of(action),
                     only_message(cost, action.op));
}

MemoryChange change_of(const Plan& plan, const Action& action, const KeptByForward& kept) {
    if (!has_micro_batch(action.op)) {
        return {};
    }
    const StageCost& cost = plan.cost(action.stage, action.micro_batch);
    if (!is_message(action.op) || plan->message_bytes.empty()) {
        return change_of(plan, cost, action, kept);
    }
    return change_of(cost,
                     action,
                     false,
                     Kept::Everything,
                     plan.message_bytes(edge_of(plan->schedule, action), action.micro_batch));
}

/// Memory changes of the actions of a plan, worked out once for each op, stage and cost class: of
/// the many actions few differ.
class Changes {
  public:
    /// The total held during an action on top of what was there before, and what remains of it.
    struct Totals {
        std::int64_t during = 0;
        std::int64_t after = 0;
        std::int64_t least = 0;  ///< of the two
        std::int64_t most = 0;
    };

    Changes(const Plan& plan, const KeptByForward& kept)
        : plan_(plan),
          kept_(kept),
          cost_class_(plan->cost_class),
          classes_(plan->costs.size()),
          of_stage_(classes_ * variants),
          any_dropped_(kept.any_input()) {
        const std::size_t count = static_cast<std::size_t>(plan.stage_count()) * of_stage_;
        changes_.reserve(count);
        totals_.reserve(count);
        for (int stage = 0; stage < plan.stage_count(); ++stage) {
            add_stage(stage);
        }
        add_messages();
        for (const MemoryChange& change : changes_) {
            const std::int64_t during = change.during.total().count;
            const std::int64_t after = change.after.total().count;
            totals_.push_back({.during = during,
                               .after = after,
                               .least = std::min(during, after),
                               .most = std::max(during, after)});
        }
    }

    const MemoryChange& of(const Action& action) const { return changes_[number(action)]; }
    const Totals& totals(const Action& action) const { return totals_[number(action)]; }

  private:
    std::size_t number(const Action& action) const {
        if (first_message_ != 0 && is_message(action.op)) {
            const std::size_t cost_class = as_index(cost_class_[as_index(action.micro_batch)]);
            return first_message_ +
                   2 * (cost_class * edge_count(plan_->schedule) +
                        as_index(edge_of(plan_->schedule, action))) +
                   (is_send(action.op) ? 0 : 1);
        }
        std::size_t number =
            as_index(action.stage) * of_stage_ + static_cast<std::size_t>(action.op);
        if (classes_ > 1 && has_micro_batch(action.op)) {
            number += variants * as_index(cost_class_[as_index(action.micro_batch)]);
        }
        if (any_dropped_ && action.op == Op::Forward && kept_.of(action) == Kept::Input) {
            number += dropping_forward - as_index(Op::Forward);
        }
        return number;
    }

    /// An F that keeps its input only stands behind all ops.
    static constexpr std::size_t dropping_forward = op_count;
    static constexpr std::size_t variants = op_count + 1;

    void add_stage(int stage) {
        const bool first = !has_stage_before(plan_->schedule, stage);
        for (const std::vector<StageCost>& costs : plan_->costs) {
            const StageCost& cost = costs.at(as_index(stage));
            for (int op = 0; op < op_count; ++op) {
                const auto of_op = static_cast<Op>(op);
                changes_.push_back(change_of(cost,
                                             {.op = of_op, .stage = stage},
                                             first,
                                             kept_.usual(),
                                             only_message(cost, of_op)));
            }
            changes_.push_back(
                change_of(cost, {.op = Op::Forward, .stage = stage}, first, Kept::Input, {}));
        }
    }

    /// Sends and receives of a plan whose messages have sizes of their own.
    void add_messages() {
        if (plan_->message_bytes.empty()) {
            return;
        }
        first_message_ = changes_.size();
        for (const std::vector<Bytes>& of_pairs : plan_->message_bytes) {
            for (const Bytes bytes : of_pairs) {
                for (int direction = 0; direction < 2; ++direction) {
                    for (const Op op : {Op::SendForward, Op::RecvForward}) {
                        changes_.push_back(
                            change_of({}, {.op = op}, false, Kept::Everything, bytes));
                    }
                }
            }
        }
    }

    const Plan& plan_;
    const KeptByForward& kept_;
    const std::vector<int>& cost_class_;
    std::size_t classes_;
    std::size_t of_stage_;  ///< changes
    bool any_dropped_;
    std::vector<MemoryChange> changes_;  ///< [stage][cost class][op], then messages
    /// Number of the first change of a message, by [cost class][edge][send, receive]; 0: messages
    /// have no sizes of their own.
    std::size_t first_message_ = 0;
    std::vector<Totals> totals_;
};

/// The highest total of a row.
struct Highest {
    Bytes total;
    std::size_t event = 0;  ///< 0: before the first cell, else 1 + 2 * cell, and one more behind it
};

Highest highest_of(const std::vector<Action>& row, const Changes& changes, Bytes resident) {
    std::int64_t live = resident.count;
    std::int64_t highest = live;
    std::size_t event = 0;
    for (std::size_t cell = 0; cell < row.size(); ++cell) {
        const Changes::Totals& totals = changes.totals(row[cell]);
        const std::int64_t during = live + totals.during;
        live += totals.after;
        if (during > highest) {
            highest = during;
            event = 1 + 2 * cell;
        }
        if (live > highest) {
            highest = live;
            event = 2 + 2 * cell;
        }
    }
    return {.total = Bytes{highest}, .event = event};
}

MemoryPeak peak_of(const std::vector<Action>& row,
                   const Changes& changes,
                   const MemoryUse& resident) {
    const std::size_t event = highest_of(row, changes, resident.total()).event;
    if (event == 0) {
        return {.use = resident};
    }
    const std::size_t cell = (event - 1) / 2;
    const bool after = event % 2 == 0;
    MemoryUse use = resident;
    for (std::size_t before = 0; before < cell; ++before) {
        use = use + changes.of(row[before]).after;
    }
    const MemoryChange& last = changes.of(row[cell]);
    use = use + (after ? last.after : last.during);
    return {.use = use, .cell = static_cast<int>(cell), .after = after};
}

/// Bytes that a forward holds and is about to drop.
Bytes dropped_by_forward(const StageCost& cost, Kept kept) {
    return kept == Kept::Everything ? cost.forward_peak - cost.output - cost.saved
                                    : cost.forward_drop_peak - cost.input - cost.output;
}

/// Bytes that an action holds while it runs, beside those of R, as its layers do not keep them.
Bytes again_during(const StageCost& cost, const Action& action, Kept kept) {
    switch (action.op) {
        case Op::Forward:
            return std::max(Bytes{}, dropped_by_forward(cost, kept));
        case Op::Recompute:
            return cost.saved - cost.input + cost.output;
        case Op::Backward:
            return cost.backward_again;
        case Op::BackwardInput:
            return std::max(Bytes{},
                            cost.backward_input_peak - cost.output - cost.input - cost.saved -
                                std::max(Bytes{}, cost.split - cost.input_saved));
        default:
            return {};
    }
}

/// Part of a rank's peak that is there because its layers do not keep what their backward needs.
Bytes recomputed_at(const Plan& plan, int rank, const MemoryPeak& peak, const KeptByForward& kept) {
    const bool recomputes =
        plan->recompute != Recompute::None || plan->layer_recompute != LayerRecompute::None;
    if (peak.cell < 0 || !recomputes) {
        return {};
    }
    const auto& row = plan->schedule.ranks[as_index(rank)];
    const auto cost_of = [&plan](const Action& action) -> const StageCost& {
        return plan.cost(action.stage, action.micro_batch);
    };
    Bytes held;  // from R to the end of its backward
    const int done = peak.cell + (peak.after ? 1 : 0);
    for (int cell = 0; cell < done; ++cell) {
        const Action& action = row[as_index(cell)];
        const bool ends = action.op == Op::Backward || action.op == Op::BackwardWeight;
        if (action.op == Op::Recompute) {
            held += cost_of(action).saved - cost_of(action).input;
        } else if (ends && kept.of(action) == Kept::Input) {
            held -= cost_of(action).saved - cost_of(action).input;
        }
    }
    const Action& last = row[as_index(peak.cell)];
    return peak.after || !has_micro_batch(last.op)
               ? held
               : held + again_during(cost_of(last), last, kept.of(last));
}

/// Walks a row and calls visit(cell, use during the action, use after it).
template <class Visit>
void walk_row(const Plan& plan, int rank, const KeptByForward& kept, Visit visit) {
    MemoryUse live = resident_memory(plan, rank);
    const auto& row = plan->schedule.ranks[as_index(rank)];
    for (std::size_t cell = 0; cell < row.size(); ++cell) {
        const MemoryChange change = change_of(plan, row[cell], kept);
        const MemoryUse during = live + change.during;
        live = live + change.after;
        visit(cell, during, live);
    }
}

/// A stash leaves a device, or comes back.
struct StashMove {
    std::size_t event = 0;  ///< of the row, which it goes before
    Duration time{};
    Bytes bytes{};  ///< negative: leaves
};

/// The beginnings and ends of a row's actions are its events, [2 * cell] and [2 * cell + 1].
Duration time_of_event(const std::vector<Span>& row, std::size_t event) {
    return event % 2 == 0 ? row[event / 2].begin : row[event / 2].end;
}

/// From `first` on, the event that is not before `time`.
std::size_t event_at(const std::vector<Span>& row, std::size_t first, Duration time) {
    std::size_t last = 2 * row.size();
    while (first < last) {
        const std::size_t middle = first + (last - first) / 2;
        if (time_of_event(row, middle) < time) {
            first = middle + 1;
        } else {
            last = middle;
        }
    }
    return first;
}

/// Times at which the stashes of a rank leave and come back, in order. At equal times what leaves
/// makes room for what comes, and for the action that begins.
std::vector<StashMove> stash_moves(std::vector<StashCopy> copies,
                                   const Timeline& timeline,
                                   std::size_t rank) {
    const auto& row = timeline.ranks[rank];
    const auto& out = timeline.host_copies.at(2 * rank);
    const auto& in = timeline.host_copies.at(2 * rank + 1);
    PIPETWIN_EXPECT(out.size() == copies.size() && in.size() == copies.size(),
                    "the copies are those of this plan");
    std::vector<StashMove> moves;
    for (std::size_t i = 0; i < copies.size(); ++i) {
        moves.push_back({.event = event_at(row, 2 * copies[i].forward + 2, out[i].end),
                         .time = out[i].end,
                         .bytes = -copies[i].bytes});
    }
    std::ranges::sort(copies, {}, &StashCopy::user);
    for (std::size_t i = 0; i < copies.size(); ++i) {
        moves.push_back({.event = event_at(row, 2 * copies[i].before, in[i].begin),
                         .time = in[i].begin,
                         .bytes = copies[i].bytes});
    }
    std::ranges::sort(moves, {}, [](const StashMove& move) {
        return std::tuple(move.event, move.time, move.bytes);
    });
    return moves;
}

/// [rank]: the copies of stashes that a timeline makes; empty where it makes none.
std::vector<std::vector<StashCopy>> copies_in(const Plan& plan, const Timeline& timeline) {
    return timeline.host_copies.empty() ? std::vector<std::vector<StashCopy>>{}
                                        : stash_copies(plan);
}

/// Walks a row and calls visit(point, event) with all points of its memory curve, and the last
/// event of the row that has happened then.
template <class Visit>
void walk_timeline(const Plan& plan,
                   const Timeline& timeline,
                   int rank,
                   const KeptByForward& kept,
                   const std::vector<std::vector<StashCopy>>& copies,
                   Visit visit) {
    const std::size_t index = as_index(rank);
    const auto& spans = timeline.ranks[index];
    const std::vector<StashMove> moves =
        copies.empty() ? std::vector<StashMove>{} : stash_moves(copies[index], timeline, index);
    auto move = moves.begin();
    MemoryUse on_device = resident_memory(plan, rank);
    MemoryUse on_host;  // negative: what the device does not hold of all stashes
    const auto pass = [&](std::size_t event, const MemoryUse& use) {
        for (; move != moves.end() && move->event == event; ++move) {
            on_host[MemoryKind::Stash] += move->bytes;
            visit(MemoryPoint{.time = move->time, .use = on_device + on_host}, event - 1);
        }
        on_device = use;
        visit(MemoryPoint{.time = time_of_event(spans, event), .use = on_device + on_host}, event);
    };
    walk_row(plan,
             rank,
             kept,
             [&pass](std::size_t cell, const MemoryUse& during, const MemoryUse& after) {
                 pass(2 * cell, during);
                 pass(2 * cell + 1, after);
             });
}

/// Room that the rank of a stage reserves for messages between a pair of stages, of which it is
/// one.
Bytes reserved_room(const Plan& plan, int stage, std::size_t pair) {
    const StagePair stages = stages_of_pair(plan->schedule, pair);
    Bytes largest;
    for (std::size_t number = 0; number < plan->costs.size(); ++number) {
        const StageCost& cost = plan->costs[number].at(as_index(stage));
        largest = std::max(largest,
                           !plan->message_bytes.empty() ? plan->message_bytes[number][pair]
                           : stages.from == stage       ? cost.output
                                                        : cost.input);
    }
    return channel_places(plan->schedule, stages, plan->channel_capacity.value_or(0)) * largest;
}

/// Room that the rank of a stage reserves for messages to it.
Bytes reserved_room(const Plan& plan, int stage) {
    const Schedule& schedule = plan->schedule;
    Bytes room;
    for (const int boundary : {stage - 1, stage}) {
        if (exchanges(schedule, boundary)) {
            room += reserved_room(plan, stage, as_index(boundary));
        }
    }
    for (std::size_t skip = 0; skip < schedule.skips.size(); ++skip) {
        if (schedule.skips[skip].from == stage || schedule.skips[skip].to == stage) {
            room += reserved_room(plan, stage, boundary_count(schedule) + skip);
        }
    }
    return room;
}

}  // namespace

std::string_view to_string(MemoryKind kind) {
    constexpr std::array<std::string_view, memory_kind_count> names{
        "weights", "gradients", "optimizer", "stash", "boundary", "workspace", "context"};
    const std::size_t index = as_index(kind);
    PIPETWIN_EXPECT(index < names.size(), "memory kind out of range");
    return names.at(index);
}

Bytes MemoryUse::total() const {
    return std::accumulate(bytes.begin(), bytes.end(), Bytes{});
}

MemoryChange memory_change(const Plan& plan, const Action& action) {
    return change_of(plan, action, KeptByForward(plan));
}

MemoryUse resident_memory(const Plan& plan, int rank) {
    const std::vector<int>& rank_of = plan->schedule.rank_of_stage;
    MemoryUse use;
    Bytes gathered;
    if (!plan->context.empty()) {
        use[MemoryKind::Context] = plan->context.at(as_index(rank));
    }
    for (std::size_t stage = 0; stage < rank_of.size(); ++stage) {
        if (rank_of[stage] != rank) {
            continue;
        }
        const StageState& state = plan->states.at(stage);
        use[MemoryKind::Weights] += state.weights + state.running;
        use[MemoryKind::Gradients] += state.gradients;
        use[MemoryKind::Optimizer] += state.optimizer_state;
        use[MemoryKind::Workspace] = std::max(use[MemoryKind::Workspace], state.workspace);
        gathered = std::max(gathered, state.gathered);
        use[MemoryKind::Boundary] += reserved_room(plan, static_cast<int>(stage));
    }
    use[MemoryKind::Workspace] += gathered;
    return use;
}

BesideModel beside_model(const Plan& plan, int rank, const MemoryUse& peak) {
    const Bytes context = peak[MemoryKind::Context];
    const ContextParts parts =
        plan->context_parts.empty() ? ContextParts{} : plan->context_parts.at(as_index(rank));
    const auto tensors = static_cast<double>((peak.total() - context).count);
    Bytes kept = plan->kept_messages.empty() ? Bytes{} : plan->kept_messages.at(as_index(rank));
    if (const std::optional<Bytes> limit = plan.memory_limit(rank);
        limit && *limit - peak.total() < kept) {
        kept = {};  // before a pool gives up it frees all that it only keeps
    }
    return {
        .runtime = context - parts.total(),
        .communication = parts.communication,
        .product_workspace = parts.product_workspace,
        .tensor_buffers = parts.tensor_buffers,
        .allocator_reserve = Bytes{static_cast<std::int64_t>(tensors * plan->allocator_reserve)},
        .kept_messages = kept};
}

std::vector<MemoryCurve> footprint(const Plan& plan, const Timeline& timeline) {
    PIPETWIN_EXPECT(timeline.ranks.size() == plan->schedule.ranks.size(),
                    "the timeline is one of this plan");
    const KeptByForward kept(plan);
    const auto copies = copies_in(plan, timeline);
    std::vector<MemoryCurve> curves;
    for (int rank = 0; rank < plan.rank_count(); ++rank) {
        const auto& spans = timeline.ranks[as_index(rank)];
        PIPETWIN_EXPECT(spans.size() == plan->schedule.ranks[as_index(rank)].size(),
                        "the timeline is one of this plan");
        MemoryCurve& curve = curves.emplace_back();
        walk_timeline(
            plan, timeline, rank, kept, copies, [&curve](const MemoryPoint& point, std::size_t) {
                curve.push_back(point);
            });
    }
    return curves;
}

namespace {

RankTotals totals_of(const std::vector<Action>& row, const Changes& changes, Bytes resident) {
    constexpr std::size_t cells = RankTotals::block / 2;
    RankTotals totals;
    totals.values.reserve(2 * row.size());
    totals.of_block.reserve(row.size() / cells + 1);
    std::int64_t live = resident.count;
    for (std::size_t first = 0; first < row.size(); first += cells) {
        // Block by block, so that the list is not filled with zeros before.
        std::array<Bytes, RankTotals::block> values;
        auto value = values.begin();
        std::int64_t least = std::numeric_limits<std::int64_t>::max();
        std::int64_t most = std::numeric_limits<std::int64_t>::min();
        for (const Action& action :
             std::span(row).subspan(first, std::min(cells, row.size() - first))) {
            const Changes::Totals& change = changes.totals(action);
            least = std::min(least, live + change.least);
            most = std::max(most, live + change.most);
            *value++ = Bytes{live + change.during};
            live += change.after;
            *value++ = Bytes{live};
        }
        totals.values.insert(totals.values.end(), values.begin(), value);
        totals.of_block.push_back({.least = Bytes{least}, .most = Bytes{most}});
    }
    return totals;
}

}  // namespace

std::vector<RankTotals> memory_totals(const Plan& plan) {
    const KeptByForward kept(plan);
    const Changes changes(plan, kept);
    std::vector<RankTotals> totals;
    totals.reserve(plan->schedule.ranks.size());
    for (int rank = 0; rank < plan.rank_count(); ++rank) {
        totals.push_back(totals_of(
            plan->schedule.ranks[as_index(rank)], changes, resident_memory(plan, rank).total()));
    }
    return totals;
}

std::vector<MemoryPeak> memory_peaks(const Plan& plan) {
    const KeptByForward kept(plan);
    const Changes changes(plan, kept);
    std::vector<MemoryPeak> peaks;
    for (int rank = 0; rank < plan.rank_count(); ++rank) {
        MemoryPeak& peak = peaks.emplace_back(
            peak_of(plan->schedule.ranks[as_index(rank)], changes, resident_memory(plan, rank)));
        peak.recomputed = recomputed_at(plan, rank, peak, kept);
    }
    return peaks;
}

Duration time_of(const MemoryPeak& peak, const std::vector<Span>& row) {
    if (peak.cell < 0) {
        return {};
    }
    const Span& span = row.at(as_index(peak.cell));
    return peak.after ? span.end : span.begin;
}

std::vector<PeakInTime> memory_peaks(const Plan& plan, const Timeline& timeline) {
    std::vector<PeakInTime> peaks;
    const auto copies = copies_in(plan, timeline);
    if (copies.empty()) {
        for (const MemoryPeak& peak : memory_peaks(plan)) {
            peaks.push_back({.peak = peak, .time = time_of(peak, timeline.ranks[peaks.size()])});
        }
        return peaks;
    }
    const KeptByForward kept(plan);
    for (int rank = 0; rank < plan.rank_count(); ++rank) {
        PeakInTime& highest = peaks.emplace_back();
        highest.peak.use = resident_memory(plan, rank);
        walk_timeline(
            plan, timeline, rank, kept, copies, [&](const MemoryPoint& point, std::size_t event) {
                if (point.use.total() > highest.peak.use.total()) {
                    highest = {.peak = {.use = point.use,
                                        .cell = static_cast<int>(event / 2),
                                        .after = event % 2 == 1},
                               .time = point.time};
                }
            });
    }
    return peaks;
}

std::vector<Bytes> peak_totals(const Plan& plan, const Timeline& timeline) {
    std::vector<Bytes> peaks;
    if (!timeline.host_copies.empty()) {
        for (const PeakInTime& peak : memory_peaks(plan, timeline)) {
            peaks.push_back(peak.peak.use.total());
        }
        return peaks;
    }
    return peak_totals(plan);
}

std::vector<Bytes> peak_totals(const Plan& plan) {
    std::vector<Bytes> peaks;
    const KeptByForward kept(plan);
    const Changes changes(plan, kept);
    for (int rank = 0; rank < plan.rank_count(); ++rank) {
        peaks.push_back(highest_of(plan->schedule.ranks[as_index(rank)],
                                   changes,
                                   resident_memory(plan, rank).total())
                            .total);
    }
    return peaks;
}

std::vector<MemoryUse> peak_memory(const Plan& plan) {
    std::vector<MemoryUse> uses;
    for (const MemoryPeak& peak : memory_peaks(plan)) {
        uses.push_back(peak.use);
    }
    return uses;
}

std::vector<MemoryUse> peak_memory(const Plan& plan, const Timeline& timeline) {
    std::vector<MemoryUse> uses;
    for (const PeakInTime& peak : memory_peaks(plan, timeline)) {
        uses.push_back(peak.peak.use);
    }
    return uses;
}

StagePeaks::StagePeaks(const Plan& plan)
    : plan_(plan), kept_(std::make_unique<KeptByForward>(plan)) {
    PIPETWIN_EXPECT(plan.stage_count() == plan.rank_count(), "each rank has one stage");
    PIPETWIN_EXPECT(plan->message_bytes.empty(), "each layer reads the one before it");
}

StagePeaks::~StagePeaks() = default;

Bytes StagePeaks::of(int stage,
                     const std::vector<StageCost>& costs,
                     const StageState& state,
                     int capacity) const {
    const int rank = plan_->schedule.rank_of_stage.at(as_index(stage));
    const Schedule& schedule = plan_->schedule;
    Bytes live = state.weights + state.running + state.gradients + state.optimizer_state +
                 state.workspace + state.gathered;
    if (!plan_->context.empty()) {
        live += plan_->context.at(as_index(rank));
    }
    Bytes input;
    Bytes output;
    for (const StageCost& cost : costs) {
        input = std::max(input, cost.input);
        output = std::max(output, cost.output);
    }
    live += exchanges(schedule, stage - 1) ? capacity * input : Bytes{};
    live += exchanges(schedule, stage) ? capacity * output : Bytes{};
    Bytes peak = live;
    for (const Action& action : schedule.ranks[as_index(rank)]) {
        if (!has_micro_batch(action.op)) {
            continue;
        }
        const std::size_t micro_batch = as_index(action.micro_batch);
        const std::size_t cost_class = as_index(plan_->cost_class.at(micro_batch));
        const MemoryChange change = change_of(plan_, costs.at(cost_class), action, *kept_);
        peak = std::max(peak, live + change.during.total());
        live += change.after.total();
        peak = std::max(peak, live);
    }
    return peak;
}

std::vector<int> peak_live_activations(const Schedule& schedule) {
    if (is_forward_only(schedule)) {
        return std::vector<int>(schedule.ranks.size(), std::min(2, schedule.micro_batches));
    }
    std::vector<int> peaks;
    for (const auto& row : schedule.ranks) {
        int live = 0;
        int peak = 0;
        for (const Action& action : row) {
            if (action.op == Op::Forward) {
                peak = std::max(peak, ++live);
            } else if (action.op == Op::Backward || action.op == Op::BackwardWeight) {
                --live;
            }
        }
        peaks.push_back(peak);
    }
    return peaks;
}

}  // namespace pipetwin
