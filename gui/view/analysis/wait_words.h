// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "gui/view/analysis/step_analysis.h"

/// Waits in words.
namespace pipetwin::gui {

/// "1B2 waited 1.84 ms: 1.61 ms for 2B2 on rank 2 (compute), 230 us for the link from rank 2 to
/// rank 1. It could take 2.00 ms longer without delaying the step."; for the cell after a row's
/// last "Rank 3 had no work left and waited ..."; "" for a reference to nothing. Causes that are
/// many are summed by kind and rank, or by kind.
std::string wait_sentence(const StepAnalysis& analysis, const SpanRef& ref);

/// "In this measured step a rank waited on average 3.2 ms of 40.1 ms: compute 61 %, ... Most idle:
/// rank 2 (9.1 ms)."; of several steps "In measured step 12 ...".
std::string idle_sentence(const StepAnalysis& analysis);

/// Whole percents of `whole` that add up to those of the sum: the largest rests are rounded up.
std::vector<int> percents(const std::vector<Duration>& parts, Duration whole);

/// Name of what waited: "1B2", or after the last action of a rank "end of the step".
std::string who(const StepAnalysis& analysis, const SpanRef& ref);

/// Way in which a piece held up what came after it: "compute", "link from rank 2 to rank 1".
std::string how(const StepAnalysis& analysis, const WaitPiece& piece);

}  // namespace pipetwin::gui
