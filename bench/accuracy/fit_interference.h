// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "core/plan/plan.h"

namespace pipetwin::accuracy {

/// A short run of a pipeline, step by step: the plan with the durations that actions have at that
/// moment while no other rank computes, and the step time that was measured.
struct FitCase {
    /// One step of the run.
    struct Step {
        Plan plan;
        Duration measured{};
    };
    std::vector<Step> steps;  ///< at least one
};

/// Interference between ranks, fitted to cases: the one number between an isolated profile and a
/// running pipeline.
struct InterferenceFit {
    double interference = 0;  ///< as a share: how much longer actions last beside another rank
    std::vector<double> error_percent;  ///< of each case, with it: the median over its steps
    /// [case]: the error with the interference that the other cases alone give: what the fit is
    /// worth for a plan that it has not seen. Empty unless there are two cases.
    std::vector<double> leave_one_out_percent;
};

/// Finds the interference, 0 to 1, with which the cases are predicted without error on average. 0
/// where the cases are predicted too short without any.
InterferenceFit fit_interference(const std::vector<FitCase>& cases);

}  // namespace pipetwin::accuracy
