// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "gui/view/analysis/step_analysis.h"

/// Why one step is longer than another.
namespace pipetwin::gui {

/// "2.00 ms (9.52 %) less than 1f1b: fill and drain 2.00 ms less. A rank waits 1.50 ms less before
/// its first action on average; most on rank 3 (6.00 ms less)." Compares times where both steps do
/// the same work, else shares of the steps. The parts are those of `pipetwin compare`; they sum to
/// the difference of the steps. `baseline` names the other run. Takes as long as both analyses:
/// call it on a worker.
std::string difference_sentence(const StepAnalysis& step,
                                const StepAnalysis& other,
                                const std::string& baseline);

}  // namespace pipetwin::gui
