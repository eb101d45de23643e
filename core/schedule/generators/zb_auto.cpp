// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>

#include "core/base/as_index.h"
#include "core/base/error.h"
#include "core/schedule/generators/generators.h"
#include "core/schedule/generators/zb_auto_search.h"

namespace pipetwin::schedules {

namespace {

using Rules = std::vector<RankRule>;

// --- The problem. ---

template <class T>
std::vector<T> given_or(const std::vector<T>& given, int count, T otherwise) {
    const std::size_t size = as_index(count);
    PIPETWIN_EXPECT(given.empty() || given.size() == size, "zb-auto: one number per rank");
    return given.empty() ? std::vector<T>(size, otherwise) : given;
}

/// A message goes down and another one comes back.
void require_bounded_time(const ZeroBubbleProblem& problem) {
    double seconds = 0;
    for (const auto* costs : {&problem.forward,
                              &problem.backward_input,
                              &problem.backward_weight,
                              &problem.latency,
                              &problem.latency}) {
        for (const Duration cost : *costs) {
            seconds += to_seconds(cost);
        }
    }
    require_bounded_step(seconds * problem.micro_batches, "zb-auto");
}

ZeroBubbleProblem problem_of(const ScheduleShape& shape, const ZeroBubbleCosts& costs) {
    ZeroBubbleProblem problem;
    problem.ranks = shape.ranks;
    problem.micro_batches = shape.micro_batches;
    problem.forward = given_or(costs.forward, shape.ranks, Duration{1});
    problem.backward_input = given_or(costs.backward_input, shape.ranks, Duration{1});
    problem.backward_weight = given_or(costs.backward_weight, shape.ranks, Duration{1});
    problem.latency = given_or(costs.latency, shape.ranks - 1, Duration{});
    problem.activation = costs.activation.count;
    problem.kept_for_weight = costs.kept_for_weight.count;
    PIPETWIN_EXPECT(problem.activation > 0 && problem.kept_for_weight >= 0 &&
                        problem.kept_for_weight <= problem.activation,
                    "zb-auto: what W needs is a part of an activation");
    for (const int limit : given_or(costs.live_limit, shape.ranks, 2 * shape.ranks)) {
        require_rule(limit >= 1,
                     "zb-auto",
                     "needs room for one activation on every rank",
                     "raise the limit");
        // Beyond m it does not bind; this keeps the product small.
        problem.limit.push_back(std::min(limit, shape.micro_batches) * problem.activation);
    }
    require_bounded_time(problem);
    return problem;
}

// --- Where to start. ---

/// How many F fit between the first F of a rank and the return of its gradient.
std::vector<int> forwards_of_a_round_trip(const ZeroBubbleProblem& problem) {
    std::vector<int> result(problem.forward.size(), 1);
    Duration trip{};
    for (std::size_t rank = result.size(); rank-- > 0;) {
        if (rank + 1 < result.size()) {
            trip += 2 * problem.latency[rank];
        }
        trip += problem.forward[rank];
        if (problem.forward[rank] > Duration{}) {
            const auto count = (trip + problem.forward[rank] - Duration{1}) / problem.forward[rank];
            result[rank] = static_cast<int>(
                std::min<std::int64_t>(count, std::int64_t{problem.micro_batches}));
        }
        trip += problem.backward_input[rank];
    }
    return result;
}

int in_flight_cap(const ZeroBubbleProblem& problem, std::size_t rank) {
    return static_cast<int>(problem.limit[rank] / problem.activation);
}

constexpr std::array gaps{0, 1, 2, 3, 4};
constexpr std::array patiences{0, 1, 2, 3};
constexpr std::array backlogs{1, 2, 3, 4, 6, 8, 12, 16, 24, RankRule::no_backlog_limit};

/// Rules to start from: all ranks alike, with a warm-up that fills the round trip, or nearly.
std::vector<Rules> starting_rules(const ZeroBubbleProblem& problem) {
    const std::vector<int> round_trip = forwards_of_a_round_trip(problem);
    std::vector<Rules> starts;
    for (const int extra : {0, -1, 1, 2}) {
        for (const int gap : gaps) {
            for (const int patience : patiences) {
                Rules& rules = starts.emplace_back();
                for (std::size_t rank = 0; rank < round_trip.size(); ++rank) {
                    const int in_flight =
                        std::clamp(round_trip[rank] + extra, 1, in_flight_cap(problem, rank));
                    rules.push_back({.in_flight = in_flight, .gap = gap, .patience = patience});
                }
            }
        }
    }
    return starts;
}

// --- The search. ---

struct Candidate {
    Spans spans;
    Rules rules;
};

class Search {
  public:
    explicit Search(const ZeroBubbleProblem& problem)
        : problem_(problem),
          bound_(least_span(problem)),
          runs_left_(std::max<std::int64_t>(
              1, largest_effort / (3LL * problem.ranks * problem.micro_batches))) {}

    /// Climbs from the best starts first, until one reaches the bound or the effort is spent.
    Candidate best() {
        std::vector<Candidate> starts;
        for (Rules& rules : starting_rules(problem_)) {
            if (!starts.empty() && runs_left_ <= 0) {
                break;
            }
            starts.push_back({spans_of(rules), std::move(rules)});
        }
        std::ranges::stable_sort(starts, {}, &Candidate::spans);
        const auto same = std::ranges::unique(starts, {}, &Candidate::spans);
        starts.erase(same.begin(), same.end());
        Candidate best = starts.front();
        for (Candidate& start : starts) {
            if (done(best)) {
                break;
            }
            climb(start);
            if (start.spans < best.spans) {
                best = std::move(start);
            }
        }
        return best;
    }

