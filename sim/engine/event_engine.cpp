// SPDX-License-Identifier: Apache-2.0
#include "sim/engine/event_engine.h"

#include <algorithm>
#include <vector>

#include "core/base/as_index.h"
#include "core/base/error.h"
#include "core/plan/plan.h"
#include "core/schedule/edge.h"
#include "sim/engine/event_queue.h"
#include "sim/engine/host_copies.h"
#include "sim/engine/prefetch_for_write.h"
#include "sim/engine/shared_cores.h"
#include "sim/engine/shared_links.h"
#include "sim/engine/step_costs.h"
#include "sim/stats/fifo.h"

namespace pipetwin::sim {

namespace {

/// Messages between one pair of stages in one direction. First in, first out, so counters tell
/// which message is meant:
///
///     handed over  >=  taken            receives begun is taken, or taken + 1
struct Edge {
    int sender = 0;  ///< ranks
    int receiver = 0;
    int places = 0;             ///< messages that it has room for
    Duration link_free{};       ///< when the link can take the next message
    Fifo<Duration> arrivals{};  ///< of messages whose way is settled, and that are not taken yet
    int handed_over = 0;
    int receives_begun = 0;
    int taken = 0;
    bool sender_waits = false;
    bool receiver_waits = false;

    /// Room for one more? With capacity 0 a message needs a receive that has begun.
    bool has_room() const { return handed_over - taken < places || handed_over < receives_begun; }
};

/// State of the reductions that a stage's norm or update waits for: its own gradients' way over the
/// replicas, and those of the stage with the same weights.
struct Reduction {
    int awaited = 0;
    bool user_waits = false;
};

struct Rank {
    const Action* action = nullptr;  ///< the one at hand
    const Action* end = nullptr;     ///< of the row
    Span* span = nullptr;            ///< of the action at hand
    Duration begin{};                ///< when the rank turned to it
    Duration ready{};
    bool acts = false;  ///< the rank is in the action, and the event to come is its end

    /// The action at hand is over, and the rank turns to the next.
    void done(Duration now) {
        *span = {*action, begin, ready, now};
        begin = now;
        acts = false;
        ++action;
        ++span;
        prefetch_for_write(span);
    }
};

/// Numbers of the sources of events: every rank, which has at most one to come - the end of its
/// action, or the message or the stash that it waits for - and, where there are any, the shared
/// cores and links, the gradients of each stage, and each rank's stash that will be in host memory
/// and may come back from then on.
struct Sources {
    Sources(const Plan& plan, const Conditions& conditions)
        : cores(plan->schedule.ranks.size()),
          links(cores + (SharedCores::needed(conditions.contention) ? 1 : 0)),
          gradients(links + (conditions.contention.shared_links.empty() ? 0 : 1)),
          stashes(gradients + (plan->reductions.empty() && conditions.overlapped_reductions.empty()
                                   ? 0
                                   : 2 * plan->schedule.rank_of_stage.size())),
          count(stashes + (SharedLinks::shares_copies(conditions) ? cores : 0)) {}

    /// Over the replicas' network.
    std::size_t own_gradients(int stage) const { return gradients + 2 * as_index(stage); }
    /// From the stage with the same weights.
    std::size_t others_gradients(int stage) const { return own_gradients(stage) + 1; }
    int stage_of(std::size_t source) const { return static_cast<int>((source - gradients) / 2); }

