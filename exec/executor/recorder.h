// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <vector>

#include "core/schedule/action.h"
#include "core/timeline/timeline.h"
#include "exec/device/device.h"

namespace pipetwin::exec {

/// What one worker notes during a step: a span for every action of its row, and how much of its
/// compute time the thread really had the core. Everything is allocated beforehand. Used by one
/// thread at a time.
class Recorder {
  public:
    explicit Recorder(std::vector<Action> row);

    /// Forgets the last step.
    void restart();

    /// Begins the compute of an action.
    void begin_compute();
    /// Ends the compute that `begin_compute` began: adds its wall and CPU time.
    void end_compute();

    /// The next action of the row is done; it has spent `in_groups` in messages of groups.
    void record(TimePoint begin, TimePoint ready, TimePoint end, Duration in_groups);

    /// The spans since `start`; one for each action recorded so far. In place of what `spans` were.
    void spans(TimePoint start, std::vector<Span>& spans) const;

    /// Fills a row of Timeline::in_groups, in place of what `times` were.
    void times_in_groups(std::vector<Duration>& times) const;

    Duration compute_wall() const { return wall_; }
    Duration compute_cpu() const { return cpu_; }

  private:
    struct Moments {
        TimePoint begin;
        TimePoint ready;
        TimePoint end;
        Duration in_groups;
    };
    std::vector<Action> row_;
    std::vector<Moments> moments_;
    TimePoint compute_began_;
    Duration cpu_began_{};
    Duration wall_{};
    Duration cpu_{};
};

}  // namespace pipetwin::exec
