#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/model/layer_faults.h"

/// Who reads whom among the layers of a list. Not for use outside this folder.
namespace pipetwin {

/// A layer's name, and the names of the layers that it reads; none: the one before in the list.
struct NamedReads {
    std::string_view name;
    std::span<const std::string> inputs;
};

/// The layers that each layer of a list reads, by their index in it.
struct LayerGraph {
    std::vector<std::vector<int>> inputs{};  ///< [layer], as written; the first may have none
    std::vector<int> order{};                ///< each layer behind all that it reads
    /// [layer] False for a layer whose inputs are not all known, so that nothing follows from them.
    std::vector<bool> is_resolved{};
    /// [layer] True for a layer that another reads, or would if its name were written right.
    std::vector<bool> is_read{};
    std::vector<LayerFault> faults{};  ///< of names, and circles
};

/// Resolves the names. A list in which every layer reads earlier ones keeps its order.
LayerGraph layer_graph(std::span<const NamedReads> layers);

}  // namespace pipetwin
