// SPDX-License-Identifier: Apache-2.0
#include "core/interop/traces/rank_steps.h"

#include <algorithm>
#include <iterator>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "core/base/number_text.h"

namespace pipetwin {

namespace {

/// Steps by the marks of the training loop.
std::vector<RankStep> marked_steps(const TorchTrace& trace,
                                   int rank,
                                   std::vector<std::string>& problems) {
    std::map<int, RankStep> steps;
    std::int64_t outside = 0;
    for (std::size_t i = 0; i < trace.spans.size(); ++i) {
        if (trace.steps[i] < 0) {
            ++outside;
            continue;
        }
        RankStep& step = steps[trace.steps[i]];
        step.number = trace.steps[i];
        step.row.push_back(trace.spans[i]);
    }
    if (outside > 0) {
        problems.push_back(fmt::format("rank {}: left out: {} outside of every ProfilerStep",
                                       rank,
                                       counted(outside, "action")));
    }
    std::vector<RankStep> in_order;
    for (auto& [number, step] : steps) {
        in_order.push_back(std::move(step));
    }
    return in_order;
}

/// No step ends with a forward where it has a backward: one that stands behind the last backward is
/// of the next step, whose first forward is missing in the step before.
void move_forwards_to_their_step(std::vector<RankStep>& steps) {
    for (std::size_t step = 0; step + 1 < steps.size(); ++step) {
        std::vector<Span>& row = steps[step].row;
        const auto last = std::find_if(row.rbegin(), row.rend(), [](const Span& span) {
            return span.action.op != Op::Forward;
        });
        if (last == row.rend()) {
            continue;
        }
        std::vector<Span>& next = steps[step + 1].row;
        next.insert(next.begin(), last.base(), row.end());
        row.erase(last.base(), row.end());
    }
}

/// Steps that begin where an action comes again.
std::vector<RankStep> repeated_steps(const TorchTrace& trace,
                                     int rank,
                                     std::vector<std::string>& problems) {
    const auto first = std::ranges::find_if(
        trace.spans, [](const Span& span) { return span.action.op == Op::Forward; });
    if (first != trace.spans.begin() && first != trace.spans.end()) {
        problems.push_back(
            fmt::format("rank {}: left out: {} before its first forward, as that step was not "
                        "recorded whole",
                        rank,
                        counted(first - trace.spans.begin(), "action")));
    }
    std::vector<RankStep> steps;
    std::set<Action> seen;
    for (auto span = first; span != trace.spans.end(); ++span) {
        if (steps.empty() || !seen.insert(span->action).second) {
            steps.emplace_back();
            seen = {span->action};
        }
        steps.back().row.push_back(*span);
    }
    move_forwards_to_their_step(steps);
    return steps;
}

/// An action of one step that makes or uses messages.
struct Partner {
    std::size_t step = 0;
    Duration begin{};
    Duration end{};
};

/// Puts each message into the step with the action that is nearest in time of those that make or
/// use it. Where that action is missing in a step, a message of the step is nearest to the action
/// of another one, whose own message is nearer.
void place_messages(const TorchTrace& trace, std::vector<RankStep>& steps) {
    std::map<Action, std::vector<Partner>> partners;
    for (std::size_t step = 0; step < steps.size(); ++step) {
        for (const Span& span : steps[step].row) {
            partners[span.action].push_back({.step = step, .begin = span.begin, .end = span.end});
        }
    }
    std::map<std::pair<std::size_t, Action>, Duration> distances;
    for (const Span& message : trace.messages) {
        const bool receives = is_receive(message.action.op);
        const auto distance_to = [&](const Partner& partner) {
            const Duration apart =
                receives ? partner.begin - message.end : partner.end - message.begin;
            return apart < Duration{} ? -apart : apart;
        };
        for (const Op backward : {Op::Backward, Op::BackwardInput}) {
            const auto found = partners.find(partner_of(message.action, backward));
            if (found == partners.end()) {
                continue;
            }
            const Partner& nearest = *std::ranges::min_element(found->second, {}, distance_to);
            const Duration distance = distance_to(nearest);
            const auto [known, is_new] =
                distances.emplace(std::pair(nearest.step, message.action), distance);
            if (is_new || distance < known->second) {
                known->second = distance;
                steps[nearest.step].messages.insert_or_assign(message.action, message);
            }
            break;
        }
    }
}

/// Adds the message of a name to the row, if the step has it.
void add_message(const RankStep& step, Op op, const Action& of, std::vector<Span>& row) {
    Action name = of;
    name.op = op;
    const auto found = step.messages.find(name);
    if (found != step.messages.end()) {
        row.push_back(found->second);
    }
}

}  // namespace

Action partner_of(const Action& message, Op backward) {
    Action partner = message;
    partner.op = is_of_forward(message.op) ? Op::Forward : backward;
    return partner;
}

std::vector<RankStep> rank_steps(const TorchTrace& trace,
                                 int rank,
                                 std::vector<std::string>& problems) {
    const bool has_marks = std::ranges::any_of(trace.steps, [](int number) { return number >= 0; });
    std::vector<RankStep> steps =
        has_marks ? marked_steps(trace, rank, problems) : repeated_steps(trace, rank, problems);
    place_messages(trace, steps);
    return steps;
}

void keep_common_steps(std::vector<std::vector<RankStep>>& ranks,
                       std::vector<std::string>& problems) {
    std::map<int, std::size_t> counts;
    std::size_t present = 0;
    for (const std::vector<RankStep>& steps : ranks) {
        present += steps.empty() ? 0U : 1U;
        for (const RankStep& step : steps) {
            if (!step.number) {
                return;
            }
            ++counts[*step.number];
        }
    }
    std::erase_if(counts, [present](const auto& count) { return count.second < present; });
    std::set<int> lost;
    for (std::vector<RankStep>& steps : ranks) {
        std::erase_if(steps, [&](const RankStep& step) {
            const bool is_lost = !counts.contains(*step.number);
            if (is_lost) {
                lost.insert(*step.number);
            }
            return is_lost;
        });
    }
    if (!lost.empty()) {
        problems.push_back(
            fmt::format("left out: {} that some ranks did not record; the first is ProfilerStep#{}",
                        counted(std::ssize(lost), "step"),
                        *lost.begin()));
    }
}

std::vector<Span> with_messages(const RankStep& step) {
    std::vector<Span> row;
    for (const Span& span : step.row) {
        const Op op = span.action.op;
        const bool forward = op == Op::Forward;
        const bool backward = op == Op::Backward || op == Op::BackwardInput;
        if (forward || backward) {
            add_message(step, forward ? Op::RecvForward : Op::RecvBackward, span.action, row);
        }
        row.push_back(span);
        if (forward || backward) {
            add_message(step, forward ? Op::SendForward : Op::SendBackward, span.action, row);
        }
    }
    make_room_for_compute(row);
    return row;
}

void make_room_for_compute(std::vector<Span>& row) {
    std::optional<Duration> end;
    for (Span& span : row) {
        if (is_message(span.action.op) && end) {
            span.begin = std::max(span.begin, *end);
            span.end = std::max(span.end, span.begin);
        }
        end = span.end;
    }
    std::optional<Duration> limit;
    for (auto span = row.rbegin(); span != row.rend(); ++span) {
        if (is_message(span->action.op)) {
            span->end = std::min(span->end, limit.value_or(span->end));
            span->begin = std::min(span->begin, span->end);
            span->ready = std::clamp(span->ready, span->begin, span->end);
        }
        limit = span->begin;
    }
}

}  // namespace pipetwin
