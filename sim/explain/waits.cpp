// SPDX-License-Identifier: Apache-2.0
#include "sim/explain/waits.h"

#include <algorithm>

namespace pipetwin::sim {

namespace {

WaitKind kind_of(const Action& action) {
    if (is_receive(action.op)) {
        return WaitKind::Message;
    }
    if (is_compute(action.op)) {
        return WaitKind::Stash;
    }
    return is_send(action.op) ? WaitKind::Room : WaitKind::Gradients;
}

}  // namespace

std::vector<Wait> waits_of(const Timeline& timeline) {
    std::vector<Wait> waits;
    const auto add = [&waits](const Wait& wait) {
        if (wait.end > wait.begin) {
            waits.push_back(wait);
        }
    };
    const auto last = last_span(timeline);
    const Duration end = last ? timeline.ranks[last->rank][last->cell].end : Duration{};
    for (std::size_t index = 0; index < timeline.ranks.size(); ++index) {
        const auto& row = timeline.ranks[index];
        const int rank = static_cast<int>(index);
        int cell = 0;
        for (const Span& span : row) {
            add({.rank = rank,
                 .kind = kind_of(span.action),
                 .cell = cell,
                 .begin = span.begin,
                 .end = span.ready});
            if (is_send(span.action.op)) {
                add({.rank = rank,
                     .kind = WaitKind::Link,
                     .cell = cell,
                     .begin = span.ready,
                     .end = span.end});
            }
            ++cell;
        }
        add({.rank = rank,
             .kind = WaitKind::StepEnd,
             .cell = cell,
             .begin = row.empty() ? Duration{} : row.back().end,
             .end = end});
    }
    return waits;
}

std::vector<Wait> longest_waits(const Timeline& timeline, std::size_t most) {
    std::vector<Wait> waits = waits_of(timeline);
    std::ranges::stable_sort(
        waits, std::ranges::greater{}, [](const Wait& wait) { return wait.end - wait.begin; });
    waits.resize(std::min(most, waits.size()));
    return waits;
}

std::vector<Cause> chain_of(const Causes& causes, const Wait& wait) {
    const SpanPlace place{.rank = static_cast<std::uint32_t>(wait.rank),
                          .cell = static_cast<std::uint32_t>(wait.cell)};
    switch (wait.kind) {
        case WaitKind::StepEnd:
            return causes.of_end(last_span(causes.timeline()).value(), wait.begin);
        case WaitKind::Link:
            return causes.of_end(place, wait.begin);
        default:
            return causes.of_ready(place, wait.begin);
    }
}

}  // namespace pipetwin::sim
