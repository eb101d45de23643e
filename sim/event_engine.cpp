#include "sim/event_engine.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/edge.h"
#include "core/error.h"
#include "sim/event_queue.h"
#include "sim/shared_links.h"
#include "sim/shared_work.h"
#include "sim/step_costs.h"

namespace pipetwin::sim {

namespace {

/// Messages over one boundary in one direction. First in, first out, so counters tell which message
/// is meant:
///
///     handed over  >=  arrived  >=  taken            receives begun is taken, or taken + 1
struct Edge {
    int sender = 0;  ///< ranks
    int receiver = 0;
    Duration link_free{};  ///< when the link can take the next message
    int handed_over = 0;
    int arrived = 0;
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
    std::size_t cell = 0;
    bool in_action = false;  ///< has turned to the action at `cell`
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
        work_.begin(now, rank, length.count() * one, {.most = full_speed, .shared = {0}});
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
            work_.limit(now, rank, full_speed / slowness * one);
        }
    }

    /// A nanosecond of work is `one` unit, so that speeds have room for fractions.
    static constexpr std::int64_t one = 1 << 20;
    static constexpr std::int64_t full_speed = one * std::nano::den;

    SharedWork work_;
    std::vector<std::vector<std::int64_t>> interference_;
    std::vector<int> busy_;
};

class Simulation {
  public:
    Simulation(const Plan& plan, const Conditions& conditions)
        : schedule_(plan->schedule),
          conditions_(conditions),
          costs_(plan, conditions),
          cores_(conditions.contention, plan->schedule.ranks.size()),
          links_(plan, conditions),
          shares_cores_(conditions.contention.cores > 0 ||
                        !conditions.contention.interference.empty()),
          ranks_(plan->schedule.ranks.size()),
          reductions_(plan->schedule.rank_of_stage.size()) {
        const std::vector<int>& rank_of = schedule_.rank_of_stage;
        for (std::size_t boundary = 0; boundary + 1 < rank_of.size(); ++boundary) {
            edges_.push_back({.sender = rank_of[boundary], .receiver = rank_of[boundary + 1]});
            edges_.push_back({.sender = rank_of[boundary + 1], .receiver = rank_of[boundary]});
        }
        timeline_.origin = Origin::Predicted;
        for (const auto& row : schedule_.ranks) {
            auto& spans = timeline_.ranks.emplace_back();
            spans.reserve(row.size());
            for (const Action& action : row) {
                spans.push_back({.action = action});
            }
        }
        timeline_.links.resize(edges_.size());
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
            PIPETWIN_EXPECT(ranks_[rank].cell == timeline_.ranks[rank].size(),
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
            case EventKind::MessageArrived: {
                Edge& edge = edge_at(event.index);
                ++edge.arrived;
                wake(edge.receiver_waits, edge.receiver);
                break;
            }
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
            while (turn_to_next(rank)) {
            }
        }
    }

    /// The same switch as the executor's worker. Returns whether the rank can go on at once.
    bool turn_to_next(int rank) {
        Rank& state = ranks_[static_cast<std::size_t>(rank)];
        auto& row = timeline_.ranks[static_cast<std::size_t>(rank)];
        if (state.cell == row.size()) {
            return false;
        }
        Span& span = row[state.cell];
        const bool turns = !state.in_action;
        if (turns) {
            state.in_action = true;
            span.begin = now_;
        }
        switch (span.action.op) {
            case Op::Forward:
            case Op::Backward:
            case Op::BackwardInput:
            case Op::BackwardWeight:
            case Op::Recompute:
            case Op::Unshard:
            case Op::Reshard:
                return compute(rank, span);
            case Op::ReduceGradient:
                set_out(rank, span.action.stage);
                return compute(rank, span);
            case Op::Optimizer: {
                Reduction& awaited = reduction(span.action.stage);
                awaited.update_waits = awaited.awaited > 0;
                return !awaited.update_waits && compute(rank, span);
            }
            case Op::SendForward:
            case Op::SendBackward:
                return send(rank, span);
            case Op::RecvForward:
            case Op::RecvBackward:
                return receive(rank, span, turns);
        }
        return false;
    }

    bool compute(int rank, Span& span) {
        span.ready = now_;
        const Duration length = costs_.action(static_cast<std::size_t>(rank),
                                              ranks_[static_cast<std::size_t>(rank)].cell,
                                              span.action);
        if (length == Duration{}) {
            return done(rank, span);
        }
        if (shares_cores_) {
            cores_.begin(now_, rank, length);
            announce_cores();
        } else {
            queue_.announce(now_ + length, EventKind::RankFree, rank);
        }
        return false;
    }

    /// Hands the message over, if there is room; otherwise the rank waits.
    bool send(int rank, Span& span) {
        const int index = edge_of(span.action);
        Edge& edge = edge_at(index);
        edge.sender_waits = !edge.has_room(conditions_.channel_capacity);
        if (edge.sender_waits) {
            return false;
        }
        span.ready = now_;
        ++edge.handed_over;
        const bool blocks = conditions_.transfer == TransferMode::Blocking;
        if (links_.is_shared(index)) {
            links_.request(now_, index, span.action);
            announce_links();
            return !blocks && done(rank, span);
        }
        const Duration leaves = std::max(now_, edge.link_free);
        edge.link_free = leaves + costs_.message(index, span.action.micro_batch);
        carried(index, span.action, leaves, edge.link_free);
        if (!blocks || edge.link_free == now_) {
            return done(rank, span);
        }
        queue_.announce(edge.link_free, EventKind::RankFree, rank);
        return false;
    }

    void carried(int index, const Action& send, Duration begin, Duration end) {
        timeline_.links[static_cast<std::size_t>(index)].push_back(
            {.action = send, .begin = begin, .ready = begin, .end = end});
        queue_.announce(end + costs_.latency(index), EventKind::MessageArrived, index);
    }

    /// Takes the message, if it has arrived; otherwise the rank waits.
    bool receive(int rank, Span& span, bool turns) {
        Edge& edge = edge_at(edge_of(span.action));
        edge.receives_begun += turns ? 1 : 0;
        edge.receiver_waits = edge.arrived == edge.taken;
        if (!edge.receiver_waits) {
            span.ready = now_;
            ++edge.taken;
        }
        if (edge.has_room(conditions_.channel_capacity)) {
            wake(edge.sender_waits, edge.sender);
        }
        return !edge.receiver_waits && done(rank, span);
    }

    /// The stage's gradients set out; the rank does not wait for them.
    void set_out(int rank, int stage) {
        if (goes_on_meanwhile(stage)) {
            Duration& network = ranks_[static_cast<std::size_t>(rank)].network_free;
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
        done(rank,
             timeline_.ranks[static_cast<std::size_t>(rank)]
                            [ranks_[static_cast<std::size_t>(rank)].cell]);
        runnable_.push_back(rank);
    }

    bool done(int rank, Span& span) {
        span.end = now_;
        Rank& state = ranks_[static_cast<std::size_t>(rank)];
        state.in_action = false;
        ++state.cell;
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

CountedTimeline by_counted_events(const Plan& plan, const Conditions& conditions) {
    return Simulation(plan, conditions).run();
}

Timeline by_events(const Plan& plan, const Conditions& conditions) {
    return by_counted_events(plan, conditions).timeline;
}

}  // namespace pipetwin::sim
