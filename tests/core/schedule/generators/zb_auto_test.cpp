// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <optional>
#include <random>

#include <gmock/gmock.h>

#include "core/schedule/generators/generate.h"
#include "core/schedule/generators/zb_auto_search.h"
#include "core/schedule/lower.h"
#include "core/schedule/schedule.h"
#include "core/schedule/validate.h"
#include "tests/support/error_of.h"

/// The search for zero-bubble orders. Its published bubble rates are in
/// tests/sim/simulate/schedule_forms_test.cpp.
namespace pipetwin {
namespace zb_auto_test {

using schedules::Rows;
using schedules::ZeroBubbleProblem;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr std::int64_t activation = 4;

/// Costs of a pipeline, and the same as the search sees them.
struct Case {
    ScheduleShape shape;
    ZeroBubbleCosts costs;
    ZeroBubbleProblem problem;
};

std::ostream& operator<<(std::ostream& out, const Case& x) {
    return out << "p " << x.shape.ranks << " m " << x.shape.micro_batches << " kept "
               << x.costs.kept_for_weight.count << " limits "
               << ::testing::PrintToString(x.costs.live_limit);
}

int below(int count, std::mt19937& random) {
    return static_cast<int>(random() % static_cast<unsigned>(count));
}

/// Costs of 1..9, latencies of 0..3, limits of 1..2p, and any part of an activation kept until W.
Case random_case(int ranks, int micro_batches, std::mt19937& random) {
    Case x{.shape = {.ranks = ranks, .micro_batches = micro_batches}, .costs = {}, .problem = {}};
    for (int rank = 0; rank < ranks; ++rank) {
        x.costs.forward.emplace_back(1 + below(9, random));
        x.costs.backward_input.emplace_back(1 + below(9, random));
        x.costs.backward_weight.emplace_back(1 + below(9, random));
        x.costs.live_limit.push_back(1 + below(2 * ranks, random));
        x.problem.limit.push_back(activation * x.costs.live_limit.back());
        if (rank > 0) {
            x.costs.latency.emplace_back(below(4, random));
        }
    }
    x.costs.activation = Bytes{activation};
    x.costs.kept_for_weight = Bytes{below(static_cast<int>(activation) + 1, random)};
    x.problem.ranks = ranks;
    x.problem.micro_batches = micro_batches;
    x.problem.forward = x.costs.forward;
    x.problem.backward_input = x.costs.backward_input;
    x.problem.backward_weight = x.costs.backward_weight;
    x.problem.latency = x.costs.latency;
    x.problem.activation = activation;
    x.problem.kept_for_weight = x.costs.kept_for_weight.count;
    return x;
}

Schedule zb_auto(const Case& x) {
    return generate(ScheduleKind::ZbAuto, x.shape, {.zero_bubble = x.costs});
}

/// By what an action changes the memory of its rank.
std::int64_t taken(Op op, const ZeroBubbleProblem& problem) {
    switch (op) {
        case Op::Forward:
            return problem.activation;
        case Op::BackwardInput:
            return problem.kept_for_weight - problem.activation;
        default:
            return -problem.kept_for_weight;
    }
}

std::int64_t most_held(const std::vector<Action>& row, const ZeroBubbleProblem& problem) {
    std::int64_t held = 0;
    std::int64_t most = 0;
    for (const Action& action : row) {
        held += taken(action.op, problem);
        most = std::max(most, held);
    }
    return most;
}

bool keeps_the_limits(const Rows& rows, const ZeroBubbleProblem& problem) {
    for (std::size_t rank = 0; rank < rows.size(); ++rank) {
        if (most_held(rows[rank], problem) > problem.limit[rank]) {
            return false;
        }
    }
    return true;
}

Duration largest_span(const Case& x, const Schedule& schedule) {
    return time_rows(x.problem, schedule.ranks).largest;
}

std::string refusal(const ScheduleShape& shape, const ZeroBubbleCosts& costs) {
    const auto search = [&] { generate(ScheduleKind::ZbAuto, shape, {.zero_bubble = costs}); };
    return testing::error_of(search).text();
}

TEST(ZbAuto, GivesAValidScheduleWithinAnyLimit) {
    std::mt19937 random(1);
    for (int ranks = 1; ranks <= 8; ++ranks) {
        for (const int micro_batches : {1, 2, 3, 5, 8, 13, 32}) {
            const Case x = random_case(ranks, micro_batches, random);
            const Schedule schedule = zb_auto(x);
            ASSERT_THAT(validate(schedule), IsEmpty()) << x;
            const Schedule lowered = add_communication(schedule, RecomputeTiming::Eager);
            ASSERT_GE(smallest_capacity(lowered), 0) << x;
            ASSERT_TRUE(keeps_the_limits(schedule.ranks, x.problem)) << x;
            ASSERT_GE(largest_span(x, schedule), least_span(x.problem)) << x;
        }
    }
}

TEST(ZbAuto, IsNeverWorseThanAFixedOrderThatFits) {
    std::mt19937 random(2);
    int compared = 0;
    for (int ranks = 1; ranks <= 8; ++ranks) {
        for (const int micro_batches : {1, 4, 9, 16}) {
            Case x = random_case(ranks, micro_batches, random);
            const int limit = ranks + below(ranks, random);  // zb-h1 needs p
            std::ranges::fill(x.costs.live_limit, limit);
            std::ranges::fill(x.problem.limit, activation * limit);
            const Duration found = largest_span(x, zb_auto(x));
            for (const ScheduleKind kind : {ScheduleKind::ZbH1, ScheduleKind::ZbH2}) {
                const Schedule fixed = generate(kind, x.shape);
                if (keeps_the_limits(fixed.ranks, x.problem)) {
                    ++compared;
                    ASSERT_LE(found, largest_span(x, fixed)) << x << to_string(kind);
                }
            }
        }
    }
    EXPECT_GE(compared, 32);
}

TEST(ZbAuto, FillsEveryGapWhereAllActionsLastEquallyLong) {
    for (int ranks = 1; ranks <= 8; ++ranks) {
        const ScheduleShape shape{.ranks = ranks, .micro_batches = 4 * ranks};
        const Schedule schedule = generate(ScheduleKind::ZbAuto, shape);
        ZeroBubbleProblem problem;
        problem.ranks = ranks;
        problem.micro_batches = shape.micro_batches;
        for (auto* costs : {&problem.forward, &problem.backward_input, &problem.backward_weight}) {
            costs->assign(static_cast<std::size_t>(ranks), Duration{1});
        }
        problem.latency.resize(static_cast<std::size_t>(ranks - 1));
        EXPECT_EQ(time_rows(problem, schedule.ranks).largest, Duration{3 * shape.micro_batches});
    }
}

TEST(ZbAuto, GivesTheSameOrderEveryTime) {
    std::mt19937 random(3);
    const Case x = random_case(5, 12, random);
    EXPECT_EQ(zb_auto(x), zb_auto(x));
}

TEST(ZbAuto, NamesTheRuleThatIsBroken) {
    EXPECT_EQ(refusal({.ranks = 2, .chunks = 2, .micro_batches = 4}, {}),
              "needs one chunk per rank, got 2");
    EXPECT_EQ(refusal({.ranks = 2, .micro_batches = 4}, {.live_limit = {3, 0}}),
              "needs room for one activation on every rank");
    const std::vector<Duration> days(2, std::chrono::hours(24));
    EXPECT_THAT(refusal({.ranks = 2, .micro_batches = 100}, {.forward = days}),
                HasSubstr("expected at most 1000000"));
}

// --- Against every order. ---

/// Every row of one rank that keeps its limit. Micro-batches of one size can swap places, so each
/// kind of action takes them in ascending order.
class AllRows {
  public:
    AllRows(const ZeroBubbleProblem& problem, int rank) : problem_(problem), rank_(rank) {
        extend(0, 0, 0);
    }

