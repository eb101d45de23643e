// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>

#include "core/artifacts/chrome_trace.h"

namespace pipetwin {

/// What the steps of a trace cannot all have been: two computations of one rank at the same time by
/// more than a tenth of the shorter one, an action that waits for longer than it lasts, a measured
/// action that lies so far from all others that nothing happens for longer than all of
/// them take. A sentence with step, rank and action; none where the trace is consistent.
std::optional<std::string> contradiction(const Trace& trace);

}  // namespace pipetwin
