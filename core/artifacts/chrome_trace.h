// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "core/schedule/schedule.h"
#include "core/timeline/compare.h"
#include "core/timeline/timeline.h"

namespace pipetwin {

/// Content of a trace file of ours: timelines of the same rows, and what a reader needs to know
/// about the plan.
struct Trace {
    std::string plan_hash;
    std::string schedule_name;
    Schedule schedule;  ///< the plan's rows
    std::optional<int> channel_capacity;
    std::optional<std::int64_t> samples;  ///< of the mini-batch
    TimelineSet timelines;  ///< steps, peaks, breakdown, noise; origin is that of the steps
    std::vector<MemoryCurve> memory;  ///< per rank, of the first step; may be empty
};

/// Chrome trace JSON in the dialect of PyTorch's profiler: pid = rank (those of another replica
/// follow those of the one before: replica * ranks + rank), tid = lane (0 compute, 1 send, 2
/// receive, 3 link), X events named "PP:2F0" with ts and dur in microseconds and three decimals
/// (integer nanoseconds survive), flow arrows from SEND to RECV, C counters for memory, metadata
/// "pipetwin". Steps follow each other with `args.step`.
std::string print_chrome_trace(const Trace& trace);

/// Reads what print_chrome_trace writes: parse(print(x)) = x. Throws Error(BadInput) with
/// file:line:column or JSON pointer; a trace without our metadata is refused, saying how to import
/// it, and so is one that contradicts itself (core/artifacts/trace_contradictions.h, or metadata
/// whose hash is that of another plan's rows).
Trace parse_chrome_trace(std::string_view text, std::string_view place);

/// Reads a trace file of up to 1 GiB as `parse_chrome_trace` does. Above 16 MiB only what
/// print_chrome_trace lays out (any spacing, metadata before the events, steps in order) is read,
/// and errors name the byte instead of the pointer. Throws Error(Io), too.
Trace read_chrome_trace(const std::filesystem::path& file);

/// Readable part of a trace that is cut short, damaged or still being written.
struct TraceSoFar {
    Trace trace;  ///< with the complete steps before that byte: maybe none
    std::optional<std::uint64_t> ended_at{};  ///< the byte that is read no more; none: all was read
    std::string problem{};  ///< where it ended and why, in a sentence; empty: all was read
};

/// Reads as much of a trace file as it can. Throws Error(BadInput) where not even the metadata,
/// which stand first, can be read, and where a whole trace contradicts itself, Error(Io) where the
/// file cannot. Memory curves of a damaged trace are left out, since they stand last.
TraceSoFar read_chrome_trace_so_far(const std::filesystem::path& file);

}  // namespace pipetwin
