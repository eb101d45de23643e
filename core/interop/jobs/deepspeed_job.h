// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "core/interop/jobs/placed_plan.h"

/// Plans as configurations of DeepSpeed.
namespace pipetwin {

/// A configuration, and what the program that starts DeepSpeed has to say in code.
struct DeepSpeedJob {
    std::string json;
    std::vector<std::string> remarks;  ///< sentences
};

/// DeepSpeed's JSON file for the plan, with its pipeline engine where there are several stages.
/// Throws Error(BadInput) about the first key that DeepSpeed cannot say.
DeepSpeedJob deepspeed_job(const PlacedPlan& plan);

}  // namespace pipetwin
