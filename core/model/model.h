// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "core/model/layer_spec.h"

namespace pipetwin {

/// The smallest unit of partition, with everything that follows from its place in the model.
struct Layer {
    LayerSpec spec;
    SampleShape input;   ///< the first of several, in the order of `Model::operands_of`
    SampleShape output;  ///< after the loss: positions 1, width 0
    std::int64_t parameter_count = 0;
    /// [operand] Shapes of all that it reads, in the order of `Model::operands_of`; the model's
    /// input for the first layer. Empty for an opaque layer.
    std::vector<SampleShape> inputs{};
    /// [operand] True if it stays until the layer's backward; empty for an opaque layer.
    std::vector<bool> keeps_input{};
};

/// A directed acyclic graph of layers with a fixed topological order; stages are contiguous in it.
///
/// Layers are numbered in that order: each reads layers of lower numbers only.
class Model {
  public:
    /// A chain of layers that can be executed. Throws Error(BadInput), naming the layer, if shapes
    /// do not chain, a size is out of range, a name occurs twice, or a loss stands anywhere but
    /// last. Inner layers are named by path ("head.loss"), and paths are what must differ.
    static Model chain(SampleShape input, std::vector<LayerSpec> layers);

    /// A graph of layers by the names that they read (`LayerSpec::inputs`); without any it is a
    /// chain. A list in which every layer reads earlier ones keeps its order; any other is put into
    /// one that does. The first of the list alone reads the model's input, and every output but
    /// that of the last layer in order is read. Layers of a sequence with branches are put in order
    /// in the same way, and each names its inputs then. Throws LayerFaults
    /// (core/model/layer_faults.h), which holds all that is wrong, or Error(BadInput) for an input
    /// or a number of layers that no model has.
    static Model graph(SampleShape input, std::vector<LayerSpec> layers);

    /// A layer known by its costs only, and the layers that it reads, by name; an empty list means
    /// "the one before".
    struct Named {
        std::string name;
        std::vector<std::string> inputs{};
    };
    /// A graph of layers that are known by their costs only. A list in which every layer reads
    /// earlier ones keeps its order; any other is put into one that does. Throws Error(BadInput)
    /// for unknown or doubled names and for cycles.
    static Model opaque(const std::vector<Named>& layers);

    /// Number of layers, each a unit that a partition can place.
    int layer_count() const;
    /// The layer at `index`, 0 to layer_count() - 1. Throws InternalError for any other index.
    const Layer& layer(int index) const;
    /// [layer] Their names.
    const std::vector<std::string>& layer_names() const { return names_; }

    /// Indices of the layers whose output `index` reads, ascending; empty for the first.
    const std::vector<int>& inputs_of(int index) const;

    /// Indices of the layers whose output `index` reads, in the order in which they are written:
    /// that of a concat's columns.
    const std::vector<int>& operands_of(int index) const;

    /// Indices of the layers that read the output of `index`, ascending; empty for the last.
    const std::vector<int>& readers_of(int index) const;

    /// True if every layer reads exactly the one before it.
    bool is_chain() const;

    /// Number of weights that the last layer shares with the first; the last layer's
    /// parameter_count includes them.
    std::int64_t tied_count() const;

    /// False if any layer is `Opaque`.
    bool is_executable() const;

    /// The model for a device whose products are slow with its vocabulary: the head has
    /// `padding_of(vocabulary)` more columns of logits, which belong to no token, and as many more
    /// columns of weights or, where these are tied, rows of the token table; parameter counts
    /// include them. Only a last layer that ends with a linear layer over the embedding's
    /// vocabulary and a cross-entropy is such a head; any other model is returned as it is.
    Model with_padded_vocabulary(const std::function<int(int vocabulary)>& padding_of) const;

  private:
    /// `inputs[layer]`: the indices of the layers that it reads, as written.
    Model(std::vector<Layer> layers, std::vector<std::vector<int>> inputs);

    std::vector<Layer> layers_;
    std::vector<std::string> names_;          ///< [layer]
    std::vector<std::vector<int>> operands_;  ///< [layer], as written
    std::vector<std::vector<int>> inputs_;    ///< [layer], ascending
    std::vector<std::vector<int>> readers_;   ///< [layer], ascending
};

/// Multi-layer perceptron: `sizes` = inputs, hidden..., classes. Units: "linear0" (with its GELU),
/// ..., the last with cross-entropy.
Model mlp_model(const std::vector<int>& sizes);

}  // namespace pipetwin
