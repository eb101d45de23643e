// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "exec/data/batch.h"
#include "exec/device/arena.h"
#include "exec/device/copy_engine.h"
#include "exec/device/device.h"
#include "exec/device/tensor.h"
#include "exec/layers/layers.h"
#include "exec/layers/optimizer.h"

namespace pipetwin {

class Model;

}  // namespace pipetwin

namespace pipetwin::exec {

class ExecutableLayer;
class StageMoments;

/// A contiguous part of the model with its weights, gradients and stashes; everything lives in
/// `arena`. Used by one thread at a time. Its bytes follow `memory_change` of
/// core/timeline/footprint.h exactly.
class Stage {
  public:
    /// Number of the stage, and its layers in the model.
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
    /// A stage of layers made by the caller, which do what those of the model would.
    Stage(Device& device,
          Arena& arena,
          const Model& model,
          Place place,
          std::vector<std::unique_ptr<ExecutableLayer>> layers,
          const StageOptions& options);
    ~Stage();

    /// F. `received`: all messages that the stage is sent, in the order of
    /// `StageOptions::messages`; they are taken. The first stage reads the batch. Puts the messages
    /// that it sends into `sent`; the last stage keeps the loss. With `keep` false only what it has
    /// received stays. Throws Error(BadInput), naming stage and layer, if a message's shape or type
    /// is not the expected one.
    void forward(int micro_batch,
                 std::span<Tensor> received,
                 const MicroBatch& data,
                 bool keep,
                 std::span<Tensor> sent);

    /// F of an evaluation: nothing is dropped, and nothing stays.
    void evaluate(int micro_batch,
                  std::span<Tensor> received,
                  const MicroBatch& data,
                  std::span<Tensor> sent);

    /// R: forward again from the kept input; the layers know that it is a recomputation.
    void recompute(int micro_batch, const MicroBatch& data);

    /// B. `received`: the gradients of all messages that the stage has sent; they are taken. Puts
    /// those of the messages that it was sent into `gradients`; the first stage has one of its
    /// input there with StageOptions::input_gradient. Adds to the weight gradients and frees the
    /// stash.
    void backward(int micro_batch, std::span<Tensor> received, std::span<Tensor> gradients);

    /// I: the input half of the backward; `received` and `gradients` as in `backward`. Layer by
    /// layer it adds to the stash the gradients that W reads; a stage of a chain frees what W does
    /// not read.
    void backward_input(int micro_batch, std::span<Tensor> received, std::span<Tensor> gradients);
    /// W: the weight half of the backward, after I. Adds to the weight gradients and frees the
    /// stash.
    void backward_weight(int micro_batch);

    /// A new mini-batch begins: clears losses and what forwards have left for the layers' state.
    /// The first backward of each parameter writes its gradient, the others add to it.
    void begin_batch();
    /// Zeroes the gradients that no backward of this mini-batch has written. To be called before
    /// gradients are read.
    void zero_missing_gradients();
    /// Clears the losses alone.
    void zero_losses();
    /// Parameters that another stage has, too, or that the stage uses in two places.
    const std::vector<Parameter*>& shared_parameters() const;
    /// REDUCE_GRAD: hands the gradients of a complete backward to the other stage, of the
    /// parameters that it has, too.
    void hand_gradients_to(Stage& other);
    /// The copies that hand the shared gradients to the other stage, where its device has another
    /// memory.
    std::vector<CopyEngine::Piece> gradients_for(Stage& other);
    /// Says that the gradients of the other stage have arrived from another process.
    void note_received_gradients();
    /// Adds the gradients that the other stage has handed over: both stages then have the same
    /// sums, bit for bit. Also adds the two gradients of a parameter that the stage uses in two
    /// places.
    void add_received_gradients();
    /// The moments that norms have seen in this mini-batch, to be exchanged.
    const StageMoments& moments() const;
    /// Whether the other stage holds the same layers, of another pipeline.
    bool is_twin_of(const Stage& other) const;
    /// REDUCE_GRAD: hands the moments to a twin of this process, once the device has completed the
    /// forwards.
    void hand_moments_to(Stage& twin) const;
    /// The moments as the row that a twin of another process is sent, once the device has completed
    /// the forwards. Valid until `add_twin_moments`.
    std::span<double> moments_for_twin();
    /// The row in which a twin's moments arrive.
    std::span<double> moments_from_twin();
    /// Joins the moments that have arrived, in the order of the two stages: both then have the same
    /// moments, bit for bit.
    void add_twin_moments(int twin);
    /// The step has succeeded everywhere: running statistics follow this mini-batch.
    void commit_batch();

