// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <string_view>
#include <vector>

#include "core/interop/traces/packed_source.h"
#include "core/interop/traces/trace_events.h"

namespace pipetwin {

/// What to do where spans of a pipeline's ranks are missing, for an error's hint.
inline constexpr std::string_view all_ranks_hint =
    "Megatron exports one rank unless MEGATRON_OTEL_RANK_STRATEGY=all_ranks: record again with "
    "that";

/// Whether a file holds spans of OpenTelemetry as JSON (OTLP), plain or packed by gzip.
bool is_otlp_file(const std::filesystem::path& file);

/// Reads spans of OpenTelemetry (OTLP as JSON: one document, or one a line as a collector's file
/// exporter writes them): Megatron-LM's forwards and backwards of micro-batches, its iterations and
/// messages, and spans whose names are actions. One entry per rank (`dl.rank` of the resource, else
/// each resource is one), in their order. A last line that is not whole is left out
/// (`TraceEvents::cut`). Throws Error(BadInput) with the line for what is no JSON or has no times;
/// where no span is one of a micro-batch, or ranks of the pipeline are missing, with Megatron's
/// setting that records them; where a rank has several stages, which the spans do not name.
std::vector<TraceEvents> read_otlp_events(const std::filesystem::path& file,
                                          const RangeNames& names,
                                          const TraceLimits& limits = {});

/// Reads the text of a file as `read_otlp_events` does.
std::vector<TraceEvents> parse_otlp_events(std::string_view text,
                                           std::string_view place,
                                           const RangeNames& names);

}  // namespace pipetwin
