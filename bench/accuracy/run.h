// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "bench/accuracy/grid.h"

#include <iosfwd>

namespace pipetwin::accuracy {

/// Measures the interference where the store has none, then the cells that it lacks in their seeded
/// order, writes each line when it is done, and prints the table. A precision that the executor
/// refuses is left out with its reason, and one of which the gate refuses a short run; that is not
/// stored. Returns whether at least 60 % of the cells passed the gate; else the result is "not
/// measurable on this machine today". Whether the goals are reached is printed.
bool run_grid(const GridOptions& options, std::ostream& out);

}  // namespace pipetwin::accuracy
