#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "core/compare.h"
#include "core/schedule.h"
#include "core/timeline.h"

namespace pipetwin {

/// What a trace file of ours holds: timelines of the same rows, and what a reader needs to know
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

/// Chrome trace JSON in the dialect of PyTorch's profiler: pid = rank, tid = lane (0 compute, 1
/// send, 2 receive, 3 link), X events named "PP:2F0" with ts and dur in microseconds and three
/// decimals (integer nanoseconds survive), flow arrows from SEND to RECV, C counters for memory,
/// metadata "pipetwin". Steps follow each other with `args.step`.
std::string print_chrome_trace(const Trace& trace);

/// Reads what print_chrome_trace writes: parse(print(x)) = x. Throws Error(BadInput) with
/// file:line:column or JSON pointer; a trace without our metadata is refused, saying how to import
/// it.
Trace parse_chrome_trace(std::string_view text, std::string_view place);

Trace read_chrome_trace(const std::filesystem::path& file);

}  // namespace pipetwin
