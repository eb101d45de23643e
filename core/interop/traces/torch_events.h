// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <string_view>

#include "core/interop/traces/packed_source.h"
#include "core/interop/traces/trace_events.h"

namespace pipetwin {

/// Reads Chrome trace JSON as PyTorch's profiler writes it, event by event: ranges whose names are
/// actions, kernels, their launches and what else `TraceEvents` has. Times may be numbers or
/// strings of microseconds. A file that ends too early gives its whole events, and says so in
/// `TraceEvents::cut`. Throws Error(BadInput) with file:line:column for syntax, for a name that
/// begins with "PP:" and is no action, where there is no list of events, and for a file that ends
/// before its first event or between launches and their kernels.
TraceEvents parse_torch_events(std::string_view text,
                               std::string_view place,
                               const RangeNames& names);

/// Reads a file, plain or gzip. Throws as `parse_torch_events`, Error(BadInput) beyond the limits,
/// and Error(Io).
TraceEvents read_torch_events(const std::filesystem::path& file,
                              const RangeNames& names,
                              const TraceLimits& limits = {});

}  // namespace pipetwin