    std::size_t cores;
    std::size_t links;
    std::size_t gradients;
    std::size_t stashes;  ///< [rank]
    std::size_t count;
};

class Simulation {
  public:
    Simulation(const Plan& plan, const Conditions& conditions, Timeline recycled)
        : schedule_(plan->schedule),
          costs_(plan, conditions),
          sources_(plan, conditions),
          blocking_(conditions.transfer == TransferMode::Blocking),
          shares_cores_(SharedCores::needed(conditions.contention)),
          shares_links_(!conditions.contention.shared_links.empty()),
          cores_(conditions.contention, plan->schedule.ranks.size()),
          links_(plan, conditions),
          offloads_(conditions.host_link.has_value()),
          host_copies_(plan, conditions),
          copies_to_come_(plan->schedule.ranks.size()),
          ranks_(plan->schedule.ranks.size()),
          network_free_(plan->schedule.ranks.size()),
          reductions_(plan->schedule.rank_of_stage.size()),
          queue_(sources_.count),
          timeline_(std::move(recycled)) {
        const std::vector<int>& rank_of = schedule_.rank_of_stage;
        const int capacity = conditions.channel_capacity.value_or(unlimited);
        for (std::size_t pair = 0; pair < pair_count(schedule_); ++pair) {
            const StagePair stages = stages_of_pair(schedule_, pair);
            const int first = rank_of[as_index(stages.from)];
            const int second = rank_of[as_index(stages.to)];
            const int places = channel_places(schedule_, stages, capacity);
            edges_.push_back({.sender = first, .receiver = second, .places = places});
            edges_.push_back({.sender = second, .receiver = first, .places = places});
        }
        timeline_.origin = Origin::Predicted;
        timeline_.ranks.resize(ranks_.size());
        for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
            timeline_.ranks[rank].resize(schedule_.ranks[rank].size());
            ranks_[rank].action = schedule_.ranks[rank].data();
            ranks_[rank].end = ranks_[rank].action + schedule_.ranks[rank].size();
            ranks_[rank].span = timeline_.ranks[rank].data();
        }
        timeline_.links.resize(edges_.size());
        for (auto& row : timeline_.links) {
            row.clear();
        }
        count_what_updates_await();
        for (const auto& row : schedule_.ranks) {
            norms_left_ += std::ranges::count(row, Op::GradientNorm, &Action::op);
        }
    }

    CountedTimeline run() {
        for (int rank = schedule_.rank_count() - 1; rank >= 0; --rank) {
            runnable_.push_back(rank);
        }
        std::int64_t events = 0;
        for (follow_all(); const auto event = queue_.take_next(); follow_all()) {
            happen(*event);
            ++events;
        }
        for (const Rank& rank : ranks_) {
            PIPETWIN_EXPECT(rank.action == rank.end, "a validated plan runs to its end");
        }
        if (std::ranges::all_of(timeline_.links, [](const auto& row) { return row.empty(); })) {
            timeline_.links.clear();
        }
        timeline_.host_copies = host_copies_.take_rows();
        return {.timeline = std::move(timeline_), .events = events};
    }

  private:
    void count_what_updates_await() {
        if (sources_.gradients == sources_.stashes) {
            return;
        }
        for (const auto& row : schedule_.ranks) {
            for (const Action& action : row) {
                if (action.op == Op::ReduceGradient) {
                    reduction(action.stage).awaited += goes_on_meanwhile(action.stage) ? 1 : 0;
                    if (const auto other = gradient_source(schedule_, action.stage)) {
                        ++reduction(*other).awaited;
                    }
                }
            }
        }
    }

    bool goes_on_meanwhile(int stage) const {
        return costs_.overlapped_reduction(stage) > Duration{};
    }

    void happen(const Event& event) {
        now_ = event.time;
        if (event.source < ranks_.size()) {
            const auto rank = static_cast<int>(event.source);
            if (ranks_[event.source].acts) {
                done(rank);
            }
            follow(rank);
        } else if (event.source >= sources_.stashes) {
            carry(copies_to_come_[event.source - sources_.stashes]);
        } else if (event.source >= sources_.gradients) {
            gradients_came(sources_.stage_of(event.source));
        } else if (event.source == sources_.links) {
            links_moved();
        } else {
            cores_moved();
        }
    }

    void follow_all() {
        while (!runnable_.empty()) {
            const int rank = runnable_.back();
            runnable_.pop_back();
            follow(rank);
        }
        announce_ends();
    }

    /// Through its row, until the rank is busy or has to wait.
    void follow(int rank) {
        Rank& state = ranks_[as_index(rank)];
        while (state.action != state.end && goes_on(rank, state, *state.action)) {
        }
    }

    /// Lets the rank begin or pass its action, with the same switch as the executor's worker.
    /// Returns whether the action took no time.
    bool goes_on(int rank, Rank& state, const Action& action) {
        if (is_compute(action.op)) {
            return (!offloads_ || has_stash(rank, state)) && compute(rank, state, action);
        }
        if (is_send(action.op)) {
            return send(rank, state, action);
        }
        if (is_receive(action.op)) {
            return receive(rank, state, action);
        }
        if (action.op == Op::ReduceGradient) {
            set_out(rank, action.stage);
        }
        if (uses_gradients(action.op)) {
            Reduction& awaited = reduction(action.stage);
            awaited.user_waits = awaited.awaited > 0;
            if (awaited.user_waits) {
                return false;
            }
        }
        if (action.op == Op::Optimizer && norms_left_ > 0) {
            norm_awaited_by_.push_back(rank);
            return false;
        }
        return compute(rank, state, action);
    }

