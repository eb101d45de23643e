// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "core/base/units.h"

namespace pipetwin::exec {

/// The cores that this thread may run on, ascending.
std::vector<int> allowed_cores();

/// Binds the calling thread to one core. Where the system refuses, it stays where it is: pinning
/// makes a measurement steadier, nothing depends on it.
void pin_to(int core);

/// CPU time of the calling thread.
Duration thread_cpu_time();

}  // namespace pipetwin::exec
