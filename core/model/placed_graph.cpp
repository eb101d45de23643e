// SPDX-License-Identifier: Apache-2.0
#include "core/model/placed_graph.h"

#include <algorithm>
#include <cstddef>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "core/base/as_index.h"
#include "core/base/error.h"

namespace pipetwin {

namespace {

/// The layer that ends a list: a loss that no layer reads, else the last that none reads.
std::size_t last_of(const std::vector<LayerSpec>& layers, const std::vector<bool>& is_read) {
    std::size_t last = layers.size() - 1;
    bool is_loss = false;
    bool is_found = false;
    for (std::size_t layer = 0; layer < layers.size(); ++layer) {
        const bool loss = ends_with_loss(layers[layer]);
        if (!is_read[layer] && (loss || !is_loss)) {
            last = layer;
            is_loss = loss;
            is_found = true;
        }
    }
    return is_found ? last : layers.size() - 1;
}

void find_unread(const std::vector<LayerSpec>& layers, std::string_view path, LayerGraph& graph) {
    const std::size_t last = last_of(layers, graph.is_read);
    for (std::size_t layer = 0; layer < layers.size(); ++layer) {
        if (graph.is_read[layer] || layer == last) {
            continue;
        }
        graph.faults.push_back(
            {static_cast<int>(layer),
             Error(ErrorKind::BadInput,
                   place_of_layer(path, layers[layer].name),
                   ends_with_loss(layers[layer])
                       ? fmt::format("a loss besides '{}', expected one in a model",
                                     layers[last].name)
                       : "no layer reads its output, expected one that does",
                   "name it in the inputs of a later layer, or take it out")});
    }
}

/// Gives the layers of a list their shapes, one after the other.
class ShapeWalk {
  public:
    ShapeWalk(LayerPlacement& placement,
              std::vector<LayerSpec>& layers,
              std::string_view path,
              std::span<const JoinedInput> inputs,
              PlacedGraph& result)
        : placement_(placement), layers_(layers), path_(path), inputs_(inputs), result_(result) {}

    void place_all() {
        result_.placed.resize(layers_.size());
        for (const int layer : result_.graph.order) {
            place(as_index(layer));
        }
    }

  private:
    /// What a layer reads; none where that follows from a layer with a fault.
    std::optional<std::vector<JoinedInput>> inputs_of(std::size_t layer) const {
        if (!result_.graph.is_resolved[layer]) {
            return std::nullopt;
        }
        std::vector<JoinedInput> read;
        for (const int source : result_.graph.inputs[layer]) {
            if (is_from_outside(source)) {
                read.push_back(inputs_[as_index(from_outside(source))]);
                continue;
            }
            const std::optional<Placed>& placed = result_.placed[as_index(source)];
            if (!placed) {
                return std::nullopt;
            }
            read.push_back({layers_[as_index(source)].name, placed->output});
        }
        return read;
    }

    void place(std::size_t layer) {
        const std::optional<std::vector<JoinedInput>> read = inputs_of(layer);
        if (!read) {
            return;
        }
        const int index = static_cast<int>(layer);
        try {
            result_.placed[layer] = placement_.place_unit(layers_[layer], path_, *read);
        } catch (const LayerFaults& error) {
            add_faults_inside(error.faults(), index, result_.graph.faults);
        } catch (const Error& error) {
            result_.graph.faults.push_back({index, error});
        }
    }

    LayerPlacement& placement_;
    std::vector<LayerSpec>& layers_;
    std::string path_;
    std::span<const JoinedInput> inputs_;
    PlacedGraph& result_;
};

}  // namespace

PlacedGraph place_graph(LayerPlacement& placement,
                        std::vector<LayerSpec>& layers,
                        const ListHolder& holder,
                        std::span<const JoinedInput> inputs) {
    std::vector<NamedReads> names;
    names.reserve(layers.size());
    for (std::size_t i = 0; i < layers.size(); ++i) {
        LayerSpec& layer = layers[i];
        layer.name = layer.name.empty() ? name_without_own(layer, static_cast<int>(i)) : layer.name;
        names.push_back({layer.name, layer.inputs});
    }
    PlacedGraph result{.graph = layer_graph(names, holder)};
    find_unread(layers, holder.path, result.graph);
    ShapeWalk(placement, layers, holder.path, inputs, result).place_all();
    return result;
}

std::vector<SampleShape> input_shapes(const PlacedGraph& graph,
                                      std::span<const JoinedInput> inputs,
                                      int layer) {
    std::vector<SampleShape> shapes;
    for (const int source : graph.graph.inputs[as_index(layer)]) {
        shapes.push_back(is_from_outside(source) ? inputs[as_index(from_outside(source))].shape
                                                 : graph.placed[as_index(source)]->output);
    }
    return shapes;
}

}  // namespace pipetwin
