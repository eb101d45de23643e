// SPDX-License-Identifier: Apache-2.0
#include "sim/explain/task_graph.h"

#include <algorithm>

#include "core/base/as_index.h"
#include "core/plan/offload.h"
#include "core/plan/plan.h"
#include "sim/engine/row_walk.h"
#include "sim/engine/step_costs.h"
#include "sim/stats/fifo.h"

namespace pipetwin::sim {

/// A visitor of the rows that writes a task for whatever takes time, and for every moment at which
/// a rank has waited for more than one thing.
class TaskWriter {
  public:
    TaskWriter(const Plan& plan, const Conditions& conditions, TaskGraph& graph)
        : schedule_(plan->schedule),
          costs_(plan, conditions),
          bounded_(conditions.channel_capacity.has_value()),
          blocking_(conditions.transfer == TransferMode::Blocking),
          graph_(graph),
          ranks_(plan->schedule.ranks.size()),
          network_(plan->schedule.ranks.size(), start),
          edges_(edge_count(plan->schedule)),
          bucketed_(plan->bucketed_sums),
          awaited_(plan->schedule.rank_of_stage.size()) {
        graph_.costs_ = costs_.table();
        graph_.lags_ = costs_.latencies();
        for (const auto& row : schedule_.ranks) {
            graph_.cells_.emplace_back().reserve(row.size());
        }
        no_cost_ = add_cost(Duration{});
        no_lag_ = add_lag(Duration{});
        add({.cost = no_cost_, .lag = no_lag_}, {.kind = TaskKind::Moment});
        if (conditions.host_link) {
            host_lag_ = add_lag(conditions.host_link->latency);
            graph_.host_lag_ = host_lag_;
            add_copies(plan, *conditions.host_link);
        }
    }

    using State = int;  ///< the rank

    static State enter(int rank) { return rank; }
    static void leave(State) {}

    void act(State rank, std::size_t cell, const Action& action) {
        if (!copies_.empty() && is_compute(action.op)) {
            let_stash_in(rank, cell);
        }
        if (uses_gradients(action.op)) {
            for (const Signal& signal : awaited_[as_index(action.stage)]) {
                wait_for(rank, cell, signal);
            }
            if (action.op == Op::Optimizer && norms_ != start) {
                wait_for(rank, cell, {.task = norms_});
            }
        } else if (action.op == Op::ReduceGradient) {
            reduce(rank, cell, action.stage);
        }
        Rank& state = ranks_[as_index(rank)];
        state.task = add({.after = state.task,
                          .also = state.waits_for.task,
                          .cost = static_cast<std::uint32_t>(costs_.number(action)),
                          .lag = lag_of(state.waits_for)},
                         place(rank, cell, TaskKind::Action));
        state.waits_for = {};
        know_receive(rank, {.task = state.task, .at_begin = true});
        cells(rank).push_back({.task = state.task});
        if (action.op == Op::GradientNorm) {
            norms_ = add({.after = state.task, .also = norms_, .cost = no_cost_, .lag = no_lag_},
                         place(rank, cell, TaskKind::Moment));
        }
        if (!copies_.empty() && is_compute(action.op)) {
            take_stash_out(rank, cell);
        }
    }

    void send(State rank, const MessageEnd& end) {
        if (bounded_ && end.number >= end.places) {
            wait_for(rank, end.cell, {.task = edge_at(end).room.pop()});
        }
        const std::uint32_t moment = settle(rank, end.cell);
        std::uint32_t& link = edge_at(end).link;
        link = add({.after = moment,
                    .also = link,
                    .cost = static_cast<std::uint32_t>(
                        costs_.message_number(end.edge, end.action.micro_batch)),
                    .lag = no_lag_},
                   place(rank, end.cell, TaskKind::Message));
        edge_at(end).messages.push(link);
        if (blocking_) {
            ranks_[as_index(rank)].task = link;
        }
        cells(rank).push_back({.task = blocking_ ? link : moment});
    }

    void begin_receive(State rank, const MessageEnd& end) {
        if (bounded_ && end.places == 0) {
            edge_at(end).room.push(settle(rank, end.cell));
        }
    }

    void receive(State rank, const MessageEnd& end) {
        wait_for(
            rank,
            end.cell,
            {.task = edge_at(end).messages.pop(), .lag = static_cast<std::uint32_t>(end.edge)});
        ranks_[as_index(rank)].receives = true;
        cells(rank).push_back({});
        if (bounded_ && end.places > 0) {
            edge_at(end).room.push(settle(rank, end.cell));
        }
    }

    void finish() {
        for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
            graph_.last_.push_back(settle(static_cast<int>(rank), schedule_.ranks[rank].size()));
        }
    }

  private:
    static constexpr std::uint32_t start = 0;
    static constexpr std::uint32_t none = ~std::uint32_t{0};

