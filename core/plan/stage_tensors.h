// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <vector>

#include "core/base/as_index.h"
#include "core/base/units.h"
#include "core/costs/profile.h"
#include "core/plan/layer_recompute.h"

namespace pipetwin {

class Model;

/// Which outputs of a model with branches pass into a stage, out of it and through it, and which of
/// them, and of their gradients, are there while one of its layers works. A stage is any run of
/// neighbouring layers; what is said of it does not depend on where the others are cut. The
/// executor (exec/stage/outputs.h) holds the same bytes.
///
///     received   all of it until the backward of the stage ends, where that reads any of it or
///                computes again from it; else until the forward of the last layer that reads any
///     sent       room for all of it is there from the beginning of F
///     inner      an output that a layer of the stage reads: from its layer's forward until that of
///                its last reader, or until the backward of its first reader that keeps it, or of
///                its own layer, which may read it in place of its input (core/plan/stage_values.h)
///     handed on  what a layer hands on and it alone reads is one tensor with what it makes
///     gradient   of an inner output that is not sent: from the backward of its last reader until
///                that of its own layer; in I until W, if W reads it. All others lie in messages.
///
/// Where groups of blocks are computed again (core/plan/layer_recompute.h), a layer of a group is a
/// reader that keeps what it reads from outside of the group. An output that the layers of its
/// group alone read is made again:
///
///     F                        until the forward of its last reader
///     computed again           until the backward of its first reader that keeps it (in I until
///                              W), or until the forward of its last reader
///
/// Any other output of the group that is not there any more is made beside it, until the forward of
/// its last reader in the group.
class StageTensors {
  public:
    /// Layers `first` to `end` - 1. `samples`: with all that layers save as `saved`; their groups
    /// are as with_layer_recompute has left them. The model must outlive it. O(their number
    /// squared).
    StageTensors(const Model& model, const LayerSamples& samples, int first, int end);

    /// Bytes that the stage is sent for one micro-batch, each output once; of a stage that begins
    /// the model, its input.
    Bytes input() const { return input_; }
    /// What F keeps of it for the backward: all or nothing.
    Bytes kept_input() const { return kept_input_; }
    /// Bytes that the stage sends: outputs of its layers, and those that it was sent, which a later
    /// stage reads, each once.
    Bytes output() const { return output_; }
    /// Outputs inside of the stage that F keeps for its backward.
    Bytes kept_values() const { return kept_values_; }
    /// Gradients of outputs that stay inside of the stage, as far as W reads them.
    Bytes inner_gradients() const { return inner_gradients_; }

    /// What a layer keeps from its forward to its backward, without what it reads.
    Bytes kept_by(int layer) const { return of(layer).kept; }
    /// Bytes of what the stage is sent that are there while the forward of `layer` computes.
    Bytes input_in_forward(int layer) const { return of(layer).input_in_forward; }
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
    /// Bytes of `gradients_in_backward` in a backward of which those that W reads stay.
    Bytes gradients_in_input_half(int layer) const { return of(layer).gradients_that_stay; }

    /// The layers that are computed again together with `layer`, itself among them; none: it is not
    /// computed again.
    const std::optional<LayerRange>& group(int layer) const { return of(layer).group; }
    /// The output of `layer`, where it is made again for the backward.
    Bytes rebuilt_value(int layer) const { return of(layer).rebuilt_value; }
    /// Inner outputs that are there while `layer` is computed again in a backward.
    Bytes values_in_recompute(int layer) const {
        return last_of_group(layer).stays + of(layer).made_again;
    }
    /// Part of `values_in_backward` that was made again.
    Bytes rebuilt_values_in_backward(int layer) const {
        return of(layer).in_backward - of(layer).stays;
    }
    /// Part of `values_in_recompute` that was made again.
    Bytes rebuilt_values_in_recompute(int layer) const { return of(layer).made_again; }
    /// Gradients outside of messages that are there while `layer` is computed again.
    Bytes gradients_in_recompute(int layer) const { return last_of_group(layer).gradients_before; }
    /// Inner outputs that are made again for a group and are there while `layer`, which is in it,
    /// is computed again in I; all that F has kept is there besides.
    Bytes values_in_recompute_beside(int layer) const { return of(layer).made_again_beside; }
    /// Bytes of `gradients_in_recompute` in a backward of which those that W reads stay.
    Bytes gradients_in_input_half_recompute(int layer) const {
        return last_of_group(layer).gradients_that_stay_before;
    }

  private:
    struct OfLayer {
        std::optional<LayerRange> group;
        Bytes kept;
        Bytes input_in_forward;
        Bytes in_forward;
        Bytes in_drop;
        Bytes in_backward;
        Bytes gradients;
        Bytes gradients_that_stay;
        // Where groups are computed again:
        Bytes rebuilt_value;
        Bytes stays;  ///< of `in_backward`: from F
        Bytes made_again;
        Bytes made_again_beside;
        Bytes gradients_before;            ///< while no part of its backward has been computed
        Bytes gradients_that_stay_before;  ///< likewise, where those that W reads stay
    };
    class Walk;
    struct Value;

    void find_groups(const LayerSamples& samples, int end);
    void count_forward(const Value& value);
    void count_gradient(const Value& value);
    void count_backward(const Value& value);
    void count_recompute(const Value& value);
    OfLayer& at(int layer) { return layers_.at(as_index(layer - first_)); }
    const OfLayer& of(int layer) const { return layers_.at(as_index(layer - first_)); }
    const OfLayer& last_of_group(int layer) const { return of(group(layer).value().end - 1); }

    int first_;
    Bytes input_;
    Bytes kept_input_;
    Bytes output_;
    Bytes kept_values_;
    Bytes inner_gradients_;
    std::vector<OfLayer> layers_;  ///< [layer - first]
};

/// What a layer of a model with branches keeps from its forward to its backward, without what it
/// reads.
Bytes kept_inside(const Model& model, const LayerSamples& samples, int layer);

}  // namespace pipetwin
