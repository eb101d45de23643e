// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "core/costs/profile.h"

namespace pipetwin {

/// Largest graph file that is read, in bytes.
constexpr std::size_t largest_pipedream_graph = std::size_t{64} << 20;

/// Content of a `graph.txt` of PipeDream's profiler.
struct PipeDreamGraph {
    Profile profile;                        ///< layers in an order in which each follows its inputs
    std::vector<std::string> model_inputs;  ///< nodes "Input...": no layers, or one for all of them
    std::vector<int> partition;  ///< layers per stage, where the file assigns stages in this order
};

/// Reads node lines ("node4 -- Linear(...) -- forward_compute_time=1.5, backward_compute_time=3,
/// activation_size=[1; 2], parameter_size=0 -- stage_id=1") and edge lines (TAB, "node1 -- node4"),
/// in any order. Times are milliseconds, sizes bytes, all of a mini-batch of `mini_batch_size`
/// samples, which is the only sample of the profile.
///
/// A node becomes a layer of the node's name whose kind is the first word of the description. The
/// file does not say what a layer keeps for its backward: `saved` is its input alone. The backward
/// is one number: all of it goes to the input where there are no parameters, else it is halved.
/// Where several layers read nothing but the model's own input, one layer "input" stands before
/// them. Throws Error(BadInput) with file:line:column for lines, and naming nodes for a cycle.
PipeDreamGraph parse_pipedream_graph(std::string_view text,
                                     std::string_view place,
                                     int mini_batch_size);

}  // namespace pipetwin
