// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <vector>

#include "cli/base/console.h"
#include "cli/interop/range_options.h"
#include "core/artifacts/chrome_trace.h"

/// Comparisons with the traces of other programs' profilers.
namespace pipetwin::cli {

/// Whether a file is a trace of PyTorch's profiler, plain or packed, an export of nsys, or spans of
/// OpenTelemetry.
bool is_profiled(const std::filesystem::path& file);

/// A prediction, and what profilers measured of the same plan.
struct ProfiledSides {
    Trace predicted;
    Trace measured;
    std::filesystem::path folder{};  ///< of the prediction; empty: it was simulated from a scenario
};

/// Reads `files`, of which one is the prediction (a scenario, which is simulated, a run folder or a
/// trace of ours) and the others are traces of profilers, one for each rank. Says on the console
/// what both sides leave out. Throws Error(Usage) where there are several predictions or none, and
/// as `read_torch_traces` and `beside_plan`.
ProfiledSides profiled_sides(const std::vector<std::filesystem::path>& files,
                             const RangeNameOptions& ranges,
                             Console& console);

}  // namespace pipetwin::cli
