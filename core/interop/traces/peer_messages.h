// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <string>
#include <vector>

#include "core/interop/traces/torch_trace.h"

namespace pipetwin {

/// Sends and receives of ranks, of which the traces have both ends.
struct PairedMessages {
    /// How long each message took, from the later begin of its two ends to the end of its receive:
    /// a kernel that receives waits for the sender, and one that sends for the receiver.
    std::vector<Duration> transfers;
    std::vector<Duration> receives;  ///< the same messages, as long as their receives lasted
    std::vector<std::string>
        notes;  ///< which pairs of traces have unequal numbers of sends and receives
};

/// The ranges of messages ("nccl:send 0->1") on the streams of a trace.
class MessageRanges {
  public:
    /// `events` outlives the object.
    explicit MessageRanges(const TraceEvents& events);

    /// The range on a kernel's stream that holds the kernel; null where there is none.
    const TraceMessage* around(const TraceKernel& kernel) const;

  private:
    std::map<int, std::map<Duration, const TraceMessage*>> ranges_;  ///< [lane][begin]
};

/// The sends and receives of a trace: kernels whose names, numbers or ranges around them say so.
/// The host's ranges of messages ("gloo:recv") end when the rank waits, and say nothing of a
/// transfer.
std::vector<PeerMessage> peer_messages_of(const TraceEvents& events);

/// Pairs the n-th send of a rank to another with the n-th receive there, as NCCL does. Clocks are
/// aligned first: no receive ends before its send has begun. Messages of two ranks alone need no
/// names of their ends.
PairedMessages paired_messages(const std::vector<TorchTrace>& traces);

}  // namespace pipetwin
