#pragma once

#include <chrono>

#include "core/action.h"
#include "core/units.h"

namespace pipetwin::exec {

using TimePoint = std::chrono::steady_clock::time_point;

/// Where a stage computes. One per rank, used by one thread at a time.
class Device {
  public:
    virtual ~Device() = default;

    /// Called by a worker's thread before its first action: denormals to zero, one BLAS thread.
    virtual void enter_thread() = 0;

    /// The time on this device's clock.
    virtual TimePoint now() = 0;

    /// Called when the host has issued all of `action`, which was planned to last `planned`; returns the moment at which its
    /// result is complete.
    virtual TimePoint complete(const Action& action, TimePoint begin, Duration planned) = 0;
};

}  // namespace pipetwin::exec
