#pragma once

#include <chrono>
#include <memory>

#include "core/action.h"
#include "core/units.h"

namespace pipetwin::exec {

class Kernels;

using TimePoint = std::chrono::steady_clock::time_point;

/// Where a stage computes. One per rank, used by one thread at a time.
class Device {
  public:
    virtual ~Device() = default;

    /// Called by a worker's thread before its first action: denormals to zero, one BLAS thread.
    virtual void enter_thread() = 0;

    /// The time on this device's clock.
    virtual TimePoint now() = 0;

    /// Returns when `moment`, which lies a little ahead, has come on this device's clock: the start
    /// of a step.
    virtual void wait_until(TimePoint moment) {
        while (now() < moment) {
        }
    }

    /// Called when the host has issued all of `action`, which was planned to last `planned`;
    /// returns the moment at which its result is complete.
    virtual TimePoint complete(const Action& action, TimePoint begin, Duration planned) = 0;

    /// The mathematics of this device. Stateless: any number of devices may share one object.
    virtual const Kernels& kernels() = 0;
};

/// The processor this program runs on, at full speed.
std::unique_ptr<Device> make_cpu_device();

/// The CPU's kernels, for devices that compute there, too.
const Kernels& cpu_kernels();

/// What `enter_thread` of every device that computes on the CPU does: denormals count as zero in
/// the calling thread (they would slow a step 16 times), BLAS uses one thread (so that results do
/// not depend on the number of cores).
void prepare_cpu_thread();

}  // namespace pipetwin::exec
