// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

/// What a stage of a model with branches does with outputs: whose lie in one tensor, and which
/// layers read them.
namespace pipetwin {

class Model;

/// A stage of neighbouring layers. What a layer that hands on (core/model/inner_layers.h) makes is
/// the tensor that it reads: what is said of that tensor is said of its *root*, the layer that has
/// computed it, and the layers that hand it on are not among its readers.
///
///     conv --> relu --> identity --+--> conv        the root of identity is relu, whose readers
///     are
///                                  '--> add         conv and add
class StageValues {
  public:
    /// Layers `first` to `end` - 1. The model must outlive it. O(their number).
    StageValues(const Model& model, int first, int end);

    /// The layer that has computed what lies in the tensor of a layer's output.
    int root(int layer) const { return layer < first_ ? layer : roots_[index(layer)]; }
    /// True for a layer of the stage that hands on.
    bool hands_on(int layer) const { return root(layer) != layer; }

    /// A layer of the stage that reads a tensor.
    struct Reader {
        int layer = 0;
        bool keeps = false;  ///< its backward reads the tensor
    };
    /// The readers of a root's tensor in the stage, ascending.
    const std::vector<Reader>& readers(int root);
    /// The last layer, of any stage, that reads a root's tensor or hands it on to a later stage;
    /// none: nothing does.
    std::optional<int> last_reader(int root) const;
    /// A stage behind this one reads a root's tensor.
    bool is_sent(int root) const { return last_reader(root).value_or(-1) >= end_; }

    /// True for a layer of the stage whose backward reads its output in place of its input, as a
    /// later layer of the stage keeps that.
    bool reads_output(int layer) const { return reads_output_[index(layer)]; }
    /// True for a sequence of the stage that has a copy of its output, which it would read where a
    /// later layer of the stage kept that.
    bool copies_output(int layer) const;
    /// True if the backward of the model's first layer reads the model's input.
    bool keeps_model_input() const;

  private:
    std::size_t index(int layer) const { return static_cast<std::size_t>(layer - first_); }
    bool keeps(int layer, std::size_t operand) const;
    void add_readers(int source, std::vector<Reader>& readers) const;

    const Model& model_;
    int first_;
    int end_;
    std::vector<int> roots_;          ///< [layer - first]
    std::vector<bool> reads_output_;  ///< [layer - first]
    std::vector<Reader> readers_;     ///< of the root that was asked for last
};

}  // namespace pipetwin