    /// NORM: the sums of squares without an update.
    void sum_squares();
    /// OPT: one update of every parameter, with `gradient_scale` times its gradient; `step` counts
    /// from 1.
    void update(const OptimizerSettings& settings, int step, double gradient_scale = 1);
    /// Sums of the squares of each parameter's gradient as of the last NORM or OPT, in double, in
    /// the order of `parameters`; once the device has completed it.
    std::span<const double> gradient_squares() const;
    /// Sums of the squares of the gradient of this replica's part of each parameter, where other
    /// replicas update the rest; to be replaced by the sums over all replicas.
    std::span<double> squares_of_share();
    /// Makes the weights whole again, of which each replica has updated its share, where replicas
    /// divide gradients and not weights. Collective: all replicas of the stage call it.
    void spread_weights();
    /// Adds up the gradients of parameters of which each device has a term; once in a mini-batch.
    /// Collective: all devices of the stage call it.
    void add_up_terms();
    /// Adds up the squares of the parameters that devices divide, in the order of the devices;
    /// those of others are the same on all. Collective: all devices of the stage call it.
    void share_squares();
    /// Sums of the squares of the gradients without those of copies: each parameter of the model
    /// once. Valid until the next call.
    std::span<const double> counted_squares();

    /// Type and shape of a tensor between two stages, or of its gradient.
    struct Boundary {
        DType type{};
        std::int64_t rows = 0;
        std::int64_t columns = 0;
    };
    /// Message number `message` of those that the stage is sent, for `samples` samples.
    Boundary received_message(std::size_t message, int samples) const;
    /// Message number `message` of those that the stage sends.
    Boundary sent_message(std::size_t message, int samples) const;

    /// While it rehearses, its layers ask for memory and compute nothing.
    void rehearse(bool on);

    /// Calls `watch` with the outputs of all forwards from now on; empty: no longer.
    void watch_outputs(LayerWatch watch);

    /// All tensors that are kept of a micro-batch between two actions. They stay where they are.
    std::vector<Tensor*> stash_tensors(int micro_batch);

    /// Frees all stashes that are left after a failed step, and forgets the mini-batch.
    void reset();

    /// Sum over the micro-batches since `begin_batch` of their mean losses, each weighted by its
    /// samples / samples of the mini-batch; last stage only, else 0. Added in micro-batch order, in
    /// double; once the device has completed the forwards.
    double loss() const;

    /// Number of rows, of all micro-batches since `begin_batch`, whose class is right; 0 where
    /// StageOptions::counts_right is not set, and where the stage has no loss.
    double right_rows() const;

    /// From now on layers compute with the averages of the weights, or with the weights again; no
    /// step may come between. Does nothing where there are no averages.
    void use_averages(bool on);

    /// All parameters in model order; names do not depend on the partition.
    const std::vector<Parameter*>& parameters();
    /// What training changes without a gradient, in model order: running statistics. Each has a
    /// value alone.
    const std::vector<Parameter*>& state() const;
    /// The number of the stage, and its layers in the model.
    const Place& place() const;
    /// Number of micro-batches of which something is kept: from F to B, or to W.
    int stash_count() const;

  private:
    struct Stash;
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

}  // namespace pipetwin::exec