    /// Whether the stash that the action needs is on the device; otherwise the rank waits. If it
    /// is, the action begins, and the next stash may come in.
    bool has_stash(int rank, const Rank& state) {
        const std::size_t cell = cell_of(rank, state);
        const Duration came = host_copies_.came(rank, cell);
        if (came > now_) {
            if (came != HostCopies::unknown) {
                queue_.announce(as_index(rank), came);
            }
            return false;
        }
        host_copies_.begins(rank, cell, now_);
        carry_copies();
        return true;
    }

    bool compute(int rank, Rank& state, const Action& action) {
        const Duration length = costs_.action(rank, cell_of(rank, state), action);
        state.ready = now_;
        if (length == Duration{}) {
            done(rank);
            return true;
        }
        state.acts = true;
        if (shares_cores_) {
            cores_.begin(now_, rank, length);
            cores_changed_ = true;
        } else {
            queue_.announce(as_index(rank), now_ + length);
        }
        return false;
    }

    std::size_t cell_of(int rank, const Rank& state) const {
        return static_cast<std::size_t>(state.action - schedule_.ranks[as_index(rank)].data());
    }

    /// Hands the message over, if there is room; otherwise the rank waits.
    bool send(int rank, Rank& state, const Action& action) {
        const int index = edge_of(schedule_, action);
        Edge& edge = edge_at(index);
        edge.sender_waits = !edge.has_room();
        if (edge.sender_waits) {
            return false;
        }
        ++edge.handed_over;
        state.ready = now_;
        if (shares_links_ && links_.is_shared(index)) {
            state.acts = blocking_;
            links_.send(now_, index, action);
            links_changed_ = true;
        } else {
            const Duration leaves = std::max(now_, edge.link_free);
            edge.link_free = leaves + costs_.message(index, action.micro_batch);
            carried(index, action, leaves, edge.link_free);
            state.acts = blocking_ && edge.link_free > now_;
            if (state.acts) {
                queue_.announce(as_index(rank), edge.link_free);
            }
        }
        if (!state.acts) {
            state.done(now_);
        }
        return !state.acts;
    }

    /// The message's way is settled. Its arrival is an event only for a receiver that waits.
    void carried(int index, const Action& send, Duration begin, Duration end) {
        timeline_.links[as_index(index)].push_back(
            {.action = send, .begin = begin, .ready = begin, .end = end});
        Edge& edge = edge_at(index);
        const Duration arrival = end + costs_.latency(index);
        edge.arrivals.push(arrival);
        if (edge.receiver_waits) {
            edge.receiver_waits = false;
            queue_.announce(as_index(edge.receiver), arrival);
        }
    }

    /// Takes the message, if it has arrived; otherwise the rank waits.
    bool receive(int rank, Rank& state, const Action& action) {
        Edge& edge = edge_at(edge_of(schedule_, action));
        edge.receives_begun = edge.taken + 1;
        bool arrived = false;
        if (edge.arrivals.empty()) {
            edge.receiver_waits = true;
        } else if (edge.arrivals.front() > now_) {
            queue_.announce(as_index(rank), edge.arrivals.front());
        } else {
            edge.arrivals.pop();
            ++edge.taken;
            state.ready = now_;
            state.done(now_);
            arrived = true;
        }
        if (edge.sender_waits && edge.has_room()) {
            wake(edge.sender_waits, edge.sender);
        }
        return arrived;
    }

    /// The stage's gradients set out; the rank does not wait for them.
    void set_out(int rank, int stage) {
        if (goes_on_meanwhile(stage)) {
            Duration& network = network_free_[as_index(rank)];
            network = costs_.summed(stage, network, now_);
            queue_.announce(sources_.own_gradients(stage), network);
        }
        if (const auto other = gradient_source(schedule_, stage)) {
            queue_.announce(sources_.others_gradients(*other),
                            now_ + costs_.hand_over_of_gradients(stage));
        }
    }

    void gradients_came(int stage) {
        Reduction& awaited = reduction(stage);
        if (--awaited.awaited == 0) {
            wake(awaited.user_waits, schedule_.rank_of_stage[as_index(stage)]);
        }
    }

    void cores_moved() {
        for (const int rank : cores_.take_done(now_)) {
            finish(rank);
        }
        cores_changed_ = true;
    }

