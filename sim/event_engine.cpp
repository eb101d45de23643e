#include "sim/event_engine.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/edge.h"
#include "core/error.h"
#include "sim/event_queue.h"
#include "sim/fifo.h"
#include "sim/shared_links.h"
#include "sim/shared_work.h"
#include "sim/step_costs.h"

namespace pipetwin::sim {

namespace {

/// Messages over one boundary in one direction. First in, first out, so counters tell which message
/// is meant:
///
///     handed over  >=  taken            receives begun is taken, or taken + 1
struct Edge {
    int sender = 0;  ///< ranks
    int receiver = 0;
    Duration link_free{};       ///< when the link can take the next message
    Fifo<Duration> arrivals{};  ///< of messages whose way is settled, and that are not taken yet
    int handed_over = 0;
    int receives_begun = 0;
    int taken = 0;
    bool sender_waits = false;
    bool receiver_waits = false;

    /// Room for one more? With capacity 0 a message needs a receive that has begun.
    bool has_room(std::optional<int> capacity) const {
        return !capacity || handed_over < std::max(taken + *capacity, receives_begun);
    }
};

/// What a stage's update waits for: its own gradients' way over the replicas, and those of the
/// stage with the same weights.
struct Reduction {
    int awaited = 0;
    bool update_waits = false;
};

struct Rank {
    const Action* actions = nullptr;  ///< the one at hand, and those that follow
    const Action* actions_end = nullptr;
    Span* span = nullptr;    ///< of the action at hand
    bool in_action = false;  ///< has turned to it
    Duration network_free{};
};

/// Ranks that share processors, or disturb each other.
class SharedCores {
  public:
    SharedCores(const Contention& contention, std::size_t ranks)
        : work_({contention.cores > 0 ? contention.cores * full_speed
                                      : std::numeric_limits<std::int64_t>::max()}) {
        for (const auto& row : contention.interference) {
            auto& shares = interference_.emplace_back();
            for (const double share : row) {
                shares.push_back(std::llround(share * static_cast<double>(one)));
            }
        }
        interference_.resize(ranks);
    }

    void begin(Duration now, int rank, Duration length) {
        busy_.push_back(rank);
        work_.begin(now, rank, Units{length.count()} * one, {.most = full_speed, .shared = {0}});
        limit_all(now);
    }

    std::vector<int> take_done(Duration now) {
        std::vector<int> done = work_.take_done(now);
        for (const int rank : done) {
            std::erase(busy_, rank);
        }
        limit_all(now);
        return done;
    }

    std::optional<Duration> next_end() { return work_.next_end(); }

  private:
    void limit_all(Duration now) {
        for (const int rank : busy_) {
            std::int64_t slowness = one;
            const auto& shares = interference_[static_cast<std::size_t>(rank)];
            for (const int other : busy_) {
                const bool disturbs = other != rank && !shares.empty();
                slowness += disturbs ? shares[static_cast<std::size_t>(other)] : 0;
            }
            work_.limit(now, rank, static_cast<std::int64_t>(Units{full_speed} * one / slowness));
        }
    }

    /// A nanosecond of work is this many units, so that speeds have room for fractions: those of
    /// up to 16 ranks on one processor are exact, as each number up to 16 divides it.
    static constexpr std::int64_t one = 720'720;
    static constexpr std::int64_t full_speed = one * std::nano::den;

    SharedWork work_;
    std::vector<std::vector<std::int64_t>> interference_;
    std::vector<int> busy_;
};

class Simulation {
  public:
    Simulation(const Plan& plan, const Conditions& conditions, Timeline recycled)
        : schedule_(plan->schedule),
          conditions_(conditions),
          costs_(plan, conditions),
          cores_(conditions.contention, plan->schedule.ranks.size()),
          links_(plan, conditions),
          shares_cores_(conditions.contention.cores > 0 ||
                        !conditions.contention.interference.empty()),
          ranks_(plan->schedule.ranks.size()),
          reductions_(plan->schedule.rank_of_stage.size()),
          timeline_(std::move(recycled)) {
        const std::vector<int>& rank_of = schedule_.rank_of_stage;
        for (std::size_t boundary = 0; boundary + 1 < rank_of.size(); ++boundary) {
            edges_.push_back({.sender = rank_of[boundary], .receiver = rank_of[boundary + 1]});
            edges_.push_back({.sender = rank_of[boundary + 1], .receiver = rank_of[boundary]});
        }
        timeline_.origin = Origin::Predicted;
        timeline_.ranks.resize(ranks_.size());
        for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
            timeline_.ranks[rank].resize(schedule_.ranks[rank].size());
            ranks_[rank].actions = schedule_.ranks[rank].data();
            ranks_[rank].actions_end = ranks_[rank].actions + schedule_.ranks[rank].size();
            ranks_[rank].span = timeline_.ranks[rank].data();
        }
        timeline_.links.resize(edges_.size());
        for (auto& row : timeline_.links) {
            row.clear();
        }
        count_what_updates_await();
    }

