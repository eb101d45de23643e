// SPDX-License-Identifier: Apache-2.0
#include "core/interop/traces/peer_messages.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "core/base/as_index.h"
#include "core/base/number_text.h"
#include "core/interop/traces/trace_clocks.h"

namespace pipetwin {

namespace {

/// A time of one rank.
struct Stretch {
    Duration begin{};
    Duration end{};
};

/// Both ends of the messages from one trace to another.
struct MessageEnds {
    std::vector<Stretch> sends;
    std::vector<Stretch> receives;
};

/// [trace that sends, trace that receives].
using EndsOfPairs = std::map<std::pair<int, int>, MessageEnds>;

/// The trace of each rank's name, as messages have it; empty where two traces have one name.
std::map<int, int> traces_by_name(const std::vector<TorchTrace>& traces) {
    std::map<int, int> found;
    for (std::size_t i = 0; i < traces.size(); ++i) {
        for (const PeerMessage& message : traces[i].peer_messages) {
            if (message.self < 0) {
                continue;
            }
            const auto [known, is_new] = found.emplace(message.self, static_cast<int>(i));
            if (!is_new && known->second != static_cast<int>(i)) {
                return {};
            }
        }
    }
    return found;
}

EndsOfPairs ends_of_pairs(const std::vector<TorchTrace>& traces) {
    const std::map<int, int> by_name = traces_by_name(traces);
    EndsOfPairs pairs;
    for (std::size_t i = 0; i < traces.size(); ++i) {
        const int own = static_cast<int>(i);
        for (const PeerMessage& message : traces[i].peer_messages) {
            const auto named = by_name.find(message.peer);
            const int other = named != by_name.end()                    ? named->second
                              : message.peer < 0 && traces.size() == 2U ? 1 - own
                                                                        : own;
            if (other == own || message.way == PeerMessage::Way::Both) {
                continue;
            }
            const bool is_send = message.way == PeerMessage::Way::Send;
            MessageEnds& ends = pairs[is_send ? std::pair(own, other) : std::pair(other, own)];
            (is_send ? ends.sends : ends.receives)
                .push_back({.begin = message.begin, .end = message.end});
        }
    }
    return pairs;
}

/// Kernels of two ranks that do not say which way their messages go, as those of a group of sends
/// and receives: each is one kernel on both ranks.
MessageEnds joint_kernels(const std::vector<TorchTrace>& traces) {
    MessageEnds ends;
    if (traces.size() != 2) {
        return ends;
    }
    for (std::size_t i = 0; i < 2; ++i) {
        for (const PeerMessage& message : traces[i].peer_messages) {
            if (message.way == PeerMessage::Way::Both) {
                (i == 0 ? ends.sends : ends.receives)
                    .push_back({.begin = message.begin, .end = message.end});
            }
        }
    }
    return ends;
}

/// Whether both ends of all messages are there.
bool is_paired(const MessageEnds& ends) {
    return !ends.sends.empty() && ends.sends.size() == ends.receives.size();
}

PeerMessage peer_message(bool is_send, int source, int target, Duration begin, Duration length) {
    return {.way = is_send ? PeerMessage::Way::Send : PeerMessage::Way::Receive,
            .self = is_send ? source : target,
            .peer = is_send ? target : source,
            .begin = begin,
            .end = begin + length};
}

/// The message of a kernel; none where it is none.
std::optional<PeerMessage> message_of(const TraceKernel& kernel, const MessageRanges& ranges) {
    const bool is_known = kernel.work == KernelWork::Send || kernel.work == KernelWork::Receive;
    if (is_known && kernel.source >= 0 && kernel.target >= 0) {
        return peer_message(kernel.work == KernelWork::Send,
                            kernel.source,
                            kernel.target,
                            kernel.begin,
                            kernel.length);
    }
    if (!is_known && kernel.work != KernelWork::PointToPoint &&
        kernel.work != KernelWork::Communication) {
        return std::nullopt;
    }
    if (const TraceMessage* const around = ranges.around(kernel)) {
        return peer_message(
            around->is_send, around->source, around->target, kernel.begin, kernel.length);
    }
    if (is_known) {
        return peer_message(kernel.work == KernelWork::Send, -1, -1, kernel.begin, kernel.length);
    }
    return kernel.work == KernelWork::PointToPoint
               ? std::optional(PeerMessage{
                     .way = PeerMessage::Way::Both, .begin = kernel.begin, .end = kernel.end()})
               : std::nullopt;
}

}  // namespace

MessageRanges::MessageRanges(const TraceEvents& events) {
    for (const TraceMessage& message : events.messages) {
        ranges_[message.lane].emplace(message.begin, &message);
    }
}

const TraceMessage* MessageRanges::around(const TraceKernel& kernel) const {
    const auto lane = ranges_.find(kernel.lane);
    if (lane == ranges_.end()) {
        return nullptr;
    }
    const auto after = lane->second.upper_bound(kernel.begin);
    if (after == lane->second.begin()) {
        return nullptr;
    }
    const TraceMessage* const before = std::prev(after)->second;
    return kernel.end() <= before->begin + before->length ? before : nullptr;
}

std::vector<PeerMessage> peer_messages_of(const TraceEvents& events) {
    std::vector<PeerMessage> found;
    const MessageRanges ranges(events);
    for (const TraceKernel& kernel : events.kernels) {
        if (const std::optional<PeerMessage> message = message_of(kernel, ranges)) {
            found.push_back(*message);
        }
    }
    for (PeerMessage& message : found) {
        message.begin += events.clock_base.value_or(Duration{});
        message.end += events.clock_base.value_or(Duration{});
    }
    return found;
}

PairedMessages paired_messages(const std::vector<TorchTrace>& traces) {
    EndsOfPairs pairs = ends_of_pairs(traces);
    if (const MessageEnds joint = joint_kernels(traces); pairs.empty() && is_paired(joint)) {
        pairs.emplace(std::pair(0, 1), joint);
    }
    PairedMessages found;
    std::vector<SentMessage> sent;
    for (auto& [pair, ends] : pairs) {
        std::ranges::stable_sort(ends.sends, {}, &Stretch::begin);
        std::ranges::stable_sort(ends.receives, {}, &Stretch::begin);
        if (!is_paired(ends)) {
            found.notes.push_back(fmt::format(
                "from trace {} to trace {}: {} and {} do not pair, so their waits cannot "
                "be told from their transfers",
                pair.first,
                pair.second,
                counted(ends.sends.size(), "send"),
                counted(ends.receives.size(), "receive")));
            continue;
        }
        for (std::size_t i = 0; i < ends.sends.size(); ++i) {
            sent.push_back({.from = pair.first,
                            .to = pair.second,
                            .departure = ends.sends[i].begin,
                            .arrival = ends.receives[i].end});
        }
    }
    const std::vector<Duration> add = clock_offsets(static_cast<int>(traces.size()), sent).add;
    for (const auto& [pair, ends] : pairs) {
        for (std::size_t i = 0; is_paired(ends) && i < ends.sends.size(); ++i) {
            const Duration begin = std::max(ends.sends[i].begin + add[as_index(pair.first)],
                                            ends.receives[i].begin + add[as_index(pair.second)]);
            const Duration end = ends.receives[i].end + add[as_index(pair.second)];
            if (end >= begin) {
                found.transfers.push_back(end - begin);
                found.receives.push_back(ends.receives[i].end - ends.receives[i].begin);
            }
        }
    }
    return found;
}

}  // namespace pipetwin
