// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "core/interop/traces/trace_events.h"

namespace pipetwin {

/// The ranges that say what a rank computed.
struct ComputeRanges {
    std::vector<std::size_t> ranges;  ///< indices into TraceEvents::ranges: F, B, I and W
    int lane = -1;                    ///< that most of them are of; -1: there are none
    std::vector<std::string> notes;
};

/// Chooses the ranges of F, B, I and W among those of streams (`on_device`), or among those of
/// threads. Of streams: those of the stream with most compute kernels inside such ranges; where
/// none has kernels, with most of such ranges. Actions that this stream lacks are taken from the
/// next best one. Of threads: all.
ComputeRanges compute_ranges(const TraceEvents& events, bool on_device);

/// Takes out of `chosen` the ranges whose length is impossible: they go on when the next range of
/// their lane has begun, and last more than twice as long as their like. Nothing is taken out where
/// that is so of more than a quarter, since it is no damage then. Adds a note on what was taken
/// out, and one for each other stream with an impossible length, which changes nothing.
void leave_out_impossible(const TraceEvents& events, ComputeRanges& chosen);

}  // namespace pipetwin
