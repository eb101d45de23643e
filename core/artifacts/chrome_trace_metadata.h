// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "core/artifacts/chrome_trace.h"
#include "core/text/json_object.h"

namespace pipetwin::chrome_trace {

/// Metadata of a trace of ours, which stand before its events.
struct Metadata {
    Trace trace;  ///< all but steps and memory
    Origin origin{};
    std::vector<Duration> begins;  ///< of each step in the file; at least one
    std::size_t replicas = 1;      ///< whose rows each step has, one after the other

    /// Number of actions in one step, over all replicas.
    std::size_t actions() const;
};

/// Reads the metadata of a trace from its outermost object. Throws Error(BadInput) with the JSON
/// pointer.
Metadata read_metadata(const JsonObject& top, std::string_view place);

/// Refuses metadata that promise more actions in a step than a trace of `size` bytes can hold: else
/// a few numbers of a damaged file could ask for terabytes. Throws Error(BadInput).
void expect_room(const Metadata& metadata, std::uint64_t size, std::string_view place);

/// A timeline of one step with the schedule's rows, all times 0.
Timeline empty_step(const Schedule& schedule, Origin origin, std::size_t replicas);

/// All sends of each edge in row order: messages travel in order, so the k-th span of a link is the
/// k-th send.
std::vector<std::vector<Action>> sends_by_edge(const Schedule& schedule);

}  // namespace pipetwin::chrome_trace
