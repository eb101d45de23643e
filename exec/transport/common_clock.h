// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/base/units.h"
#include "exec/transport/channel.h"
#include "exec/transport/process_group.h"

namespace pipetwin::exec {

/// The clock of process 0, as another process sees it: hosts count their time from when they were
/// started, and none as fast as another.
class CommonClock {
  public:
    /// Asks process 0 what time it is, several times, and takes the middle of the differences that
    /// all answers allow (Cristian, "Probabilistic clock synchronization", 1989; Marzullo's
    /// intersection). The error is at most half of the fastest round trip. All processes call it.
    void ask(ProcessGroup& group);

    /// Whether it was asked too long ago: the same in all processes for the same moment on it.
    bool is_old(TimePoint common) const;

    /// A moment of this process's clock on the common clock.
    TimePoint common(TimePoint own) const { return own + ahead_; }
    /// A moment of the common clock on this process's clock.
    TimePoint own(TimePoint common) const { return common - ahead_; }

  private:
    Duration ahead_{};  ///< of process 0 before this one
    TimePoint asked_;   ///< on the common clock, and the same in all processes
};

}  // namespace pipetwin::exec