    /// The end of a task, and a latency after it.
    struct Signal {
        std::uint32_t task = start;
        std::uint32_t lag = none;
    };

    /// Progress of a rank: the task at whose end it is, and what it has received since.
    struct Rank {
        std::uint32_t task = start;
        Signal waits_for;
        bool receives = false;  ///< and the last cell is the receive, whose end is not known yet
    };

    /// A copy of a stash to host memory and back.
    struct Copy {
        std::size_t user = 0;        ///< cell
        std::uint32_t cost = 0;      ///< of either direction
        std::uint32_t task = start;  ///< the last direction that it has gone
    };

    struct Edge {
        std::uint32_t link = start;    ///< its last message
        Fifo<std::uint32_t> messages;  ///< not taken yet
        Fifo<std::uint32_t> room;      ///< moments at which receives made room
    };

    /// The stash that a cell makes, lets in or needs.
    struct CellCopies {
        Copy* makes = nullptr;
        Copy* lets_in = nullptr;
        Copy* needs = nullptr;
    };

    void add_copies(const Plan& plan, const LinkCost& link) {
        to_host_.resize(schedule_.ranks.size(), start);
        from_host_.resize(schedule_.ranks.size(), start);
        copies_.resize(schedule_.ranks.size());
        const auto of_ranks = stash_copies(plan);
        for (std::size_t rank = 0; rank < of_ranks.size(); ++rank) {
            copies_of_cell_.emplace_back(schedule_.ranks[rank].size());
            copies_[rank].reserve(of_ranks[rank].size());
            for (const StashCopy& copy : of_ranks[rank]) {
                Copy& added = copies_[rank].emplace_back();
                added.user = copy.user;
                added.cost = add_cost(occupation(link, copy.bytes));
                copies_of_cell_[rank][copy.forward].makes = &added;
                copies_of_cell_[rank][copy.before].lets_in = &added;
                copies_of_cell_[rank][copy.user].needs = &added;
            }
        }
    }

    /// Before a compute action: the rank has the stash that it needs, and the next may come in.
    void let_stash_in(int rank, std::size_t cell) {
        const CellCopies& copies = copies_of(rank, cell);
        if (copies.needs != nullptr) {
            wait_for(rank, cell, {.task = copies.needs->task, .lag = host_lag_});
        }
        if (copies.lets_in == nullptr) {
            return;
        }
        Copy& copy = *copies.lets_in;
        std::uint32_t& link = from_host_[as_index(rank)];
        const TaskPlace user = place(rank, copy.user, TaskKind::Copy);
        const std::uint32_t may_begin =
            add({.after = settle(rank, cell), .also = link, .cost = no_cost_, .lag = no_lag_},
                place(rank, copy.user, TaskKind::Moment));
        link =
            add({.after = may_begin, .also = copy.task, .cost = copy.cost, .lag = host_lag_}, user);
        copy.task = link;
    }

    /// Behind a compute action: the stash that it has made leaves.
    void take_stash_out(int rank, std::size_t cell) {
        if (Copy* const copy = copies_of(rank, cell).makes) {
            std::uint32_t& link = to_host_[as_index(rank)];
            link = add({.after = ranks_[as_index(rank)].task,
                        .also = link,
                        .cost = copy->cost,
                        .lag = no_lag_},
                       place(rank, cell, TaskKind::Copy));
            copy->task = link;
        }
    }

    const CellCopies& copies_of(int rank, std::size_t cell) const {
        return copies_of_cell_[as_index(rank)][cell];
    }

    Edge& edge_at(const MessageEnd& end) { return edges_[as_index(end.edge)]; }

    std::uint32_t add_cost(Duration cost) {
        graph_.costs_.push_back(cost);
        return static_cast<std::uint32_t>(graph_.costs_.size() - 1);
    }

    std::uint32_t add_lag(Duration lag) {
        graph_.lags_.push_back(lag);
        return static_cast<std::uint32_t>(graph_.lags_.size() - 1);
    }

    std::uint32_t lag_of(const Signal& signal) const {
        return signal.lag == none ? no_lag_ : signal.lag;
    }

    std::uint32_t add(const Task& task, const TaskPlace& place) {
        graph_.tasks_.push_back(task);
        graph_.places_.push_back(place);
        return static_cast<std::uint32_t>(graph_.tasks_.size() - 1);
    }

    static TaskPlace place(int rank, std::size_t cell, TaskKind kind) {
        return {.rank = rank, .cell = static_cast<std::int32_t>(cell), .kind = kind};
    }

    /// The moment at which the rank has all that it has waited for, as a task.
    std::uint32_t settle(int rank, std::size_t cell) {
        Rank& state = ranks_[as_index(rank)];
        if (state.waits_for.task != start) {
            state.task = add({.after = state.task,
                              .also = state.waits_for.task,
                              .cost = no_cost_,
                              .lag = lag_of(state.waits_for)},
                             place(rank, cell, TaskKind::Moment));
            state.waits_for = {};
            know_receive(rank, {.task = state.task});
        }
        return state.task;
    }