    /// Announces the ends of shared work, once all that happens at this moment has been followed:
    /// each change may make an end earlier or later. An announcement that is not renewed is an
    /// event at which nothing happens.
    void announce_ends() {
        if (cores_changed_) {
            cores_changed_ = false;
            if (const auto next = cores_.next_end()) {
                queue_.announce(sources_.cores, *next);
            }
        }
        if (links_changed_) {
            links_changed_ = false;
            if (const auto next = links_.next_end()) {
                queue_.announce(sources_.links, *next);
            }
        }
    }

    void links_moved() {
        for (const SharedLinks::Carried& done : links_.take_done(now_)) {
            if (const auto way = links_.way_of_copy(done)) {
                copied(*way, done.begin);
                continue;
            }
            carried(done.owner, done.action, done.begin, now_);
            if (blocking_) {
                finish(edge_at(done.owner).sender);
            }
        }
        links_changed_ = true;
    }

    /// Stashes that may set out now or later, over links that they share with others.
    void carry_copies() {
        for (const HostCopies::Wish& wish : host_copies_.take_wishes()) {
            if (wish.earliest <= now_) {
                carry(wish);
                continue;
            }
            const std::size_t rank = as_index(wish.way / 2);
            copies_to_come_[rank] = wish;  // one at a time: the next one is let in after it is used
            queue_.announce(sources_.stashes + rank, wish.earliest);
        }
    }

    void carry(const HostCopies::Wish& wish) {
        links_.copy(now_, wish.way, wish.action, wish.units);
        links_changed_ = true;
    }

    /// A rank that waits for the stash goes on when the copy is complete.
    void copied(int way, Duration begin) {
        const Duration complete = host_copies_.through(way, begin, now_);
        const int rank = way / 2;
        const Rank& state = ranks_[as_index(rank)];
        if (way % 2 == 1 && state.action != state.end && !state.acts &&
            is_compute(state.action->op) &&
            host_copies_.came(rank, cell_of(rank, state)) == complete) {
            queue_.announce(as_index(rank), complete);
        }
        carry_copies();
    }

    /// The action at hand is over, and the rank turns to the next.
    void finish(int rank) {
        done(rank);
        runnable_.push_back(rank);
    }

    void done(int rank) {
        Rank& state = ranks_[as_index(rank)];
        if (offloads_) {
            host_copies_.ends(rank, cell_of(rank, state), now_);
            carry_copies();
        }
        const bool norm = state.action->op == Op::GradientNorm;
        state.done(now_);
        if (norm && --norms_left_ == 0) {
            std::ranges::copy(norm_awaited_by_, std::back_inserter(runnable_));
            norm_awaited_by_.clear();
        }
    }

    void wake(bool& waits, int rank) {
        if (waits) {
            waits = false;
            runnable_.push_back(rank);
        }
    }

    Edge& edge_at(int index) { return edges_[as_index(index)]; }
    Reduction& reduction(int stage) { return reductions_[as_index(stage)]; }

    static constexpr int unlimited = 1 << 30;

    const Schedule& schedule_;
    StepCosts costs_;
    Sources sources_;
    bool blocking_;
    bool shares_cores_;
    bool shares_links_;
    bool cores_changed_ = false;
    bool links_changed_ = false;
    SharedCores cores_;
    SharedLinks links_;
    bool offloads_;
    HostCopies host_copies_;
    std::vector<HostCopies::Wish> copies_to_come_;  ///< [rank]
    std::vector<Rank> ranks_;
    std::vector<Duration> network_free_;  ///< [rank]: of its overlapped reductions
    std::vector<Edge> edges_;
    std::vector<Reduction> reductions_;  ///< [stage]
    std::ptrdiff_t norms_left_ = 0;
    std::vector<int> norm_awaited_by_;  ///< ranks
    std::vector<int> runnable_;         ///< ranks that can go on now
    EventQueue queue_;
    Duration now_{};
    Timeline timeline_;
};

}  // namespace

CountedTimeline by_counted_events(const Plan& plan,
                                  const Conditions& conditions,
                                  Timeline recycled) {
    return Simulation(plan, conditions, std::move(recycled)).run();
}

Timeline by_events(const Plan& plan, const Conditions& conditions, Timeline recycled) {
    return by_counted_events(plan, conditions, std::move(recycled)).timeline;
}

}  // namespace pipetwin::sim
