// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "exec/device/device.h"

namespace pipetwin::exec {

/// A CPU device whose actions last at least what the plan says: it computes, then sleeps for the
/// rest. So K = 8 devices can be run on two cores. Its traces are marked as emulated.
///
/// The device's clock stands at the planned end of an action even if the host woke up a little
/// later: that delay belongs to the emulation, not to the device, and does not add up from action
/// to action, since the next one is measured from the planned end. A host that is later than
/// `paced_lateness` could not keep the pace, and that shows: the clock jumps to the real time.
std::unique_ptr<Device> make_paced_device();

/// Longest delay of the host that a paced device's clock hides.
constexpr std::chrono::microseconds paced_lateness{2000};

}  // namespace pipetwin::exec
