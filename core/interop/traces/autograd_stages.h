// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "core/interop/traces/trace_events.h"

namespace pipetwin {

/// Forwards and backwards of a rank whose trace names none, as the numbers of autograd tell them.
struct AutogradStages {
    std::vector<TraceRange> ranges;  ///< F and B of the rank's only stage, of the host's threads
    std::string problem;  ///< why they are none of one stage; empty: they are, or there are none
    bool are_numbered = false;  ///< the trace says where steps end, so micro-batches have numbers
};

/// Cuts the outermost operators of the host at its sends and receives, and where forward and
/// backward follow each other. The profiler writes beside an operator of a forward the number of
/// the node of autograd that it makes, and beside a node of a backward its own: so a backward
/// belongs to the forward that made its nodes. Forwards without a backward (of an evaluation, or
/// whose backward was not recorded) and backwards without a forward are left out. Where the
/// backwards of a step follow neither the order of its forwards nor the opposite one, or one is in
/// several parts, the rank has several stages or a split backward, and `problem` says so.
AutogradStages stages_of_autograd(const TraceEvents& events);

/// Shortens ranges of the host to the time from their first to their last outermost operator, which
/// leaves out the waits for messages at their begin and end. Returns whether any became shorter.
bool leave_out_waits(TraceEvents& events);

}  // namespace pipetwin
