// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "core/interop/traces/trace_events.h"

namespace pipetwin {

/// Forwards and backwards of a rank whose trace names none, as the numbers of autograd tell them.
struct AutogradStages {
    std::vector<TraceRange> ranges;  ///< F and B of the rank's only stage, of the host's threads
    std::string problem;             ///< why the rank has not one stage; empty: no problem
    std::string note;                ///< what a reader should know, in a sentence; empty: nothing
    bool are_numbered = false;  ///< the trace says where steps end, so micro-batches have numbers
};

/// Cuts the outermost operators of the host at its sends and receives, and where forward and
/// backward follow each other. The profiler writes beside an operator of a forward the number of
/// the node of autograd that it makes, and beside a node of a backward its own: so a backward
/// belongs to the forward that made its nodes. Forwards without a backward (of an evaluation, or
/// whose backward was not recorded) and backwards without a forward are left out. Where the
/// backwards of a step follow neither the order of its forwards nor the opposite one, or the
/// opposite one with unequal numbers of nodes, or one is in several parts, the rank has several
/// stages or a split backward, and `problem` says so. What a cut file ends in counts only where
/// something else follows it.
AutogradStages stages_of_autograd(const TraceEvents& events);

/// Shortens ranges of the host to the time from their first to their last outermost operator, which
/// leaves out the waits for messages at their begin and end. Returns whether any became shorter.
bool leave_out_waits(TraceEvents& events);

/// Takes away the ranges of actions of the host that go on behind the last work which a file that
/// ends too early has of them: a profiler writes a range before its operators, and without all of
/// these `leave_out_waits` would make it too short. Returns how many; 0 where the trace is whole,
/// or has no work of the host.
std::size_t leave_out_cut_ranges(TraceEvents& events);

}  // namespace pipetwin
