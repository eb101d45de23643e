#pragma once

#include <deque>
#include <optional>
#include <vector>

#include "core/schedule/action.h"
#include "sim/engine/conditions.h"
#include "sim/engine/fair_work.h"

namespace pipetwin::sim {

/// Messages on their way over links that several edges share.
class SharedLinks {
  public:
    SharedLinks(const Plan& plan, const Conditions& conditions);

    /// Whether the messages of an edge pass any shared link.
    bool is_shared(int edge) const;

    /// Adds a message that is ready to leave. It begins when its edge and, if links are used one
    /// after the other, its way are free.
    void request(Duration now, int edge, const Action& send);

    /// Time at which the next message will be through, if no other comes before; none while there
    /// is none.
    std::optional<Duration> next_end() { return work_.next_end(); }

    /// A message on its way.
    struct Carried {
        int edge = 0;
        Action send;
        Duration begin{};
    };
    /// Removes and returns the messages that are through at `now`.
    std::vector<Carried> take_done(Duration now);

  private:
    void start_what_can(Duration now);
    bool way_is_free(int edge, const std::vector<bool>& wanted) const;
    void start(Duration now, const Carried& message);

    const Plan& plan_;
    const Conditions& conditions_;
    const std::vector<std::vector<int>>& way_of_edge_;
    FairWork work_;
    std::deque<Carried> waiting_;  ///< in the order in which they came
    std::vector<Carried> under_way_;
    std::vector<bool> edge_busy_;
    std::vector<int> users_;  ///< [shared link]: messages on it
};

}  // namespace pipetwin::sim
