// SPDX-License-Identifier: Apache-2.0
#include "sim/explain/rank_waits.h"

#include <algorithm>
#include <string>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/base/as_index.h"
#include "core/base/error.h"
#include "core/base/short_number.h"
#include "core/plan/plan.h"
#include "core/schedule/edge.h"
#include "sim/explain/waits.h"

namespace pipetwin::sim {

namespace {

/// The group of reasons that a piece of a wait belongs to, with its time.
WaitedFor waited_for(const Plan& plan, const Cause& cause) {
    const Duration time = cause.end - cause.begin;
    switch (cause.reason) {
        case Reason::Compute:
        case Reason::RowOrder:
            return {
                .reason = Reason::Compute, .op = cause.action.op, .rank = cause.rank, .time = time};
        case Reason::Latency:
        case Reason::Transfer:
        case Reason::LinkBusy: {
            if (std::string shared = shared_link_name(plan, cause); !shared.empty()) {
                return {.reason = Reason::Transfer, .time = time, .shared_link = std::move(shared)};
            }
            const int receiver = peer_stage(cause.action);
            const bool known = is_send(cause.action.op);
            return {.reason = known ? Reason::Transfer : Reason::Reduction,
                    .rank = cause.rank,
                    .to = known ? plan->schedule.rank_of_stage.at(as_index(receiver)) : -1,
                    .time = time};
        }
        default:
            return {.reason = cause.reason, .rank = cause.rank, .time = time};
    }
}

bool is_same(const WaitedFor& a, const WaitedFor& b) {
    return a.reason == b.reason && a.op == b.op && a.rank == b.rank && a.to == b.to &&
           a.shared_link == b.shared_link;
}

void add(std::vector<WaitedFor>& reasons, const WaitedFor& more) {
    const auto found =
        std::ranges::find_if(reasons, [&](const WaitedFor& one) { return is_same(one, more); });
    if (found == reasons.end()) {
        reasons.push_back(more);
    } else {
        found->time += more.time;
    }
}

/// The first and the last span of a row that take time; both the length of the row where none does.
struct Ends {
    std::size_t first = 0;
    std::size_t last = 0;
};

Ends working_cells(const std::vector<Span>& row) {
    const auto works = [](const Span& span) { return span.end > span.ready; };
    const auto first = std::ranges::find_if(row, works);
    if (first == row.end()) {
        return {.first = row.size(), .last = row.size()};
    }
    const auto last = std::find_if(row.rbegin(), row.rend(), works);
    return {.first = static_cast<std::size_t>(first - row.begin()),
            .last = static_cast<std::size_t>(row.rend() - last) - 1};
}

std::string plural_of(Op op) {
    switch (op) {
        case Op::Forward:
            return "forwards";
        case Op::Backward:
            return "backwards";
        case Op::BackwardInput:
            return "input gradients";
        case Op::BackwardWeight:
            return "weight gradients";
        case Op::Recompute:
            return "recomputes";
        case Op::ReduceGradient:
            return "gradient reductions";
        case Op::GradientNorm:
            return "gradient norms";
        case Op::Optimizer:
            return "optimizer updates";
        default:
            return "messages";
    }
}

/// " It waits 3.00 ms before its first action and 2.00 ms after its last."
std::string place_words(const RankWaits& waits) {
    std::vector<std::string> places;
    if (waits.before_first > Duration{}) {
        places.push_back(short_time(waits.before_first) + " before its first action");
    }
    if (waits.after_last > Duration{}) {
        places.push_back(short_time(waits.after_last) + " after its last action");
    }
    return places.empty() ? "" : fmt::format(" It waits {}.", fmt::join(places, " and "));
}

/// What a sentence calls a cause, and its time.
struct Named {
    std::string words;
    Duration time{};
};

Duration time_from(const std::vector<Named>& reasons, std::size_t first) {
    Duration time{};
    for (std::size_t i = first; i < reasons.size(); ++i) {
        time += reasons[i].time;
    }
    return time;
}

/// Causes to name, of the longest first: at least `least`, and so many that the others together
/// take less than each of them, and that a single one is not left.
std::size_t count_to_name(const std::vector<Named>& reasons, std::size_t least) {
    std::size_t named = std::clamp<std::size_t>(least, 1, reasons.size());
    while (named < reasons.size() && time_from(reasons, named) >= reasons[named - 1].time) {
        ++named;
    }
    return named + 1 == reasons.size() ? named + 1 : named;
}

/// "backwards of 3 ranks", "3 links": causes that differ only by their ranks are one.
std::string words_of_several(const WaitedFor& kind, std::size_t count) {
    switch (kind.reason) {
        case Reason::Compute:
        case Reason::RowOrder:
            return fmt::format("{} of {} ranks", plural_of(kind.op), count);
        case Reason::Latency:
        case Reason::Transfer:
        case Reason::LinkBusy:
            return fmt::format("{} links", count);
        case Reason::BackPressure:
            return fmt::format("room for messages at {} ranks", count);
        case Reason::Reduction:
            return fmt::format("gradients of {} ranks", count);
        case Reason::HostCopy:
            return fmt::format("copies of stashes of {} ranks", count);
    }
    PIPETWIN_EXPECT(false, "reason out of range");
}

std::vector<Named> by_kind(const std::vector<WaitedFor>& reasons) {
    std::vector<std::pair<WaitedFor, std::size_t>> kinds;  // with the number of reasons
    for (const WaitedFor& reason : reasons) {
        const auto found = std::ranges::find_if(kinds, [&](const auto& kind) {
            return kind.first.reason == reason.reason && kind.first.op == reason.op;
        });
        if (found == kinds.end()) {
            kinds.emplace_back(reason, 1);
        } else {
            found->first.time += reason.time;
            ++found->second;
        }
    }
    std::vector<Named> named;
    for (const auto& [kind, count] : kinds) {
        named.push_back({.words = count == 1 ? words_of(kind) : words_of_several(kind, count),
                         .time = kind.time});
    }
    std::ranges::stable_sort(named, std::ranges::greater{}, &Named::time);
    return named;
}

}  // namespace

std::vector<RankWaits> rank_waits(const Plan& plan, const Timeline& timeline) {
    const auto last = last_span(timeline);
    const Duration step = last ? timeline.ranks[last->rank][last->cell].end : Duration{};
    std::vector<RankWaits> result;
    std::vector<Ends> ends;
    for (const auto& row : timeline.ranks) {
        result.push_back({.rank = static_cast<int>(result.size()), .step = step, .reasons = {}});
        ends.push_back(working_cells(row));
    }
    const Causes causes(plan, timeline);
    for (const Wait& wait : waits_of(timeline)) {
        RankWaits& of = result[as_index(wait.rank)];
        const Ends& row = ends[as_index(wait.rank)];
        const Duration time = wait.end - wait.begin;
        of.wait += time;
        if (as_index(wait.cell) <= row.first) {
            of.before_first += time;
        } else if (as_index(wait.cell) > row.last) {
            of.after_last += time;
        }
        for (const Cause& cause : chain_of(causes, wait)) {
            add(of.reasons, waited_for(plan, cause));
        }
    }
    for (RankWaits& of : result) {
        std::ranges::stable_sort(of.reasons, std::ranges::greater{}, &WaitedFor::time);
    }
    return result;
}

std::string words_of(const WaitedFor& waited_for) {
    switch (waited_for.reason) {
        case Reason::Compute:
        case Reason::RowOrder:
            return fmt::format("{} of rank {}", plural_of(waited_for.op), waited_for.rank);
        case Reason::Latency:
        case Reason::Transfer:
        case Reason::LinkBusy:
            return waited_for.shared_link.empty()
                       ? fmt::format(
                             "the link from rank {} to rank {}", waited_for.rank, waited_for.to)
                       : fmt::format("the shared link '{}'", waited_for.shared_link);
        case Reason::BackPressure:
            return fmt::format("room for a message at rank {}", waited_for.rank);
        case Reason::Reduction:
            return fmt::format("gradients of rank {}", waited_for.rank);
        case Reason::HostCopy:
            return fmt::format("copies of stashes of rank {}", waited_for.rank);
    }
    PIPETWIN_EXPECT(false, "reason out of range");
}

std::string rank_wait_sentence(const RankWaits& waits, std::size_t most) {
    if (waits.wait <= Duration{}) {
        return fmt::format("Rank {} does not wait.", waits.rank);
    }
    std::vector<Named> reasons;
    for (const WaitedFor& reason : waits.reasons) {
        reasons.push_back({.words = words_of(reason), .time = reason.time});
    }
    std::size_t named = count_to_name(reasons, most);
    if (named > most + 1) {
        reasons = by_kind(waits.reasons);
        named = count_to_name(reasons, most);
    }
    std::vector<std::string> parts;
    for (std::size_t i = 0; i < named; ++i) {
        parts.push_back(fmt::format("{} for {}", short_time(reasons[i].time), reasons[i].words));
    }
    if (named < reasons.size()) {
        parts.push_back(fmt::format("{} for {} smaller causes together",
                                    short_time(time_from(reasons, named)),
                                    reasons.size() - named));
    }
    return fmt::format("Rank {} waits {} of {} ({}): {}.{}",
                       waits.rank,
                       short_time(waits.wait),
                       short_time(waits.step),
                       short_percent(to_seconds(waits.wait) / to_seconds(waits.step)),
                       fmt::join(parts, ", "),
                       place_words(waits));
}

}  // namespace pipetwin::sim
