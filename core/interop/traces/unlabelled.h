// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/interop/traces/trace_events.h"

namespace pipetwin {

/// Forwards and backwards of a rank whose trace names no ranges, as its kernels tell them.
struct KernelStages {
    std::vector<Duration> forward;
    std::vector<Duration> backward;
    /// F and B on their stream, by their beginnings, with the micro-batches of each step where
    /// kernels of the optimizer stand between steps: a stage's backwards follow the order of its
    /// forwards. Steps without as many backwards as forwards, as at the begin of a recording, are
    /// left out.
    std::vector<TraceRange> ranges;
    std::string how;      ///< what told them apart, for a note: "the threads that launched them"
    std::string problem;  ///< why they could not be told apart; empty: they were
    bool has_messages = false;  ///< there are kernels that send or receive
};

/// Cuts the compute kernels of the stream that has most of them at the sends and receives between
/// them, and takes each piece as a forward or a backward of the rank's only stage. They are told
/// apart by the thread that launched them (PyTorch has one for backwards), else by the kernels'
/// names, else by the sequence of names, of which the earliest is the forward's, else by their
/// length. Kernels of the optimizer count as neither.
KernelStages stages_of_kernels(const TraceEvents& events);

}  // namespace pipetwin
