// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "core/artifacts/chrome_trace.h"
#include "core/interop/traces/torch_trace.h"
#include "core/schedule/schedule.h"

namespace pipetwin {

/// What a rank's trace and its row of the plan do not have in common, in the first step.
struct UnfitActions {
    bool has_trace = false;
    std::vector<std::size_t> lacking{};  ///< cells of the plan that the trace lacks
    std::vector<Action> beyond{};        ///< actions of the trace that the plan lacks
};

/// A measured run as the profilers of its ranks saw it.
struct TorchTimeline {
    Trace trace;                        ///< times are since the first action of each step
    std::vector<std::string> problems;  ///< what does not fit, in sentences
    bool fits_plan = false;             ///< the rows are the plan's
    std::vector<UnfitActions>
        unfit{};  ///< [rank of the plan]; empty where the rows are not its own
    /// What the rows of the plan and the traces do not have in common, in sentences.
    std::vector<std::string> differences{};
    /// From the end of a message's computation on one rank to the end of its receive on the other,
    /// where the receive was pending by then; so no wait for the computation is in it.
    std::vector<Duration> transfers;
};

/// Merges the traces of the ranks, one each; a trace without a rank takes the next free one, and a
/// trace that does not name its stage is that of its place among the ranks. Steps are those that
/// the traces mark (ProfilerStep#5); else a step begins where an action comes again. A step is kept
/// if every rank did all of it, in the order of the first one. With `plan` the rows are the plan's:
/// an action that a trace lacks takes no time and is named in `differences`, as is one that the
/// plan lacks. Where a rank ran in another order than the plan, the rows are those of the traces,
/// and the last of `differences` says what differs first. Clocks of ranks are moved where messages
/// would arrive before they have left. A receive waits (`ready`) until its message has left the
/// other rank. Throws Error(BadInput) where nothing is left.
TorchTimeline torch_timeline(std::vector<TorchTrace> ranks, const Schedule* plan);

}  // namespace pipetwin
