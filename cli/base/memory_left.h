// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>

#include "core/base/units.h"

namespace pipetwin::cli {

/// Memory that this process may still take: the least of what its limit (`ulimit -v`), its control
/// group and the machine leave. None where the system says none of them.
std::optional<Bytes> memory_left();

}  // namespace pipetwin::cli
