// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "core/schedule/schedule.h"
#include "exec/device/allocation_trace.h"

namespace pipetwin {

class Plan;

}  // namespace pipetwin

namespace pipetwin::exec {

/// The places of one rank's tensors in its arena, for one step.
struct RowLayout {
    std::vector<std::size_t> requests;  ///< [request]: offset; of what is sent: see `arrivals`
    std::vector<std::size_t> arrivals;  ///< [arrival]: offset
    std::size_t extent = 0;
    std::size_t least = 0;  ///< no layout of these needs is smaller
};

/// Finds a layout for each rank. A message lies in its receiver's arena from the moment at which
/// its sender begins to write it. When that may be is known from the order of the rows alone: by
/// then the receiver has done everything that the sender has waited for, and what it gave back
/// before that may be written over. `copied[edge]`: the sender writes when it sends, having a
/// tensor of its own; else when it makes the tensor.
std::vector<RowLayout> lay_out_step(const Plan& plan,
                                    std::span<const RowNeeds> needs,
                                    const std::vector<bool>& copied);

/// [rank][cell][other]: number of cells of another rank that are done for sure when the rank turns
/// to its cell (a vector clock). Channels have `capacity` (negative: unbounded).
std::vector<std::vector<std::vector<int>>> vector_clocks(const Schedule& schedule, int capacity);

}  // namespace pipetwin::exec