  private:
    /// In actions placed: a fraction of a second.
    static constexpr std::int64_t largest_effort = 4'000'000;

    Spans spans_of(const Rules& rules) {
        --runs_left_;
        return follow_rules(problem_, rules);
    }

    bool done(const Candidate& candidate) const {
        return runs_left_ <= 0 || candidate.spans.largest <= bound_;
    }

    /// One number of one rank at a time, as long as any change makes it better.
    void climb(Candidate& candidate) {
        bool better = true;
        while (better) {
            better = false;
            for (std::size_t rank = 0; rank < candidate.rules.size(); ++rank) {
                for (const RankRule& rule : neighbours(candidate.rules[rank], rank)) {
                    if (done(candidate)) {
                        return;
                    }
                    better = take_if_better(candidate, rank, rule) || better;
                }
            }
        }
    }

    bool take_if_better(Candidate& candidate, std::size_t rank, const RankRule& rule) {
        const RankRule before = candidate.rules[rank];
        candidate.rules[rank] = rule;
        const Spans spans = spans_of(candidate.rules);
        if (spans < candidate.spans) {
            candidate.spans = spans;
            return true;
        }
        candidate.rules[rank] = before;
        return false;
    }

    std::vector<RankRule> neighbours(const RankRule& rule, std::size_t rank) const {
        std::vector<RankRule> result;
        const auto add = [&](int RankRule::*number, int value) {
            RankRule changed = rule;
            changed.*number = value;
            if (changed != rule) {
                result.push_back(changed);
            }
        };
        for (const int step : {1, -1, 2, -2, 4, -4}) {
            add(&RankRule::in_flight,
                std::clamp(rule.in_flight + step, 1, in_flight_cap(problem_, rank)));
        }
        for (const int patience : patiences) {
            add(&RankRule::patience, patience);
        }
        for (const int gap : gaps) {
            add(&RankRule::gap, gap);
        }
        for (const int backlog : backlogs) {
            add(&RankRule::backlog, backlog);
        }
        return result;
    }

    const ZeroBubbleProblem& problem_;
    Duration bound_;
    std::int64_t runs_left_;
};

// --- The result. ---

struct TimedRows {
    Spans spans;
    Rows rows;
};

/// What the search finds, or a fixed order where that fits and is better.
TimedRows best_rows(const ScheduleShape& shape, const ZeroBubbleProblem& problem) {
    TimedRows best;
    follow_rules(problem, Search(problem).best().rules, &best.rows);
    best.spans = time_rows(problem, best.rows);
    for (Schedule& known :
         std::array{zb_h1_traits.generate(shape, {}), zb_h2_traits.generate(shape, {})}) {
        if (fits(problem, known.ranks)) {
            const Spans spans = time_rows(problem, known.ranks);
            if (spans < best.spans) {
                best = {spans, std::move(known.ranks)};
            }
        }
    }
    return best;
}

/// ZB-auto: no fixed order, but the best one that a search finds for the costs of the stages and
/// the memory of the ranks.
///
///     rank 0   0 0 1 1 2 2 3 3 . . a a A 4 4 b b B 5 5 c c d d C D e e E . f f F .
///     rank 1   . . 0 0 1 1 2 2 a a 3 3 b b A 4 4 c c B d d 5 5 e e C D f f E F . .
///     rank 2   . . . . 0 0 a a 1 1 b b 2 2 c c 3 3 d d 4 4 e e 5 5 f f A B C D E F
///
/// Here F and I last 2, W lasts 1, a rank has room for four activations, and W needs half of one.
/// ZB-H1 takes 36 in place of 33 at its slowest rank; ZB-H2 would take 34, but needs room for
/// five.
///
/// An order follows from four numbers per rank: how many forwards it runs ahead, how long a gap
/// must be to be worth a W, how many W it puts off, and whether it holds a forward back for a
/// gradient that is about to arrive. The search starts where all ranks have the same habits and a
/// forward for every moment of their round trip, and changes one number of one rank at a time as
/// long as the slowest rank gains. It ends at a lower bound, or after a fixed number of placed
/// actions, so the result is the same on every machine. Orders that keep whole activations until W
/// are preferred: they need the least memory. Never worse than ZB-H1 and ZB-H2 where these fit.
///
/// Throws Error(Infeasible) where a rank has no room for one activation, Error(BadInput) where the
/// step lasts longer than a plan may.
/// Source: Qi et al., "Zero Bubble Pipeline Parallelism", ICLR 2024, section 3 (automatic
/// scheduling): the problem and the order of choices; the numbers per rank and the climb are ours.
Schedule zb_auto(const ScheduleShape& shape, const GeneratorOptions& options) {
    require_one_chunk(shape, "zb-auto");
    Schedule schedule = loop_placement(shape);
    const ZeroBubbleProblem problem = problem_of(shape, options.zero_bubble);
    ZeroBubbleProblem strict = problem;
    strict.kept_for_weight = strict.activation;
    TimedRows best = best_rows(shape, strict);
    if (problem.kept_for_weight < problem.activation && best.spans.largest > least_span(problem)) {
        TimedRows loose = best_rows(shape, problem);
        if (loose.spans.largest < best.spans.largest) {
            best = std::move(loose);
        }
    }
    schedule.ranks = std::move(best.rows);
    return schedule;
}

}  // namespace

const ScheduleTraits zb_auto_traits{
    .name = "zb-auto",
    .generate = zb_auto,
    .placement = StagePlacement::OnePerRank,
    .split = BackwardSplit::Always,
    .order_from_costs = true,
};

}  // namespace pipetwin::schedules
