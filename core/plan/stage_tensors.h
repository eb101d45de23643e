#pragma once

#include <vector>

#include "core/base/as_index.h"
#include "core/base/units.h"
#include "core/costs/profile.h"
#include "core/model/model.h"

namespace pipetwin {

/// Which outputs of a model with branches pass into a stage, out of it and through it, and which of
/// them, and of their gradients, are there while one of its layers works. A stage is any run of
/// neighbouring layers; what is said of it does not depend on where the others are cut. The
/// executor (exec/stage/branches.h) holds the same bytes.
///
///     received   kept whole from F until the backward of the stage ends
///     sent       room for all of it is there from the beginning of F
///     inner      an output that a layer of the stage reads: from its layer's forward until that of
///                its last reader, or until the backward of its first reader that keeps it
///     gradient   of an inner output that is not sent: from the backward of its last reader until
///                that of its own layer; in I until W, if W reads it. All others lie in messages.
class StageTensors {
  public:
    /// Layers `first` to `end` - 1. The model and the samples must outlive it. O(their number
    /// squared).
    StageTensors(const Model& model, const LayerSamples& samples, int first, int end);

    /// Bytes that the stage is sent for one micro-batch, each output once; of a stage that begins
    /// the model, its input.
    Bytes input() const { return input_; }
    /// Bytes that the stage sends: outputs of its layers, and those that it was sent, which a later
    /// stage reads, each once.
    Bytes output() const { return output_; }
    /// Outputs inside of the stage that its backward reads.
    Bytes kept_values() const { return kept_values_; }
    /// Gradients of outputs that stay inside of the stage, as far as W reads them.
    Bytes inner_gradients() const { return inner_gradients_; }

    /// What a layer keeps from its forward to its backward, without what it reads.
    Bytes kept_by(int layer) const { return of(layer).kept; }
    /// Inner outputs that are there while the forward of `layer` computes, its own among them;
    /// those that the backward reads stay.
    Bytes values_in_forward(int layer) const { return of(layer).in_forward; }
    /// Inner outputs that are there while the forward of `layer` computes, its own among them,
    /// where nothing stays.
    Bytes values_in_drop(int layer) const { return of(layer).in_drop; }
    /// Inner outputs that are still there while the backward of `layer` computes.
    Bytes values_in_backward(int layer) const { return of(layer).in_backward; }
    /// Gradients outside of messages that are there while the backward of `layer` computes: of its
    /// own output, of what it reads, and what it writes before it is added to what is there.
    Bytes gradients_in_backward(int layer) const { return of(layer).gradients; }
    /// As `gradients_in_backward`, where those that W reads stay.
    Bytes gradients_in_input_half(int layer) const { return of(layer).gradients_that_stay; }

  private:
    struct OfLayer {
        Bytes kept;
        Bytes in_forward;
        Bytes in_drop;
        Bytes in_backward;
        Bytes gradients;
        Bytes gradients_that_stay;
    };
    const OfLayer& of(int layer) const { return layers_.at(as_index(layer - first_)); }

    int first_;
    Bytes input_;
    Bytes output_;
    Bytes kept_values_;
    Bytes inner_gradients_;
    std::vector<OfLayer> layers_;  ///< [layer - first]
};

}  // namespace pipetwin
