// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <exception>
#include <limits>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "core/schedule/action.h"

namespace pipetwin::exec {

/// What went wrong in a step. Any thread.
class StepFailures {
  public:
    /// Forgets all failures, before another step.
    void clear();

    /// The failure of one rank.
    struct One {
        int order = 0;  ///< of its action in the schedule
        int rank = 0;
        std::optional<Action> action;
        std::exception_ptr error;
        bool for_good = false;  ///< the device failed permanently, for all its ranks
        bool follows = false;   ///< from what happened to another rank
    };

    /// Notes the failure of a rank: no worker may begin an action later than `order` from now on.
    void report(int order, int rank, std::optional<Action> action, std::exception_ptr error);

    /// Whether a worker may still turn to the action with this place in the order.
    bool allows(int order) const { return order <= stop_; }

    /// Whether no rank failed. What follows is asked when no worker goes on; one that hangs may
    /// come back later and fail, too.
    bool empty() const;
    /// The earliest in schedule order; one that follows from another only where that is not known.
    One first() const;
    /// Whether a device failed permanently, for all its ranks.
    bool any_for_good() const;
    /// What other ranks had on a device that failed permanently, as the end of a sentence.
    std::string others_text() const;

  private:
    std::vector<One> causes() const;

    mutable std::mutex mutex_;
    std::atomic<int> stop_ = std::numeric_limits<int>::max();
    std::vector<One> all_;
};

}  // namespace pipetwin::exec
