// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>

#include "core/scenario/scenario.h"
#include "exec/base/retry.h"

namespace pipetwin::exec {

/// When the checkpoints of a training are due: after so many steps or after so much time, and again
/// a while after one that could not be written. The caller says what time it is.
class CheckpointTimes {
  public:
    using Clock = Retry::Clock;

    /// `resumed`: the training goes on from a checkpoint. `start` is when it begins.
    CheckpointTimes(const Scenario::OutputPart& output, bool resumed, Clock::time_point start)
        : output_(output), has_one_(resumed), previous_(start) {}

    /// Whether one is due between two steps. `last`: no step follows. A training by time that has
    /// ended before its first checkpoint was due gets none.
    bool is_due(int steps_done, bool last, Clock::time_point now) const {
        if (output_.checkpoint_every > 0 && (last || steps_done % output_.checkpoint_every == 0)) {
            return true;
        }
        if (retry_.has_failed()) {
            return last || retry_.is_due(now);
        }
        return by_time() && ((last && has_one_) || now - previous_ >= output_.checkpoint_period);
    }

    void written(Clock::time_point now) {
        has_one_ = true;
        previous_ = now;
        retry_.succeeded();
    }
    void failed(Clock::time_point now) { retry_.failed(now); }

  private:
    bool by_time() const {
        return output_.checkpoint_every == 0 && output_.checkpoint_period > Duration{};
    }

    Scenario::OutputPart output_;
    bool has_one_;
    Clock::time_point previous_;
    Retry retry_;
};

}  // namespace pipetwin::exec
