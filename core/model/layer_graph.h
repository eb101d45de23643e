// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/model/layer_faults.h"

/// Who reads whom among the layers of a list: those of a model, or those inside of a layer. Not for
/// use outside this folder.
namespace pipetwin {

/// A layer's name, and the names of what it reads; none: the layer before it in the list, or the
/// first output that the list itself reads.
struct NamedReads {
    std::string_view name;
    std::span<const std::string> inputs;
};

/// The layer that holds a list of layers, and what its list reads.
struct ListHolder {
    std::string_view path{};  ///< name of the layer that holds the list; empty: it is the model's
    /// Outputs that the list reads, which its layers may name: "input0", "input1", ... 0: the first
    /// layer alone reads the model's input, and none names it.
    int inputs = 0;
};

/// "input2": how a layer inside another names output number `index` of those that the holder reads.
std::string name_of_input(int index);

/// What stands in `LayerGraph::inputs` for output number `index` of those that the list reads.
constexpr int from_outside(int index) {
    return -1 - index;
}
/// True for what `from_outside` gives.
constexpr bool is_from_outside(int source) {
    return source < 0;
}

/// What each layer of a list reads.
struct LayerGraph {
    /// [layer], as written: indices in the list, or `from_outside`.
    std::vector<std::vector<int>> inputs{};
    std::vector<int> order{};  ///< each layer behind all that it reads
    /// [layer] False for a layer whose inputs are not all known, so that nothing follows from them.
    std::vector<bool> is_resolved{};
    /// [layer] True for a layer that another reads, or would if its name were written right.
    std::vector<bool> is_read{};
    /// [index of what the list reads] True where a layer reads it. Empty for a model.
    std::vector<bool> is_input_read{};
    std::vector<LayerFault> faults{};  ///< of names, and circles
};

/// Resolves the names. A list in which every layer reads earlier ones keeps its order.
LayerGraph layer_graph(std::span<const NamedReads> layers, const ListHolder& holder = {});

/// What each layer of the order reads, by places in the order in place of those in the list.
/// Outputs from outside the list are left as they are.
std::vector<std::vector<int>> in_order(const LayerGraph& graph);

}  // namespace pipetwin