    void know_receive(int rank, const CellEnd& end) {
        Rank& state = ranks_[as_index(rank)];
        if (state.receives) {
            cells(rank).back() = end;
            state.receives = false;
        }
    }

    std::vector<CellEnd>& cells(int rank) { return graph_.cells_[as_index(rank)]; }

    void wait_for(int rank, std::size_t cell, const Signal& signal) {
        settle(rank, cell);
        ranks_[as_index(rank)].waits_for = signal;
    }

    void reduce(int rank, std::size_t cell, int stage) {
        const std::uint32_t moment = settle(rank, cell);
        const Duration length = costs_.overlapped_reduction(stage);
        if (length > Duration{}) {
            std::uint32_t& network = network_[as_index(rank)];
            const TaskPlace message = place(rank, cell, TaskKind::Message);
            const std::uint32_t cost = add_cost(length);
            if (bucketed_.empty()) {
                network =
                    add({.after = moment, .also = network, .cost = cost, .lag = no_lag_}, message);
            } else {
                const BucketedSums& sums = bucketed_[as_index(stage)];
                network = add(
                    {.after = network, .also = moment, .cost = cost, .lag = add_lag(-sums.head)},
                    message);
                network = add(
                    {.after = network, .also = moment, .cost = no_cost_, .lag = add_lag(sums.tail)},
                    place(rank, cell, TaskKind::Moment));
            }
            awaited_[as_index(stage)].push_back({.task = network});
        }
        if (const auto other = gradient_source(schedule_, stage)) {
            const std::uint32_t lag = add_lag(costs_.hand_over_of_gradients(stage));
            awaited_[as_index(*other)].push_back({.task = moment, .lag = lag});
        }
    }

    const Schedule& schedule_;
    StepCosts costs_;
    bool bounded_;
    bool blocking_;
    TaskGraph& graph_;
    std::uint32_t no_cost_ = 0;
    std::uint32_t no_lag_ = 0;
    std::vector<Rank> ranks_;
    std::vector<std::uint32_t> network_;  ///< [rank] its last overlapped reduction
    std::vector<Edge> edges_;
    const std::vector<BucketedSums>& bucketed_;
    std::vector<std::vector<Signal>> awaited_;  ///< [stage] by its norm and its update
    std::uint32_t norms_ = start;               ///< the moment at which those visited are known
    std::uint32_t host_lag_ = 0;
    std::vector<std::uint32_t> to_host_;  ///< [rank] the last copy out, in
    std::vector<std::uint32_t> from_host_;
    std::vector<std::vector<Copy>> copies_;                ///< [rank]; empty: nothing is copied
    std::vector<std::vector<CellCopies>> copies_of_cell_;  ///< [rank][cell]
};

TaskGraph::TaskGraph(const Plan& plan, const Conditions& conditions) {
    PIPETWIN_EXPECT(!conditions.contention.any(), "nothing is shared");
    PIPETWIN_EXPECT(conditions.durations.empty() && conditions.message_factors.empty() &&
                        conditions.copy_factors.empty(),
                    "costs go by stage and kind of action");
    TaskWriter writer(plan, conditions, *this);
    RowWalk(plan->schedule, conditions.channel_capacity, writer).run();
    writer.finish();
}

void TaskGraph::evaluate(std::span<const Duration> costs,
                         std::span<const Duration> lags,
                         std::span<Duration> ends) const {
    PIPETWIN_EXPECT(ends.size() == tasks_.size(), "room for every task");
    Duration* const end = ends.data();
    end[0] = Duration{};
    for (std::size_t i = 1; i < tasks_.size(); ++i) {
        const Task task = tasks_[i];
        end[i] = std::max(end[task.after], end[task.also] + lags[task.lag]) + costs[task.cost];
    }
}

Duration TaskGraph::step(std::span<const Duration> ends) const {
    Duration step{};
    for (const std::uint32_t task : last_) {
        step = std::max(step, ends[task]);
    }
    return step;
}

std::vector<Duration> TaskGraph::slack(std::span<const Duration> costs,
                                       std::span<const Duration> lags,
                                       std::span<const Duration> ends) const {
    // The latest end that keeps the step as it is, from the last task to the first.
    std::vector<Duration> latest(tasks_.size(), step(ends));
    for (std::size_t i = tasks_.size() - 1; i > 0; --i) {
        const Task& task = tasks_[i];
        const Duration begin = latest[i] - costs[task.cost];
        latest[task.after] = std::min(latest[task.after], begin);
        latest[task.also] = std::min(latest[task.also], begin - lags[task.lag]);
    }
    for (std::size_t i = 0; i < latest.size(); ++i) {
        latest[i] -= ends[i];
    }
    return latest;
}

}  // namespace pipetwin::sim
