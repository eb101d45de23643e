// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/model/layer_graph.h"
#include "core/model/layer_placement.h"

/// Shapes of layers that read each other by name. Not for use outside this folder.
namespace pipetwin {

/// The layers of a list with what follows from their places.
struct PlacedGraph {
    LayerGraph graph;
    std::vector<std::optional<Placed>> placed{};  ///< [layer] none for one that has a fault
};

/// Gives every layer of a list its name and its shapes, in an order in which each stands behind
/// what it reads. `inputs`: what the list reads, under the names that faults call it by; at least
/// one. Faults are in the result; outputs that no layer reads are among them, but not `inputs` that
/// none reads.
PlacedGraph place_graph(LayerPlacement& placement,
                        std::vector<LayerSpec>& layers,
                        const ListHolder& holder,
                        std::span<const JoinedInput> inputs);

/// What layer `layer` of a list reads, in the order in which it is written; all of it is placed.
std::vector<SampleShape> input_shapes(const PlacedGraph& graph,
                                      std::span<const JoinedInput> inputs,
                                      int layer);

}  // namespace pipetwin
