// SPDX-License-Identifier: Apache-2.0
#include "sim/simulate/replay_error.h"

#include <algorithm>

#include "core/base/error.h"
#include "sim/simulate/simulate.h"

namespace pipetwin::sim {

namespace {

/// Time of a span in which the rank worked: since `free`, the end of what came before, up to the
/// span's begin, and then in it; waits do not count. A receive that waited ends when its message
/// has been handed over: that is the link's latency.
Duration own_time(const Span& span, Duration free) {
    const Duration before = span.begin - free;
    const bool waited = is_receive(span.action.op) && span.ready > span.begin;
    return before + (waited ? Duration{} : span.end - span.ready);
}

}  // namespace

Conditions own_conditions(const Plan& plan, const Timeline& measured) {
    Conditions conditions = conditions_of(plan, measured);
    Duration start = Duration::max();
    for (const auto& row : measured.ranks) {
        start = row.empty() ? start : std::min(start, row.front().begin);
    }
    for (std::size_t rank = 0; rank < measured.ranks.size(); ++rank) {
        Duration free = start;
        Duration unclaimed{};  // by sends and receives: the next action has it
        for (std::size_t cell = 0; cell < measured.ranks[rank].size(); ++cell) {
            const Span& span = measured.ranks[rank][cell];
            unclaimed += own_time(span, free);
            free = span.end;
            if (!is_send(span.action.op) && !is_receive(span.action.op)) {
                conditions.durations[rank][cell] = std::max(Duration{}, unclaimed);
                unclaimed = {};
            }
        }
    }
    return conditions;
}

Duration replay_of_own_durations(const Plan& plan, const Timeline& measured) {
    return replayed_step(plan, own_conditions(plan, measured));
}

}  // namespace pipetwin::sim
