// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/artifacts/chrome_trace.h"
#include "core/interop/traces/torch_trace.h"

namespace pipetwin {

/// A prediction and the run that profilers recorded, with the same actions in the same rows.
struct BesidePlan {
    Trace predicted;  ///< times are since the first action of each step
    Trace measured;
    std::vector<std::string>
        notes{};  ///< what a reader of the comparison should know, in sentences
};

/// Puts the traces of ranks, one each, beside the prediction of their plan. Actions other than F,
/// B, I and W that the traces do not show (messages, the optimizer) are left out on both sides, as
/// are ranks without a trace. The time of an R, which a trace has inside of its B or I, is added to
/// that. Where the ranks ran in another order than the plan, actions are joined by their names, and
/// a note says what differs first. Throws Error(BadInput) with `place` where the traces are those
/// of another plan (F, B, I or W of one side alone), or two of them are of one rank.
BesidePlan beside_plan(Trace predicted, std::vector<TorchTrace> ranks, std::string_view place);

}  // namespace pipetwin