    CountedTimeline run() {
        for (int rank = schedule_.rank_count() - 1; rank >= 0; --rank) {
            runnable_.push_back(rank);
        }
        std::int64_t events = 0;
        for (follow_all(); !queue_.empty(); follow_all()) {
            happen(queue_.take_next());
            ++events;
        }
        for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
            PIPETWIN_EXPECT(ranks_[rank].actions == ranks_[rank].actions_end,
                            "a validated plan runs to its end");
        }
        if (std::ranges::all_of(timeline_.links, [](const auto& row) { return row.empty(); })) {
            timeline_.links.clear();
        }
        return {.timeline = std::move(timeline_), .events = events};
    }

  private:
    void count_what_updates_await() {
        for (const auto& row : schedule_.ranks) {
            for (const Action& action : row) {
                if (action.op == Op::ReduceGradient) {
                    reduction(action.stage).awaited += goes_on_meanwhile(action.stage) ? 1 : 0;
                    if (const auto twin = twin_of(schedule_, action.stage)) {
                        ++reduction(*twin).awaited;
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
        switch (event.kind) {
            case EventKind::RankFree:
                finish(event.index);
                break;
            case EventKind::MessageCame:
                runnable_.push_back(event.index);
                break;
            case EventKind::GradientsCame: {
                Reduction& awaited = reduction(event.index);
                if (--awaited.awaited == 0) {
                    wake(awaited.update_waits, rank_of(event.index));
                }
                break;
            }
            case EventKind::CoresMoved:
                cores_moved();
                break;
            case EventKind::LinksMoved:
                links_moved();
                break;
        }
    }

    void follow_all() {
        while (!runnable_.empty()) {
            const int rank = runnable_.back();
            runnable_.pop_back();
            follow(rank);
        }
    }

    /// Through its row, until the rank is busy or has to wait.
    void follow(int rank) {
        Rank& state = ranks_[static_cast<std::size_t>(rank)];
        while (state.actions != state.actions_end) {
            const Action& action = *state.actions;
            if (!state.in_action) {
                state.in_action = true;
                state.span->action = action;
                state.span->begin = now_;
                if (is_receive(action.op)) {
                    ++edge_at(edge_of(action)).receives_begun;
                }
            }
            if (!goes_on(rank, state, action)) {
                return;
            }
        }
    }

    /// The same switch as the executor's worker. Returns whether the action took no time.
    bool goes_on(int rank, Rank& state, const Action& action) {
        if (is_compute(action.op)) {
            return compute(rank, state, action);
        }
        if (is_send(action.op)) {
            return send(rank, state, action);
        }
        if (is_receive(action.op)) {
            return receive(state, action);
        }
        if (action.op == Op::ReduceGradient) {
            set_out(state, action.stage);
        }
        if (action.op == Op::Optimizer) {
            Reduction& awaited = reduction(action.stage);
            awaited.update_waits = awaited.awaited > 0;
            if (awaited.update_waits) {
                return false;
            }
        }
        return compute(rank, state, action);
    }

    bool compute(int rank, Rank& state, const Action& action) {
        state.span->ready = now_;
        const Duration length = costs_.action(rank, cell_of(rank, state), action);
        if (length == Duration{}) {
            return done(state);
        }
        if (shares_cores_) {
            cores_.begin(now_, rank, length);
            announce_cores();
        } else {
            queue_.announce(now_ + length, EventKind::RankFree, rank);
        }
        return false;
    }

    std::size_t cell_of(int rank, const Rank& state) const {
        return static_cast<std::size_t>(state.actions -
                                        schedule_.ranks[static_cast<std::size_t>(rank)].data());
    }

    /// Hands the message over, if there is room; otherwise the rank waits.
    bool send(int rank, Rank& state, const Action& action) {
        const int index = edge_of(action);
        Edge& edge = edge_at(index);
        edge.sender_waits = !edge.has_room(conditions_.channel_capacity);
        if (edge.sender_waits) {
            return false;
        }
        state.span->ready = now_;
        ++edge.handed_over;
        const bool blocks = conditions_.transfer == TransferMode::Blocking;
        if (links_.is_shared(index)) {
            links_.request(now_, index, action);
            announce_links();
            return !blocks && done(state);
        }
        const Duration leaves = std::max(now_, edge.link_free);
        edge.link_free = leaves + costs_.message(index, action.micro_batch);
        carried(index, action, leaves, edge.link_free);
        if (!blocks || edge.link_free == now_) {
            return done(state);
        }
        queue_.announce(edge.link_free, EventKind::RankFree, rank);
        return false;
    }

    /// The message's way is settled. Its arrival is an event only for a receiver that waits.
    void carried(int index, const Action& send, Duration begin, Duration end) {
        timeline_.links[static_cast<std::size_t>(index)].push_back(
            {.action = send, .begin = begin, .ready = begin, .end = end});
        Edge& edge = edge_at(index);
        const Duration arrival = end + costs_.latency(index);
        edge.arrivals.push(arrival);
        if (edge.receiver_waits) {
            edge.receiver_waits = false;
            queue_.announce(arrival, EventKind::MessageCame, edge.receiver);
        }
    }

    /// Takes the message, if it has arrived; otherwise the rank waits.
    bool receive(Rank& state, const Action& action) {
        Edge& edge = edge_at(edge_of(action));
        bool arrived = false;
        if (edge.arrivals.empty()) {
            edge.receiver_waits = true;
        } else if (edge.arrivals.front() > now_) {
            queue_.announce(edge.arrivals.front(), EventKind::MessageCame, edge.receiver);
        } else {
            arrived = true;
            edge.arrivals.pop();
            state.span->ready = now_;
            ++edge.taken;
        }
        if (edge.sender_waits && edge.has_room(conditions_.channel_capacity)) {
            wake(edge.sender_waits, edge.sender);
        }
        return arrived && done(state);
    }

    /// The stage's gradients set out; the rank does not wait for them.
    void set_out(Rank& state, int stage) {
        if (goes_on_meanwhile(stage)) {
            Duration& network = state.network_free;
            network = std::max(network, now_) + costs_.overlapped_reduction(stage);
            queue_.announce(network, EventKind::GradientsCame, stage);
        }
        if (const auto twin = twin_of(schedule_, stage)) {
            queue_.announce(
                now_ + costs_.hand_over_of_gradients(stage), EventKind::GradientsCame, *twin);
        }
    }

    void announce_cores() {
        if (const auto next = cores_.next_end()) {
            queue_.announce(*next, EventKind::CoresMoved, 0);
        }
    }

    /// The announcement may be out of date: then nothing is done yet, and the right one comes.
    void cores_moved() {
        const std::vector<int> done = cores_.take_done(now_);
        for (const int rank : done) {
            finish(rank);
        }
        if (!done.empty()) {
            announce_cores();
        }
    }

    void announce_links() {
        if (const auto next = links_.next_end()) {
            queue_.announce(*next, EventKind::LinksMoved, 0);
        }
    }

    void links_moved() {
        const std::vector<SharedLinks::Carried> through = links_.take_done(now_);
        for (const SharedLinks::Carried& message : through) {
            carried(message.edge, message.send, message.begin, now_);
            if (conditions_.transfer == TransferMode::Blocking) {
                finish(edge_at(message.edge).sender);
            }
        }
        if (!through.empty()) {
            announce_links();
        }
    }

    /// The action at hand is over, and the rank turns to the next.
    void finish(int rank) {
        done(ranks_[static_cast<std::size_t>(rank)]);
        runnable_.push_back(rank);
    }

    bool done(Rank& state) {
        state.span->end = now_;
        state.in_action = false;
        ++state.actions;
        ++state.span;
        return true;
    }

    void wake(bool& waits, int rank) {
        if (waits) {
            waits = false;
            runnable_.push_back(rank);
        }
    }

    int rank_of(int stage) const {
        return schedule_.rank_of_stage[static_cast<std::size_t>(stage)];
    }
    Edge& edge_at(int index) { return edges_[static_cast<std::size_t>(index)]; }
    Reduction& reduction(int stage) { return reductions_[static_cast<std::size_t>(stage)]; }

    const Schedule& schedule_;
    const Conditions& conditions_;
    StepCosts costs_;
    SharedCores cores_;
    SharedLinks links_;
    bool shares_cores_;
    std::vector<Rank> ranks_;
    std::vector<Edge> edges_;
    std::vector<Reduction> reductions_;  ///< [stage]
    std::vector<int> runnable_;          ///< ranks that can go on now
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
