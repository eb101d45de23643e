// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "core/base/units.h"
#include "core/schedule/schedule.h"

/// What the search of zb-auto is made of: the problem, the rules by which a rank picks its next
/// action, and how long an order takes.
namespace pipetwin::schedules {

/// Later than any time of a schedule.
inline constexpr Duration never = Duration::max();

/// [rank] the actions of a rank, in order.
using Rows = std::vector<std::vector<Action>>;

/// One stage per rank. All lists have one entry per rank, `latency` one per boundary.
struct ZeroBubbleProblem {
    int ranks = 0;
    int micro_batches = 0;
    std::vector<Duration> forward;
    std::vector<Duration> backward_input;
    std::vector<Duration> backward_weight;
    std::vector<Duration> latency;
    std::int64_t activation = 1;       ///< held from the start of F to the end of I
    std::int64_t kept_for_weight = 1;  ///< of it, held on to the end of W
    std::vector<std::int64_t> limit;   ///< in the unit of the two above
};

/// How good an order is: the first number counts, the others decide between equals.
struct Spans {
    Duration largest{};  ///< over ranks, of last end - first start
    Duration makespan{};
    Duration sum{};  ///< over ranks

    /// One more rank.
    void add(Duration first_start, Duration last_end);
    auto operator<=>(const Spans&) const = default;
};

/// How a rank that is free picks its next action: I if its gradient is there, else F, else W.
struct RankRule {
    static constexpr int no_backlog_limit = std::numeric_limits<int>::max();

    int in_flight = 1;               ///< no F while so many micro-batches wait for their I
    int backlog = no_backlog_limit;  ///< W first when so many wait
    int gap = 0;                     ///< W only in a gap of at least so many quarters of a W
    int patience = 0;                ///< no F if a gradient arrives within so many quarters of an F

    bool operator==(const RankRule&) const = default;
};

/// The times of the rows that follow from one rule per rank: list scheduling, in which a rank knows
/// of a message from the moment when its sender began to make it. Always finishes if `limit` is at
/// least `activation` everywhere. Writes the rows to `rows` unless it is null.
/// O(actions * log ranks).
Spans follow_rules(const ZeroBubbleProblem& problem,
                   const std::vector<RankRule>& rules,
                   Rows* rows = nullptr);

/// The times of rows of F, I and W that stand.
Spans time_rows(const ZeroBubbleProblem& problem, const Rows& rows);

/// Whether no rank ever holds more than the limit.
bool fits(const ZeroBubbleProblem& problem, const Rows& rows);

/// No order has a smaller largest span.
Duration least_span(const ZeroBubbleProblem& problem);

}  // namespace pipetwin::schedules
