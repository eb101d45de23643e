// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <vector>

#include "core/interop/traces/packed_source.h"
#include "core/interop/traces/trace_events.h"

namespace pipetwin {

/// Whether a regular file is an SQLite database, as `nsys export --type sqlite` writes it.
bool is_nsys_file(const std::filesystem::path& file);

/// Reads the SQLite export of nsys: NVTX ranges whose names are actions, kernels and the calls that
/// launched them. One entry per process that launched kernels or has such ranges, ordered by device
/// and process; none says its rank. Throws Error(BadInput) with the file where it is no database or
/// lacks a table, saying how to export, or is beyond the limits, and Error(Unavailable) where this
/// build has no SQLite.
std::vector<TraceEvents> read_nsys_events(const std::filesystem::path& file,
                                          const RangeNames& names,
                                          const TraceLimits& limits = {});

}  // namespace pipetwin
