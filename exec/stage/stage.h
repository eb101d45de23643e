#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/model/model.h"
#include "core/scenario/scenario.h"
#include "exec/data/batch.h"
#include "exec/device/arena.h"
#include "exec/device/copy_engine.h"
#include "exec/device/device.h"
#include "exec/device/tensor.h"
#include "exec/layers/layers.h"
#include "exec/layers/optimizer.h"

namespace pipetwin::exec {

class ExecutableLayer;

/// A contiguous part of the model with its weights, gradients and stashes; everything lives in
/// `arena`. Used by one thread at a time. Its bytes follow `memory_change` of
/// core/timeline/footprint.h exactly.
class Stage {
  public:
    struct Place {
        int stage = 0;
        int first_layer = 0;
        int layer_count = 0;
    };
    /// Weights are drawn layer by layer from (seed, layer index in the model), so they do not
    /// depend on the partition. `micro_batches` is how many stashes may be alive;
    /// `largest_micro_batch` in samples sizes the workspace.
    Stage(
        Device& device, Arena& arena, const Model& model, Place place, const StageOptions& options);
    /// Of layers made by the caller, without a model.
    Stage(Device& device,
          Arena& arena,
          std::vector<std::unique_ptr<ExecutableLayer>> layers,
          const StageOptions& options);
    ~Stage();

    /// F. `input` is the boundary from the stage before, empty for the first stage, which reads the
    /// batch. Returns the boundary for the next stage, empty for the last, which keeps the loss.
    /// With `keep` false only the input stays. Throws Error(BadInput), naming stage and layer, if
    /// the input's shape or type is not the expected one.
    Tensor forward(int micro_batch, Tensor input, const MicroBatch& data, bool keep);

    /// F of an evaluation: nothing is dropped, and nothing stays.
    Tensor evaluate(int micro_batch, Tensor input, const MicroBatch& data);

    /// R: forward again from the kept input; the layers are told that it is a recomputation.
    void recompute(int micro_batch, const MicroBatch& data);

    /// B. `gradient` of the output, empty for the last stage. Returns the gradient of the input,
    /// empty for the first stage (unless StageOptions::input_gradient). Adds to the weight
    /// gradients and frees the stash.
    Tensor backward(int micro_batch, Tensor gradient);

    /// I and W: the same in two actions; W frees the stash. What W needs beside it - the gradients
    /// between the layers that have weights - I adds to it: `split_bytes` of them.
    Tensor backward_input(int micro_batch, Tensor gradient);
    void backward_weight(int micro_batch);

    /// Clears gradients and losses: a new mini-batch begins.
    void zero_gradients();
    /// Clears the losses alone.
    void zero_losses();
    /// Those that another stage has, too, or that the stage uses in two places.
    const std::vector<Parameter*>& shared_parameters() const;
    /// REDUCE_GRAD: the gradients of a complete backward, of the parameters that the other stage
    /// has, too.
    void hand_gradients_to(Stage& other);
    /// The same as copies, where the other's device has another memory.
    std::vector<CopyEngine::Piece> gradients_for(Stage& other);
    /// After the other has handed over its gradients: both stages then have the same sums, bit for
    /// bit. Also of a parameter that the stage uses in two places.
    void add_received_gradients();
    /// NORM: the sums of squares without an update.
    void sum_squares();
    /// OPT: one update of every parameter, with `gradient_scale` times its gradient; `step` counts
    /// from 1.
    void update(const OptimizerSettings& settings, int step, double gradient_scale = 1);
    /// Sums of the squares of each parameter's gradient as of the last NORM or OPT, in double, in
    /// the order of `parameters`; once the device has completed it.
    std::span<const double> gradient_squares() const;
    /// Where other replicas update a part of the weights: the same of this one's part, to be
    /// replaced by the sums over all.
    std::span<double> squares_of_share();
    /// The same without those of copies: each parameter of the model once. Valid until the next
    /// call.
    std::span<const double> counted_squares();

    /// What comes from the stage before and goes to the next one, for so many samples; gradients
    /// likewise.
    struct Boundary {
        DType type{};
        std::int64_t rows = 0;
        std::int64_t columns = 0;
    };
    Boundary input_boundary(int samples) const;
    Boundary output_boundary(int samples) const;

    /// While it rehearses, its layers ask for memory and compute nothing.
    void rehearse(bool on);

    /// From now on `watch` sees the outputs of forwards; none: nobody does.
    void watch_outputs(LayerWatch watch);

    /// All tensors that are kept of a micro-batch between two actions; they stay where they are.
    std::vector<Tensor*> stash_tensors(int micro_batch);

    /// Frees whatever stashes are left (after a failed step) and clears the gradients.
    void reset();

    /// Sum over the micro-batches since `zero_gradients` of their mean losses, each weighted by its
    /// samples / samples of the mini-batch; last stage only, else 0. Added in micro-batch order, in
    /// double; once the device has completed the forwards.
    double loss() const;

    /// In model order; names do not depend on the partition.
    const std::vector<Parameter*>& parameters();
    const Place& place() const;
    /// Micro-batches of which something is kept: from F to B, or to W.
    int stash_count() const;
    Bytes split_bytes(int samples) const;

  private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

}  // namespace pipetwin::exec
