// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "core/interop/traces/trace_events.h"

namespace pipetwin {

/// The ranges of streams that the host's ranges launched: from the begin of the first kernel to the
/// end of the last one on each stream. A kernel belongs to the innermost range in which the host
/// launched it, from whichever thread: a backward is launched by a thread of its own while the
/// range waits. Empty where fewer than half of the kernels have a launch that is known. Of a file
/// that ends too early, ranges that launched kernels which it lacks are left out.
std::vector<TraceRange> launched_ranges(const TraceEvents& events);

/// Adds launched ranges of F, B, I, W and messages to those that the trace has of streams: all of
/// an action that it has on no stream, and in place of its own those of an action and stream that
/// last over half as long again, since profilers leave out what other threads launched. Returns
/// sentences on what was added.
std::vector<std::string> add_launched_ranges(TraceEvents& events);

/// The moment at which the host launched each kernel [kernel], and from which thread; empty where
/// fewer than half of them have a launch that is known. Kernels without one have no thread (-1).
struct KernelLaunches {
    std::vector<Duration> begin;
    std::vector<int> lane;
};

KernelLaunches launches_of(const TraceEvents& events);

}  // namespace pipetwin
