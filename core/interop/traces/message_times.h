// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/interop/traces/rank_steps.h"
#include "core/interop/traces/trace_clocks.h"

namespace pipetwin {

/// The messages between ranks, as the computations on both sides and the recorded receives tell
/// them.
class MessageTimes {
  public:
    /// `ranks`: [rank][step], changed by the functions below; outlives the object. Times of a
    /// host's ranges (not `on_device`) hold the waits for messages inside them.
    MessageTimes(std::vector<std::vector<RankStep>>& ranks, bool on_device);

    /// Moves the times of ranks whose messages would arrive before they have left, and says which.
    /// Ranges of the host are only moved where messages were recorded, too.
    void align_clocks(std::vector<std::string>& problems);

    /// Makes `ready` of each receive the moment at which its message has left the other rank: when
    /// its send began, or where that was not recorded, when its computation was done. Returns how
    /// long each message took, from the later begin of both ends; without the send, only those
    /// whose receive was pending by then.
    std::vector<Duration> tell_waits();

  private:
    /// Where a computation that makes a message ran.
    struct Maker {
        int rank = 0;
        const Span* span = nullptr;
    };
    using Makers = std::map<Action, Maker>;

    Makers makers_of(std::size_t step) const;
    /// The begin of the send that a receive is of, on rank `rank`; none where it was not recorded.
    std::optional<Duration> send_begin(const Action& receive, int rank, std::size_t step) const;
    bool has_messages() const;
    void add_sent(std::size_t step, std::vector<SentMessage>& sent) const;

    std::vector<std::vector<RankStep>>& ranks_;
    bool on_device_;
    std::size_t steps_ = 0;  ///< that every rank with steps has
};

/// How long the messages took whose receives were pending when their computation was done; without
/// the wait for it. Traces in the order of their ranks, with numbered stages. Empty where they hold
/// no receives. Clocks are aligned first, as `problems` then says.
std::vector<Duration> measured_transfers(const std::vector<TorchTrace>& traces,
                                         std::vector<std::string>& problems);

}  // namespace pipetwin
