// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "core/base/as_index.h"
#include "core/base/error.h"
#include "core/schedule/generators/zb_auto_search.h"

namespace pipetwin::schedules {

namespace {

/// Each rank runs as far as it can; the ranks take turns until all rows are through.
class RowRun {
  public:
    RowRun(const ZeroBubbleProblem& problem, const Rows& rows)
        : problem_(problem),
          rows_(rows),
          m_(as_index(problem.micro_batches)),
          ranks_(rows.size()),
          inputs_(rows.size() * m_, never),
          gradients_(rows.size() * m_, never) {
        std::fill_n(inputs_.begin(), m_, Duration{});
    }

    Spans run() {
        bool progress = true;
        while (progress) {
            progress = false;
            for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
                progress = advance(rank) || progress;
            }
        }
        Spans spans;
        for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
            PIPETWIN_EXPECT(ranks_[rank].done == rows_[rank].size(), "zb-auto: the rows deadlock");
            spans.add(ranks_[rank].first_start, ranks_[rank].free);
        }
        return spans;
    }

  private:
    struct Rank {
        std::size_t done = 0;
        Duration first_start{};
        Duration free{};
    };

    /// Whether anything could run.
    bool advance(std::size_t rank) {
        Rank& state = ranks_[rank];
        const std::size_t before = state.done;
        for (; state.done < rows_[rank].size(); ++state.done) {
            const Action& action = rows_[rank][state.done];
            const Duration ready = ready_time(rank, action);
            if (ready == never) {
                break;
            }
            const Duration start = std::max(state.free, ready);
            if (state.done == 0) {
                state.first_start = start;
            }
            run_action(rank, action, start);
        }
        return state.done > before;
    }

    Duration ready_time(std::size_t rank, const Action& action) const {
        if (action.op == Op::BackwardWeight) {
            return Duration{};
        }
        const std::size_t k = as_index(action.micro_batch);
        return (action.op == Op::Forward ? inputs_ : gradients_)[rank * m_ + k];
    }

    void run_action(std::size_t rank, const Action& action, Duration start) {
        const std::size_t k = as_index(action.micro_batch);
        Duration& end = ranks_[rank].free;
        if (action.op == Op::BackwardWeight) {
            end = start + problem_.backward_weight[rank];
        } else if (action.op == Op::BackwardInput) {
            end = start + problem_.backward_input[rank];
            if (rank > 0) {
                gradients_[(rank - 1) * m_ + k] = end + problem_.latency[rank - 1];
            }
        } else {
            end = start + problem_.forward[rank];
            const bool last = rank + 1 == ranks_.size();
            (last ? gradients_[rank * m_ + k] : inputs_[(rank + 1) * m_ + k]) =
                last ? end : end + problem_.latency[rank];
        }
    }

    const ZeroBubbleProblem& problem_;
    const Rows& rows_;
    std::size_t m_;
    std::vector<Rank> ranks_;
    std::vector<Duration> inputs_;     ///< [rank][micro-batch]: when F can begin
    std::vector<Duration> gradients_;  ///< and I
};

/// Whether the rank never holds more than its limit.
bool row_fits(const ZeroBubbleProblem& problem, std::size_t rank, const std::vector<Action>& row) {
    std::int64_t held = 0;
    for (const Action& action : row) {
        if (action.op == Op::Forward) {
            held += problem.activation;
        } else if (action.op == Op::BackwardInput) {
            held -= problem.activation - problem.kept_for_weight;
        } else {
            held -= problem.kept_for_weight;
        }
        if (held > problem.limit[rank]) {
            return false;
        }
    }
    return true;
}

/// How many W a rank cannot put off until its last F has begun: the others wait, and all weigh
/// `kept_for_weight` beside that F.
std::int64_t weights_before_last_forward(const ZeroBubbleProblem& problem, std::size_t rank) {
    const std::int64_t excess = problem.activation +
                                (problem.micro_batches - 1) * problem.kept_for_weight -
                                problem.limit[rank];
    return excess <= 0 ? 0 : (excess + problem.kept_for_weight - 1) / problem.kept_for_weight;
}

}  // namespace

void Spans::add(Duration first_start, Duration last_end) {
    const Duration span = last_end - first_start;
    largest = std::max(largest, span);
    makespan = std::max(makespan, last_end);
    sum += span;
}

Spans time_rows(const ZeroBubbleProblem& problem, const Rows& rows) {
    return RowRun(problem, rows).run();
}

bool fits(const ZeroBubbleProblem& problem, const Rows& rows) {
    for (std::size_t rank = 0; rank < rows.size(); ++rank) {
        if (!row_fits(problem, rank, rows[rank])) {
            return false;
        }
    }
    return true;
}

/// No rank spans less than its work. And from the first F of rank a to its last W
///
///     rank a   F . . . . . . . . . . . I W
///     rank b   . . F F I F I F I I . . . .
///
/// a first F goes down to a later rank b, which runs every F and I (and the W for which it has no
/// room), and a last I comes back up.
Duration least_span(const ZeroBubbleProblem& problem) {
    const int m = problem.micro_batches;
    Duration least{};
    Duration way_down_and_up{};  // from the best rank a for b, with the W of a
    for (std::size_t b = 0; b < problem.forward.size(); ++b) {
        const Duration passes = m * (problem.forward[b] + problem.backward_input[b]);
        least = std::max(least, passes + m * problem.backward_weight[b]);
        if (b > 0) {
            way_down_and_up += 2 * problem.latency[b - 1];
            const std::int64_t weights = weights_before_last_forward(problem, b);
            least =
                std::max(least, way_down_and_up + passes + weights * problem.backward_weight[b]);
        }
        way_down_and_up = std::max(way_down_and_up, problem.backward_weight[b]) +
                          problem.forward[b] + problem.backward_input[b];
    }
    return least;
}

}  // namespace pipetwin::schedules