    Rows rows;

  private:
    void extend(int forwards, int inputs, int weights) {
        if (weights == problem_.micro_batches) {
            rows.push_back(row_);
        }
        if (forwards < problem_.micro_batches) {
            add(Op::Forward, forwards, [=, this] { extend(forwards + 1, inputs, weights); });
        }
        if (inputs < forwards) {
            add(Op::BackwardInput, inputs, [=, this] { extend(forwards, inputs + 1, weights); });
        }
        if (weights < inputs) {
            add(Op::BackwardWeight, weights, [=, this] { extend(forwards, inputs, weights + 1); });
        }
    }

    template <class Then>
    void add(Op op, int micro_batch, Then then) {
        row_.push_back({.op = op, .stage = rank_, .micro_batch = micro_batch});
        if (most_held(row_, problem_) <= problem_.limit[static_cast<std::size_t>(rank_)]) {
            then();
        }
        row_.pop_back();
    }

    const ZeroBubbleProblem& problem_;
    int rank_;
    std::vector<Action> row_;
};

/// The largest span of rows in which every action begins as soon as it can; none if the ranks wait
/// for each other in a circle.
class Replay {
  public:
    Replay(const ZeroBubbleProblem& problem, const Rows& rows)
        : problem_(problem), rows_(rows), ranks_(rows.size()) {}

