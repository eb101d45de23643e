#pragma once

#include <string>
#include <vector>

#include "core/artifacts/chrome_trace.h"
#include "core/interop/torch_trace.h"
#include "core/schedule/schedule.h"

namespace pipetwin {

/// A measured run as PyTorch's profiler saw it.
struct TorchTimeline {
    Trace trace;                        ///< times are since the first action of each step
    std::vector<std::string> problems;  ///< what does not fit, in sentences
};

/// Merges the traces of the ranks, one each; a trace without a rank takes the next free one. A step
/// begins where an action comes again; a step is kept if every rank did all of it, in the order of
/// the first one. With `plan` the rows are the plan's: an action that a trace lacks (PyTorch
/// records no messages) takes no time and is named in `problems`, as is one that the plan lacks.
/// Where a rank ran in another order than the plan, the rows are those of the traces, and
/// `problems` says what differs first. All clocks are taken as one. Throws Error(BadInput) where
/// nothing is left.
TorchTimeline torch_timeline(std::vector<TorchSpans> ranks, const Schedule* plan);

}  // namespace pipetwin
