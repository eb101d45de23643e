// SPDX-License-Identifier: Apache-2.0
#include "core/interop/traces/message_times.h"

#include <algorithm>
#include <limits>
#include <optional>

#include "core/base/as_index.h"

namespace pipetwin {

namespace {

bool makes_message(Op op) {
    return op == Op::Forward || op == Op::Backward || op == Op::BackwardInput;
}

/// The computation of the stage before (of a forward) or behind (of a backward) that hands its
/// result to this one: as B or as I.
Action maker_of(const Action& use, Op backward) {
    const bool forward = is_of_forward(use.op);
    return {.op = forward ? Op::Forward : backward,
            .stage = forward ? use.stage - 1 : use.stage + 1,
            .micro_batch = use.micro_batch};
}

}  // namespace

MessageTimes::MessageTimes(std::vector<std::vector<RankStep>>& ranks, bool on_device)
    : ranks_(ranks), on_device_(on_device), steps_(std::numeric_limits<std::size_t>::max()) {
    for (const std::vector<RankStep>& steps : ranks_) {
        steps_ = steps.empty() ? steps_ : std::min(steps_, steps.size());
    }
    steps_ = steps_ == std::numeric_limits<std::size_t>::max() ? 0 : steps_;
}

MessageTimes::Makers MessageTimes::makers_of(std::size_t step) const {
    Makers makers;
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
        if (ranks_[rank].empty()) {
            continue;
        }
        for (const Span& span : ranks_[rank][step].row) {
            if (makes_message(span.action.op)) {
                makers.emplace(span.action, Maker{.rank = static_cast<int>(rank), .span = &span});
            }
        }
    }
    return makers;
}

bool MessageTimes::has_messages() const {
    return std::ranges::any_of(ranks_, [](const std::vector<RankStep>& steps) {
        return std::ranges::any_of(steps,
                                   [](const RankStep& step) { return !step.messages.empty(); });
    });
}

void MessageTimes::add_sent(std::size_t step, std::vector<SentMessage>& sent) const {
    const Makers makers = makers_of(step);
    for (const auto& [use, user] : makers) {
        for (const Op backward : {Op::Backward, Op::BackwardInput}) {
            const auto maker = makers.find(maker_of(use, backward));
            if (maker == makers.end() || maker->second.rank == user.rank) {
                continue;
            }
            Duration arrival = on_device_ ? user.span->begin : user.span->end;
            const auto& messages = ranks_[as_index(user.rank)][step].messages;
            Action receive = use;
            receive.op = use.op == Op::Forward ? Op::RecvForward : Op::RecvBackward;
            if (const auto found = messages.find(receive); on_device_ && found != messages.end()) {
                arrival = std::min(arrival, found->second.end);
            }
            sent.push_back({.from = maker->second.rank,
                            .to = user.rank,
                            .departure = maker->second.span->end,
                            .arrival = arrival});
            break;
        }
    }
}

void MessageTimes::align_clocks(std::vector<std::string>& problems) {
    if (!on_device_ && !has_messages()) {
        return;
    }
    std::vector<SentMessage> sent;
    for (std::size_t step = 0; step < steps_; ++step) {
        add_sent(step, sent);
    }
    ClockOffsets offsets = clock_offsets(static_cast<int>(ranks_.size()), sent);
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
        const Duration add = offsets.add[rank];
        const auto move = [add](Span& span) {
            span.begin += add;
            span.ready += add;
            span.end += add;
        };
        for (RankStep& step : ranks_[rank]) {
            std::ranges::for_each(step.row, move);
            for (auto& [action, span] : step.messages) {
                move(span);
            }
        }
    }
    problems.insert(problems.end(), offsets.notes.begin(), offsets.notes.end());
}

std::optional<Duration> MessageTimes::send_begin(const Action& receive,
                                                 int rank,
                                                 std::size_t step) const {
    const bool forward = is_of_forward(receive.op);
    const Action send{.op = forward ? Op::SendForward : Op::SendBackward,
                      .stage = forward ? receive.stage - 1 : receive.stage + 1,
                      .micro_batch = receive.micro_batch};
    const std::map<Action, Span>& messages = ranks_[as_index(rank)][step].messages;
    const auto found = messages.find(send);
    return found == messages.end() ? std::nullopt : std::optional(found->second.begin);
}

std::vector<Duration> MessageTimes::tell_waits() {
    std::vector<Duration> transfers;
    for (std::size_t step = 0; step < steps_; ++step) {
        const Makers makers = makers_of(step);
        for (std::vector<RankStep>& steps : ranks_) {
            if (steps.empty()) {
                continue;
            }
            for (auto& [action, receive] : steps[step].messages) {
                if (!is_receive(action.op)) {
                    continue;
                }
                auto maker = makers.find(maker_of(action, Op::Backward));
                if (maker == makers.end()) {
                    maker = makers.find(maker_of(action, Op::BackwardInput));
                }
                if (maker == makers.end()) {
                    continue;
                }
                const std::optional<Duration> sent = send_begin(action, maker->second.rank, step);
                const Duration left = sent.value_or(maker->second.span->end);
                const Duration start = std::max(left, receive.begin);
                if ((sent || receive.begin <= left) && start <= receive.end) {
                    transfers.push_back(receive.end - start);
                }
                receive.ready = std::clamp(left, receive.begin, receive.end);
            }
        }
    }
    return transfers;
}

std::vector<Duration> measured_transfers(const std::vector<TorchTrace>& traces,
                                         std::vector<std::string>& problems) {
    std::vector<std::vector<RankStep>> ranks;
    bool on_gpu = !traces.empty();
    for (const TorchTrace& trace : traces) {
        if (trace.spans.empty() || !trace.numbers_micro_batches) {
            return {};
        }
        ranks.push_back(rank_steps(trace, static_cast<int>(ranks.size()), problems));
        on_gpu = on_gpu && trace.on_gpu;
    }
    const bool has_messages = std::ranges::any_of(
        traces, [](const TorchTrace& trace) { return !trace.messages.empty(); });
    if (!has_messages) {
        return {};
    }
    keep_common_steps(ranks, problems);
    MessageTimes messages(ranks, on_gpu);
    messages.align_clocks(problems);
    return on_gpu ? messages.tell_waits() : std::vector<Duration>{};
}

}  // namespace pipetwin