    std::optional<Duration> largest_span() {
        for (std::size_t rank = 0; rank < rows_.size();) {
            rank = advance(rank) ? 0 : rank + 1;
        }
        Duration largest{};
        for (std::size_t rank = 0; rank < rows_.size(); ++rank) {
            if (ranks_[rank].cell < rows_[rank].size()) {
                return std::nullopt;
            }
            largest = std::max(largest, ranks_[rank].end - ranks_[rank].begin);
        }
        return largest;
    }

  private:
    using Ends = std::vector<Duration>;  ///< of micro-batches, ascending

    struct Rank {
        std::size_t cell = 0;
        Duration begin{};
        Duration end{};
        Ends forwards;
        Ends inputs;
    };

    /// Whether the rank's next action could run.
    bool advance(std::size_t rank) {
        Rank& state = ranks_[rank];
        if (state.cell == rows_[rank].size()) {
            return false;
        }
        const Action& action = rows_[rank][state.cell];
        const std::optional<Duration> ready = ready_time(rank, action);
        if (!ready) {
            return false;
        }
        const Duration begin = std::max(*ready, state.end);
        state.begin = state.cell++ == 0 ? begin : state.begin;
        if (action.op == Op::Forward) {
            state.end = begin + problem_.forward[rank];
            state.forwards.push_back(state.end);
        } else if (action.op == Op::BackwardInput) {
            state.end = begin + problem_.backward_input[rank];
            state.inputs.push_back(state.end);
        } else {
            state.end = begin + problem_.backward_weight[rank];
        }
        return true;
    }

    std::optional<Duration> ready_time(std::size_t rank, const Action& action) const {
        if (action.op == Op::Forward && rank > 0) {
            return arrival(ranks_[rank - 1].forwards, action, problem_.latency[rank - 1]);
        }
        if (action.op == Op::BackwardInput && rank + 1 < ranks_.size()) {
            return arrival(ranks_[rank + 1].inputs, action, problem_.latency[rank]);
        }
        return Duration{};
    }

    static std::optional<Duration> arrival(const Ends& ends,
                                           const Action& action,
                                           Duration latency) {
        const auto k = static_cast<std::size_t>(action.micro_batch);
        return k < ends.size() ? std::optional(ends[k] + latency) : std::nullopt;
    }

    const ZeroBubbleProblem& problem_;
    const Rows& rows_;
    std::vector<Rank> ranks_;
};

/// The best of all orders: every row of every rank with every row of the others.
class BestOrder {
  public:
    explicit BestOrder(const ZeroBubbleProblem& problem) : problem_(problem) {
        for (int rank = 0; rank < problem.ranks; ++rank) {
            choices_.push_back(AllRows(problem, rank).rows);
        }
        choose_next();
    }

    Duration span = Duration::max();

  private:
    void choose_next() {
        if (chosen_.size() == choices_.size()) {
            span = std::min(span, Replay(problem_, chosen_).largest_span().value_or(span));
            return;
        }
        for (const auto& row : choices_[chosen_.size()]) {
            chosen_.push_back(row);
            choose_next();
            chosen_.pop_back();
        }
    }

    const ZeroBubbleProblem& problem_;
    std::vector<Rows> choices_;
    Rows chosen_;
};

struct Small {
    int ranks, micro_batches, cases;
};

/// The search is no proof of optimality, but on small shapes it finds the best order of all in
/// nearly every case (here in 152 of 154), and otherwise one that is hardly slower.
TEST(ZbAuto, SmallShapesComeCloseToTheBestOfAllOrders) {
    std::mt19937 random(4);
    int all = 0;
    int equal = 0;
    for (const Small& small : {Small{1, 3, 10},
                               Small{2, 1, 10},
                               Small{2, 2, 40},
                               Small{2, 3, 40},
                               Small{3, 1, 10},
                               Small{3, 2, 40},
                               Small{3, 3, 4}}) {
        for (int i = 0; i < small.cases; ++i) {
            const Case x = random_case(small.ranks, small.micro_batches, random);
            const Schedule schedule = zb_auto(x);
            const Duration found = largest_span(x, schedule);
            const Duration best = BestOrder(x.problem).span;
            ASSERT_EQ(Replay(x.problem, schedule.ranks).largest_span(), found) << x;
            ASSERT_LE(least_span(x.problem), best) << x;
            ASSERT_LE(best, found) << x;
            ASSERT_LE(found, best + best / 10) << x;
            ++all;
            equal += found == best ? 1 : 0;
        }
    }
    RecordProperty("equal", equal);
    EXPECT_GE(10 * equal, 9 * all) << equal << " of " << all;
}

}  // namespace zb_auto_test
}  // namespace pipetwin
