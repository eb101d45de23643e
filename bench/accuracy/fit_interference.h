#pragma once

#include <vector>

#include "core/plan/plan.h"

namespace pipetwin::accuracy {

/// A short run of a pipeline, step by step: the plan, with what actions last at that moment while
/// no other rank computes, and the step time that was measured.
struct FitCase {
    struct Step {
        Plan plan;
        Duration measured{};
    };
    std::vector<Step> steps;  ///< at least one
};

/// The one number between an isolated profile and a running pipeline.
struct InterferenceFit {
    double interference = 0;  ///< as a share: actions last so much longer beside another rank
    std::vector<double> error_percent;  ///< of each case, with it: the median over its steps
    /// Of each case, with what the other cases alone say: what the fit is worth for a plan that it
    /// has not seen. Empty unless there are two.
    std::vector<double> leave_one_out_percent;
};

/// The interference with which the cases are predicted without error on average, 0 to 1: actions
/// are so much shorter where no other rank computes. 0 where the cases are predicted too short
/// without any.
InterferenceFit fit_interference(const std::vector<FitCase>& cases);

}  // namespace pipetwin::accuracy
