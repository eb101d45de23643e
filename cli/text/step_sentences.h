// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "sim/explain/explanation.h"

namespace pipetwin {

class Plan;

}  // namespace pipetwin

namespace pipetwin::cli {

/// Sentences about what a step spends its time on and why ranks wait, one or a few per cause.
std::vector<std::string> where_the_time_goes(const Plan& plan, const sim::Explanation& what);

/// "before 0B3", in full "before 0B3 (the backward of micro-batch 3 on stage 0)"; for a receive
/// that is the action behind it.
std::string place_of(const Plan& plan, const sim::Wait& wait, bool full = false);

}  // namespace pipetwin::cli
