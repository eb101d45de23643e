// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <optional>

#include "core/base/as_index.h"
#include "core/base/error.h"
#include "core/schedule/generators/zb_auto_search.h"

namespace pipetwin::schedules {

namespace {

/// Which rank acts next: a tournament, the winner of each pair one level up.
///
///             2            earliest
///         /       \         .
///        0         2
///      /   \     /   \      .
///     0     1   2     3    ranks
class Clock {
  public:
    explicit Clock(int ranks) : wakes_(as_index(ranks), Duration{}) {
        while (leaves_ < wakes_.size()) {
            leaves_ *= 2;
        }
        wakes_.resize(leaves_, never);
        winners_.resize(2 * leaves_);
        for (std::size_t leaf = 0; leaf < leaves_; ++leaf) {
            winners_[leaves_ + leaf] = leaf;
        }
        for (std::size_t node = leaves_ - 1; node > 0; --node) {
            play(node);
        }
    }

    std::size_t earliest() const { return winners_[1]; }
    Duration wake(std::size_t rank) const { return wakes_[rank]; }

    void set(std::size_t rank, Duration wake) {
        wakes_[rank] = wake;
        for (std::size_t node = (leaves_ + rank) / 2; node > 0; node /= 2) {
            play(node);
        }
    }

  private:
    /// Sets the winner of a node. The lower rank wins a draw, so a run is the same everywhere.
    void play(std::size_t node) {
        const std::size_t left = winners_[2 * node];
        const std::size_t right = winners_[2 * node + 1];
        winners_[node] = wakes_[right] < wakes_[left] ? right : left;
    }

    std::size_t leaves_ = 1;
    std::vector<Duration> wakes_;
    std::vector<std::size_t> winners_;  ///< [1] is the root
};

/// The schedule as it grows, by rules.
class RuleRun {
  public:
    RuleRun(const ZeroBubbleProblem& problem, const std::vector<RankRule>& rules, Rows* rows)
        : problem_(problem),
          rules_(rules),
          rows_(rows),
          m_(as_index(problem.micro_batches)),
          ranks_(rules.size()),
          inputs_(rules.size() * m_, never),
          gradients_(rules.size() * m_, never),
          clock_(problem.ranks) {
        std::fill_n(inputs_.begin(), m_, Duration{});
        if (rows_ != nullptr) {
            rows_->assign(rules.size(), {});
        }
    }

    Spans run() {
        for (std::size_t left = 3 * m_ * ranks_.size(); left > 0;) {
            const std::size_t rank = clock_.earliest();
            now_ = clock_.wake(rank);
            PIPETWIN_EXPECT(now_ < never, "zb-auto: every rank waits for another");
            if (const std::optional<Op> op = choice(rank)) {
                act(rank, *op);
                --left;
            }
        }
        Spans spans;
        for (const Rank& rank : ranks_) {
            spans.add(rank.first_start, rank.free);
        }
        return spans;
    }

  private:
    struct Rank {
        Duration free{};
        Duration first_start{};
        std::int64_t held = 0;
        std::size_t forwards = 0;
        std::size_t inputs = 0;  ///< input gradients
        std::size_t weights = 0;
    };

    /// When what the next F and the next I need will be there, as far as the rank knows.
    Duration next_input(std::size_t rank) const {
        const std::size_t k = ranks_[rank].forwards;
        return k < m_ ? inputs_[rank * m_ + k] : never;
    }
    Duration next_gradient(std::size_t rank) const {
        const std::size_t k = ranks_[rank].inputs;
        return k < ranks_[rank].forwards ? gradients_[rank * m_ + k] : never;
    }

    bool may_forward(std::size_t rank) const {
        const Rank& state = ranks_[rank];
        return state.held + problem_.activation <= problem_.limit[rank] &&
               state.forwards - state.inputs < as_index(rules_[rank].in_flight);
    }

    /// Whether `gap` is at least so many quarters of `whole`.
    static bool reaches(Duration gap, int quarters, Duration whole) {
        return 4 * gap >= quarters * whole;
    }

    /// Nothing where the rank would rather wait; it sleeps until then.
    std::optional<Op> choice(std::size_t rank) {
        const RankRule& rule = rules_[rank];
        const Duration gradient = next_gradient(rank);
        const Duration input = may_forward(rank) ? next_input(rank) : never;
        const std::size_t backlog = ranks_[rank].inputs - ranks_[rank].weights;
        if (backlog >= as_index(rule.backlog)) {
            return Op::BackwardWeight;
        }
        if (gradient <= now_) {
            return Op::BackwardInput;
        }
        if (input <= now_ && (gradient == never ||
                              reaches(gradient - now_, rule.patience, problem_.forward[rank]))) {
            return Op::Forward;
        }
        const Duration next = input <= now_ ? gradient : std::min(gradient, input);
        if (backlog > 0 &&
            (next == never || reaches(next - now_, rule.gap, problem_.backward_weight[rank]))) {
            return Op::BackwardWeight;
        }
        clock_.set(rank, next);
        return std::nullopt;
    }

    void act(std::size_t rank, Op op) {
        Rank& state = ranks_[rank];
        if (state.forwards == 0) {
            state.first_start = now_;
        }
        switch (op) {
            case Op::Forward: {
                state.held += problem_.activation;
                const std::size_t k = record(rank, op, state.forwards);
                const Duration end = finish(rank, problem_.forward[rank]);
                if (rank + 1 < ranks_.size()) {
                    announce(rank + 1, inputs_[(rank + 1) * m_ + k], end + problem_.latency[rank]);
                } else {
                    gradients_[rank * m_ + k] = end;
                }
                break;
            }
            case Op::BackwardInput: {
                state.held -= problem_.activation - problem_.kept_for_weight;
                const std::size_t k = record(rank, op, state.inputs);
                const Duration end = finish(rank, problem_.backward_input[rank]);
                if (rank > 0) {
                    announce(rank - 1,
                             gradients_[(rank - 1) * m_ + k],
                             end + problem_.latency[rank - 1]);
                }
                break;
            }
            default:
                state.held -= problem_.kept_for_weight;
                record(rank, op, state.weights);
                finish(rank, problem_.backward_weight[rank]);
        }
    }

    /// The micro-batch that it is.
    std::size_t record(std::size_t rank, Op op, std::size_t& count) {
        if (rows_ != nullptr) {
            (*rows_)[rank].push_back({.op = op,
                                      .stage = static_cast<int>(rank),
                                      .micro_batch = static_cast<int>(count)});
        }
        return count++;
    }

    Duration finish(std::size_t rank, Duration duration) {
        ranks_[rank].free = now_ + duration;
        clock_.set(rank, ranks_[rank].free);
        return ranks_[rank].free;
    }

    /// A rank that waits thinks again when it hears of a message.
    void announce(std::size_t rank, Duration& arrival, Duration time) {
        arrival = time;
        if (ranks_[rank].free <= now_) {
            clock_.set(rank, now_);
        }
    }

    const ZeroBubbleProblem& problem_;
    const std::vector<RankRule>& rules_;
    Rows* rows_;
    std::size_t m_;
    std::vector<Rank> ranks_;
    std::vector<Duration> inputs_;     ///< [rank][micro-batch]: when F can begin
    std::vector<Duration> gradients_;  ///< and I
    Clock clock_;
    Duration now_{};
};

}  // namespace

Spans follow_rules(const ZeroBubbleProblem& problem,
                   const std::vector<RankRule>& rules,
                   Rows* rows) {
    return RuleRun(problem, rules, rows).run();
}

}  // namespace pipetwin::schedules
