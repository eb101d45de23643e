// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "bench/published/stack_runs.h"

#include <string>
#include <vector>

namespace pipetwin::published {

/// Errors of runs with a stack by set, by stack, and by device and precision: as the stacks are and
/// with each source left out, and how many lie in the ranges that the others give. One line each.
std::string stack_tables(const std::vector<StackRun>& runs);

}  // namespace pipetwin::published
