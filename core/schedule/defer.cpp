// SPDX-License-Identifier: Apache-2.0
#include "core/schedule/defer.h"

#include <algorithm>
#include <array>
#include <deque>
#include <optional>
#include <span>
#include <utility>

#include <queue>

#include "core/base/as_index.h"
#include "core/base/error.h"
#include "core/schedule/lower.h"

namespace pipetwin {

namespace {

using Row = std::vector<Action>;

constexpr Duration unknown{-1};

bool passes_gradient_on(const Action& action) {
    return action.op == Op::Backward || action.op == Op::BackwardInput;
}

/// Times at which the results of F and of I (or B) of every stage and micro-batch are complete.
class Ends {
  public:
    explicit Ends(const Schedule& schedule)
        : micro_batches_(as_index(schedule.micro_batches)),
          forward_(schedule.rank_of_stage.size() * micro_batches_, unknown),
          backward_(forward_) {}

    Duration forward(int stage, int k) const { return forward_[index(stage, k)]; }
    Duration backward(int stage, int k) const { return backward_[index(stage, k)]; }

    void put(const Action& action, Duration end) {
        if (action.op == Op::Forward) {
            forward_[index(action.stage, action.micro_batch)] = end;
        } else if (passes_gradient_on(action)) {
            backward_[index(action.stage, action.micro_batch)] = end;
        }
    }

  private:
    std::size_t index(int stage, int k) const {
        return as_index(stage) * micro_batches_ + as_index(k);
    }
    std::size_t micro_batches_;
    std::vector<Duration> forward_;
    std::vector<Duration> backward_;
};

/// One run of the rows in the order of time: as they are, or with W moved into gaps.
class Walk {
  public:
    Walk(const Schedule& schedule, const DeferralCosts& costs)
        : schedule_(schedule), costs_(costs), ends_(schedule), ranks_(schedule.ranks.size()) {}

    /// Simulates the rows as they are; returns the end of the last rank.
    Duration time_of_rows() {
        for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
            ranks_[rank].fixed = schedule_.ranks[rank];
        }
        run();
        return last_end_;
    }

