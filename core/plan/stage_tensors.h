#pragma once

#include <vector>

#include "core/base/as_index.h"
#include "core/base/units.h"
#include "core/costs/profile.h"
#include "core/model/model.h"

namespace pipetwin {

/// Which outputs of a model pass into a stage, out of it and through it, and which of them, and of
/// their gradients, are there while one of its layers works. A stage is any run of neighbouring
/// layers; what is said of it does not depend on where the others are cut.
///
///     chain     layer 1 reads 0, 2 reads 1        one output at a time
///     branches  layer 2 reads 1 and 0             0 is kept until 2 has read it; its gradient is
///                                                 begun by 2 and completed by 1
class StageTensors {
  public:
    /// Layers `first` to `end` - 1. The model and the samples must outlive it. O(their inputs).
    StageTensors(const Model& model, const LayerSamples& samples, int first, int end);

    /// Bytes that the stage is sent for one micro-batch, each output once; of a stage that begins
    /// the model, its input.
    Bytes input() const { return input_; }
    /// Bytes that the stage sends: outputs of its layers, and those that it was sent, which a later
    /// stage reads, each once.
    Bytes output() const { return output_; }
    /// Gradients of outputs that stay inside of the stage.
    Bytes inner_gradients() const { return inner_gradients_; }

    /// Outputs of earlier layers of the stage that are wanted later, while `layer` computes:
    /// without those that it reads itself.
    Bytes kept_beside(int layer) const { return kept_beside_.at(place(layer)); }
    /// Gradients that are there before the backward of `layer`, that of its own output among them.
    Bytes gradients_before(int layer) const { return gradients_before_.at(place(layer)); }
    /// Gradients that the backward of `layer` begins: of what it reads, where no later layer has.
    Bytes gradients_begun(int layer) const { return gradients_begun_.at(place(layer)); }

  private:
    std::size_t place(int layer) const { return as_index(layer - first_); }

    int first_;
    Bytes input_;
    Bytes output_;
    Bytes inner_gradients_;
    std::vector<Bytes> kept_beside_;  ///< [layer - first]
    std::vector<Bytes> gradients_before_;
    std::vector<Bytes> gradients_begun_;
};

}  // namespace pipetwin
