// SPDX-License-Identifier: Apache-2.0
#include "core/artifacts/trace_contradictions.h"

#include <algorithm>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "core/base/units.h"

namespace pipetwin {

namespace {

/// Clocks are read to a microsecond, and a device tells its times only nearly.
constexpr Duration clock_error = std::chrono::microseconds(2);

/// "step 3, rank 1, 2F0", with the replica where it is not the first.
std::string place_of(std::size_t step, std::size_t row, std::size_t ranks, const Action& action) {
    const std::size_t replica = row / ranks;
    return fmt::format("step {}, {}rank {}, {}",
                       step,
                       replica > 0 ? fmt::format("replica {}, ", replica) : "",
                       row % ranks,
                       to_string(action));
}

/// Computations of a row by their beginnings.
std::vector<const Span*> computations(const std::vector<Span>& row) {
    std::vector<const Span*> found;
    for (const Span& span : row) {
        if (is_compute(span.action.op)) {
            found.push_back(&span);
        }
    }
    std::ranges::stable_sort(found, {}, [](const Span* span) { return span->begin; });
    return found;
}

bool overlap(const Span& first, const Span& second) {
    const Duration shared = std::min(first.end, second.end) - second.begin;
    const Duration shorter = std::min(first.end - first.begin, second.end - second.begin);
    return shared > clock_error && 10 * shared > shorter;
}

std::optional<std::string> overlap_in(const Timeline& timeline, std::size_t step) {
    for (std::size_t row = 0; row < timeline.row_count(); ++row) {
        const std::vector<const Span*> spans = computations(timeline.row_at(row));
        for (std::size_t i = 1; i < spans.size(); ++i) {
            if (overlap(*spans[i - 1], *spans[i])) {
                return fmt::format(
                    "{} runs at the same time as {} for {}, and a rank computes one thing at a "
                    "time",
                    place_of(step, row, timeline.ranks.size(), spans[i]->action),
                    to_string(spans[i - 1]->action),
                    format_duration(std::min(spans[i - 1]->end, spans[i]->end) - spans[i]->begin));
            }
        }
    }
    return std::nullopt;
}

/// The first action that waits for longer than it lasts.
std::optional<std::string> long_wait_in(const Timeline& timeline, std::size_t step) {
    for (std::size_t row = 0; row < timeline.row_count(); ++row) {
        for (const Span& span : timeline.row_at(row)) {
            if (span.ready - span.end > clock_error) {
                return fmt::format("{} waits for {} and lasts {}, expected no longer a wait",
                                   place_of(step, row, timeline.ranks.size(), span.action),
                                   format_duration(span.ready - span.begin),
                                   format_duration(span.end - span.begin));
            }
        }
    }
    return std::nullopt;
}

/// One action of a step and its row.
struct Placed {
    const Span* span = nullptr;
    std::size_t row = 0;
};

std::optional<std::string> far_away_in(const Timeline& timeline, std::size_t step) {
    std::vector<Placed> all;
    for (std::size_t row = 0; row < timeline.row_count(); ++row) {
        for (const Span& span : timeline.row_at(row)) {
            all.push_back({.span = &span, .row = row});
        }
    }
    std::ranges::stable_sort(all, {}, [](const Placed& placed) { return placed.span->begin; });
    Duration covered{};
    Duration longest_gap{};
    std::size_t behind = 0;  // of the longest gap
    Duration end = all.empty() ? Duration{} : all.front().span->begin;
    for (std::size_t i = 0; i < all.size(); ++i) {
        const Span& span = *all[i].span;
        if (span.begin - end > longest_gap) {
            longest_gap = span.begin - end;
            behind = i;
        }
        covered += std::max(span.end - std::max(span.begin, end), Duration{});
        end = std::max(end, span.end);
    }
    if (covered == Duration{} || longest_gap <= covered) {
        return std::nullopt;
    }
    // The few are away from the many.
    const Placed& far = 2 * behind > all.size() ? all[behind] : all[behind - 1];
    return fmt::format("{} lies {} away from the rest of the step, in which all actions take {}",
                       place_of(step, far.row, timeline.ranks.size(), far.span->action),
                       format_duration(longest_gap),
                       format_duration(covered));
}

}  // namespace

std::optional<std::string> contradiction(const Trace& trace) {
    const std::vector<Timeline>& steps = trace.timelines.steps;
    for (std::size_t step = 0; step < steps.size(); ++step) {
        if (std::optional<std::string> found = overlap_in(steps[step], step)) {
            return found;
        }
        if (std::optional<std::string> found = long_wait_in(steps[step], step)) {
            return found;
        }
        if (steps[step].origin == Origin::Predicted) {
            continue;  // a link may be slower than all that ranks compute
        }
        if (std::optional<std::string> found = far_away_in(steps[step], step)) {
            return found;
        }
    }
    return std::nullopt;
}

}  // namespace pipetwin