    /// Simulates the rows with each W moved into the first gap that has at least `quarters`
    /// quarters of its length; returns the end of the last rank and the new rows.
    std::pair<Duration, Schedule> defer(int quarters) {
        quarters_ = quarters;
        for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
            std::ranges::copy_if(schedule_.ranks[rank],
                                 std::back_inserter(ranks_[rank].fixed),
                                 [](const Action& a) { return a.op != Op::BackwardWeight; });
            ranks_[rank].defers = true;
        }
        run();
        Schedule result = schedule_;
        for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
            result.ranks[rank] = std::move(ranks_[rank].done);
        }
        return {last_end_, std::move(result)};
    }

  private:
    struct RankState {
        Row fixed;  ///< in this order
        std::size_t next = 0;
        bool defers = false;
        std::deque<Action> waiting;  ///< W whose I is done, the oldest first
        Row done;
        Duration free{};
    };

    void run() {
        for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
            wake(Duration{}, rank);
        }
        while (!moments_.empty()) {
            const auto [time, rank] = moments_.top();
            moments_.pop();
            if (time >= ranks_[rank].free) {
                turn(ranks_[rank], rank, time);
            }
        }
        for (const RankState& rank : ranks_) {
            PIPETWIN_EXPECT(rank.next == rank.fixed.size(), "a valid schedule runs to its end");
        }
    }

    /// What the rank does at this moment: the next action of its row, a W, or nothing.
    void turn(RankState& rank, std::size_t index, Duration now) {
        if (rank.next == rank.fixed.size()) {
            if (!rank.waiting.empty()) {
                catch_up(rank, index, now);
            }
            return;
        }
        const std::span<const Action> next = next_of(rank);
        const Duration arrival = arrival_of(next);
        if (too_many_wait(rank, next.front())) {
            catch_up(rank, index, now);
        } else if (arrival != unknown && arrival <= now) {
            start(rank, index, now);
        } else if (fits(rank, next, arrival, now)) {
            catch_up(rank, index, now);
        } else if (arrival != unknown) {
            wake(arrival, index);
        }  // else the rank that begins to make what is missing wakes this rank
    }

    /// The next action of the row, or the pair that begins there.
    static std::span<const Action> next_of(const RankState& rank) {
        const std::size_t count = rank.fixed[rank.next].with_next ? 2 : 1;
        return std::span(rank.fixed).subspan(rank.next, count);
    }

    bool too_many_wait(const RankState& rank, const Action& next) const {
        return next.op == Op::BackwardInput && rank.defers && costs_.most_waiting > 0 &&
               std::ssize(rank.waiting) >= costs_.most_waiting;
    }

    /// The oldest W is over before the next action of the row can begin, or nearly. What has not
    /// begun to be made cannot be here before it has been made and has travelled.
    bool fits(const RankState& rank,
              std::span<const Action> next,
              Duration arrival,
              Duration now) const {
        if (rank.waiting.empty()) {
            return false;
        }
        Duration gap = arrival - now;
        if (arrival == unknown) {
            gap = costs_.latency;
            for (const Action& action : next) {
                const auto needed = needed_by(action);
                gap += needed && end_of(*needed) == unknown ? duration(*needed) : Duration{};
            }
        }
        return 4 * gap >= quarters_ * duration(rank.waiting.front());
    }

    void start(RankState& rank, std::size_t index, Duration now) {
        const std::span<const Action> group = next_of(rank);
        Duration end = now;
        for (const Action& action : group) {
            end += duration(action);
            rank.done.push_back(action);
            if (rank.defers && action.op == Op::BackwardInput) {
                rank.waiting.push_back(
                    {Op::BackwardWeight, action.stage, action.micro_batch, false});
            }
        }
        for (const Action& action : group) {
            ends_.put(action, end);
            wake_who_needs(action, now);
        }
        rank.next += group.size();
        finish(rank, index, end);
    }

    void catch_up(RankState& rank, std::size_t index, Duration now) {
        const Action weight = rank.waiting.front();
        rank.waiting.pop_front();
        rank.done.push_back(weight);
        finish(rank, index, now + duration(weight));
    }

    void finish(RankState& rank, std::size_t index, Duration end) {
        rank.free = end;
        last_end_ = std::max(last_end_, end);
        wake(end, index);
    }

    // --- Between stages. ---

    /// The action of another stage whose result this one needs first; none for the model's input
    /// and its loss.
    std::optional<Action> needed_by(const Action& action) const {
        if (action.op == Op::Forward && has_stage_before(schedule_, action.stage)) {
            return Action{Op::Forward, action.stage - 1, action.micro_batch, false};
        }
        if (passes_gradient_on(action) && has_next_stage(schedule_, action.stage)) {
            return Action{Op::BackwardInput, action.stage + 1, action.micro_batch, false};
        }
        return std::nullopt;
    }

    /// Time at which everything that the actions need is there; unknown before all of it has begun
    /// to be made.
    Duration arrival_of(std::span<const Action> actions) const {
        Duration latest{};
        for (const Action& action : actions) {
            if (const auto needed = needed_by(action)) {
                const Duration end = end_of(*needed);
                if (end == unknown) {
                    return unknown;
                }
                const bool travels = rank_of(needed->stage) != rank_of(action.stage);
                latest = std::max(latest, end + (travels ? costs_.latency : Duration{}));
            }
        }
        return latest;
    }

    Duration end_of(const Action& action) const {
        return action.op == Op::Forward ? ends_.forward(action.stage, action.micro_batch)
                                        : ends_.backward(action.stage, action.micro_batch);
    }

    void wake_who_needs(const Action& action, Duration now) {
        const int stage = action.op == Op::Forward ? action.stage + 1 : action.stage - 1;
        const bool exists = action.op == Op::Forward ? has_next_stage(schedule_, action.stage)
                                                     : has_stage_before(schedule_, action.stage);
        if (exists) {
            wake(now, static_cast<std::size_t>(rank_of(stage)));
        }
    }

    int rank_of(int stage) const { return schedule_.rank_of_stage[as_index(stage)]; }

    Duration duration(const Action& action) const {
        const std::size_t stage = as_index(action.stage);
        switch (action.op) {
            case Op::Forward:
                return costs_.forward[stage];
            case Op::BackwardInput:
                return costs_.backward_input[stage];
            case Op::BackwardWeight:
                return costs_.backward_weight[stage];
            default:
                return costs_.backward_input[stage] + costs_.backward_weight[stage];
        }
    }

    void wake(Duration time, std::size_t rank) { moments_.emplace(time, rank); }

    const Schedule& schedule_;
    const DeferralCosts& costs_;
    int quarters_ = 4;
    Ends ends_;
    std::vector<RankState> ranks_;
    using Moment = std::pair<Duration, std::size_t>;
    std::priority_queue<Moment, std::vector<Moment>, std::greater<>> moments_;
    Duration last_end_{};
};

}  // namespace

Schedule defer_weight_gradients(const Schedule& schedule, const DeferralCosts& costs) {
    for (const auto* list : {&costs.forward, &costs.backward_input, &costs.backward_weight}) {
        PIPETWIN_EXPECT(list->size() == schedule.rank_of_stage.size(), "one cost per stage");
    }
    Schedule best = split_backward(schedule);
    const Schedule split = best;
    Duration shortest = Walk(split, costs).time_of_rows();
    for (const int quarters : std::array{4, 3, 2, 1, 0}) {
        auto [time, deferred] = Walk(split, costs).defer(quarters);
        if (time < shortest) {
            shortest = time;
            best = std::move(deferred);
        }
    }
    return best;
}

}  // namespace pipetwin
