// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <condition_variable>
#include <cstddef>
#include <functional>
#include <map>
#include <mutex>

#include "core/sharing/link_traffic.h"
#include "exec/device/device.h"

namespace pipetwin {

class Plan;

}  // namespace pipetwin

namespace pipetwin::exec {

/// The shared links of paced devices in one process: messages that pass one at once take as long
/// as the simulator says, from the moments at which they really set out. For all threads.
class PacedLinks {
  public:
    explicit PacedLinks(const Plan& plan);

    /// Whether the messages of an edge (core/schedule/edge.h) pass any shared link.
    bool is_shared(int edge) const { return traffic_.is_shared(edge); }

    /// A message sets out. What it returns, to be called once, waits until the last byte is through
    /// and says when the message arrives: one latency of its own link later.
    std::function<TimePoint()> send(int edge, const LinkCost& link, Bytes message);

  private:
    TimePoint wait(std::size_t message, Duration latency);
    void follow();

    const TimePoint start_;
    std::mutex mutex_;
    std::condition_variable changed_;
    LinkTraffic traffic_;
    Duration followed_{};  ///< from the start until when the traffic is known
    std::size_t sent_ = 0;
    std::map<std::size_t, Duration> through_{};  ///< [message]: not read by a receiver yet
};

}  // namespace pipetwin::exec
