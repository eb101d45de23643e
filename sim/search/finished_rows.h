#pragma once

#include "sim/search/further_partitions.h"
#include "sim/search/search_state.h"

namespace pipetwin::sim {

/// Improves the partitions of the fastest candidates of a search, `finished_rows` of them, so that
/// each is as fast as a search of its shape and schedule alone finds it. Candidates that a better
/// partition may bring among them, and those of the same shape and schedule that were left out, are
/// tried, too, as far as their number is a small multiple of that. Marks what is finished.
void finish_rows(SearchState& state, FurtherPartitions& partitions);

}  // namespace pipetwin::sim
