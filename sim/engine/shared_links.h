// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "core/schedule/action.h"
#include "core/sharing/link_traffic.h"
#include "sim/engine/conditions.h"

namespace pipetwin::sim {

/// Messages, and stashes that are copied to host memory and back, on their way over links that
/// several of them share.
class SharedLinks {
  public:
    SharedLinks(const Plan& plan, const Conditions& conditions);

    /// Whether the messages of an edge pass any shared link.
    bool is_shared(int edge) const { return traffic_.is_shared(edge); }
    /// Whether copies to host memory and back pass shared links.
    static bool shares_copies(const Conditions& conditions);

    /// Adds a message that is ready to leave. It begins when its edge and, if links are used one
    /// after the other, its way are free.
    void send(Duration now, int edge, const Action& send);

    /// Adds a copy of so many units (LinkTraffic::units_of) over a way of
    /// Contention::way_of_copies. It begins when the copies before it on the same way are through;
    /// else as a message.
    void copy(Duration now, int way, const Action& action, std::int64_t units);

    /// Time at which the next message will be through, if no other comes before; none while there
    /// is none.
    std::optional<Duration> next_end() { return traffic_.next_end(); }

    /// A message or a copy.
    struct Carried {
        int owner = 0;  ///< the edge, or, behind all edges, the way of a copy
        Action action;
        Duration begin{};
    };
    /// Removes and returns what is through at `now`.
    std::vector<Carried> take_done(Duration now);

    /// The way of the copy; none: it is a message.
    std::optional<int> way_of_copy(const Carried& carried) const {
        const int way = carried.owner - traffic_.edges();
        return way < 0 ? std::nullopt : std::optional(way);
    }

  private:
    void add(Duration now, int owner, const Action& action, std::int64_t units);

    const Plan& plan_;
    const Conditions& conditions_;
    LinkTraffic traffic_;
    std::vector<Action> actions_;  ///< by the tags of the traffic
};

}  // namespace pipetwin::sim
