// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/costs/profile.h"
#include "core/partition/partition.h"
#include "core/plan/stage_cost.h"

/// From the costs of layers to those of stages: sums of times, and what a stage holds.
namespace pipetwin {

class Model;

/// Bytes of the gradients that a layer hands to the layers it reads; 0 for a layer that reads the
/// model's input.
Bytes input_gradient(const Model& model, const LayerSamples& samples, int layer);

/// Costs of any run of neighbouring layers as a stage, at one micro-batch size. Model and samples
/// must outlive it.
class StageCosts {
  public:
    StageCosts(const Model& model, const LayerSamples& samples);

    /// The costs of a stage of layers `first` to `end` - 1. What it is sent and sends are all that
    /// `routes_of` (core/plan/routes.h) says, with every stage. O(their number); of a model with
    /// branches, O(their number squared).
    StageCost of(int first, int end) const;

  private:
    const Model& model_;
    const LayerSamples& samples_;
    bool is_chain_;
    LayerSamples all_saved_;             ///< of a model with branches
    std::vector<Bytes> input_gradient_;  ///< [layer]: what it hands to the layers that it reads
};

/// Lengthens the computation of both halves of a backward by a factor, as where only whole
/// backwards were measured (Profile::halves_over_whole). The whole backward stays as it is.
void lengthen_halves(StageCost& cost, double factor);

/// True if a profile's weights have two bytes each, and its gradients twice that: also where its
/// precision is that of narrow products.
bool is_half_precision(std::string_view precision);

/// Bytes of a weight.
std::int64_t bytes_per_number(std::string_view precision);

/// Bytes of a gradient for each byte of its weight: 2 where weights of two bytes have gradients in
/// fp32, else 1.
int gradient_bytes_per_byte(std::string_view precision, bool fp32_gradients);

/// Replicas that have parts of a stage's state between them; 1: each has all of it.
struct StateShards {
    int weights = 1;
    int gradients = 1;
    int optimizer = 1;
    /// Stages of a rank whose gradients stand whole until their sums of a run of micro-batches are
    /// there: that of the run, and of the one before it. 0: no more than one layer's do.
    int whole_gradients = 0;

    bool operator==(const StateShards&) const = default;
};

/// Devices that divide the routed experts of a layer, and those that have the same of them.
struct ExpertRules {
    int devices = 1;  ///< ETP x EP
    StateShards shards{};

    bool operator==(const ExpertRules&) const = default;
};

/// What an optimizer keeps of a weight beside its gradient.
struct OptimizerState {
    int numbers = 0;  ///< beside a copy of the weight in fp32
    /// Bytes of all of it for a weight of two bytes, the copy of the weight included; none: four a
    /// number.
    std::optional<int> bytes{};

    bool operator==(const OptimizerState&) const = default;
};

/// Rules for the memory that a stage's weights take: optimizer, sharding, tied weights.
struct WeightRules {
    OptimizerState optimizer{};
    int devices = 1;             ///< that share the weights of a stage: each has its part
    bool fp32_gradients = true;  ///< of weights with two bytes
    /// True if gradients of two bytes stay beside their sums in fp32.
    bool gradients_beside_sums = false;
    /// Replicas that share the state of a stage and its update (Rajbhandari et al., arXiv
    /// 1910.02054, section 5).
    StateShards shards{};
    /// Where routed experts are divided otherwise than all other weights; none: they are not.
    std::optional<ExpertRules> experts{};
    /// Layers before the one that is computed whose weights are gathered, where they are shared.
    int prefetch = 1;
    /// Weights that the last layer has in common with the first. On one stage they are there once;
    /// else either stage has a copy.
    Bytes tied{};
    /// True if either end has room for two gradients of them, as our executor has it; else the
    /// gradients are summed where they lie.
    bool tied_room = true;
    /// Time of their update, which is part of the last layer's; on one stage it is left out.
    Duration tied_update{};

    bool operator==(const WeightRules&) const = default;
};

/// Bytes of the weights that the model's first and last layer share: what `profile` says. Where it
/// says nothing of a model that can be executed, they follow from the model.
Bytes tied_bytes(const Model& model, const Profile& profile);

/// Time that the update of `tied_bytes` adds to the last layer's; zero for a model that can be
/// executed, as what was measured says nothing of it.
Duration tied_update(const Model& model, const Profile& profile);

/// What a profile says of one layer's weights, whatever the size of a micro-batch.
struct LayerParameters {
    Bytes parameters{};
    Bytes experts{};         ///< part of `parameters`: of routed experts
    Bytes whole{};           ///< part of `parameters`: all devices that share the layer have it
    Bytes running{};         ///< statistics of a norm
    Bytes frozen{};          ///< weights that are not trained, beside `parameters`
    Bytes frozen_experts{};  ///< part of `frozen`: of routed experts
    Duration optimizer{};    ///< of their update
    Duration weight_cast{};  ///< once a step, whoever updates them
    Bytes copies{};          ///< narrow ones, of all devices that share the layer
};

/// The weights of every layer, without the costs of micro-batches: cheap to copy.
struct ModelParameters {
    std::string precision;
    std::vector<LayerParameters> layers;
};

/// The weights of a profile.
ModelParameters parameters_of(const Profile& profile);

/// The weights of a profile, with those that the first and the last layer share in the first alone.
ModelParameters tied_counted_once(const Model& model, const Profile& profile);

/// Time of the norm of gradients whose update takes `update`: the share that its bytes have. The
/// norm reads one number per weight, and the update reads or writes 3, and 2 more for each of the
/// optimizer's slots.
Duration norm_time(Duration update, int optimizer_slots);

/// The least that a replica has of a stage's weights, gradients and optimizer state, which are
/// those of one that shares nothing.
Bytes least_share(const StageState& whole, const StateShards& shards);

/// Weights of a stage, layer by layer, of which replicas divide each by itself; and a table that
/// two layers have in common is one by itself. So the first replica has no less of each than any
/// other.
class DividedWeights {
  public:
    DividedWeights(std::string_view precision, const WeightRules& rules);

    /// Adds a layer of so many bytes of weights, `tied` of which another layer has, too.
    void add(Bytes weights, Bytes tied = {});
    /// Says that `tied` bytes of a layer are those of another one of the stage.
    void forget(Bytes tied) { share_ -= share_of(tied); }

    /// Bytes of the weights of the largest layer.
    Bytes largest() const { return largest_; }
    /// Bytes of the weights of which the first replica has the gradients, or, where replicas divide
    /// the optimizer's state alone, that.
    Bytes share() const { return share_; }
    /// Bytes of the first replica's part of `weights`.
    Bytes share_of(Bytes weights) const;

  private:
    std::int64_t number_;
    std::int64_t replicas_;
    Bytes largest_{};
    Bytes share_{};
};

/// Leaves the first replica, which has no less than any other, its part of a stage's optimizer
/// state, and of its gradients and weights where these are divided; and sets the room for the
/// layers that are gathered and for the gradient of one, before it is summed.
void share_out(StageState& state,
               const DividedWeights& layers,
               std::string_view precision,
               const WeightRules& rules);

/// One state per stage of the partition; the workspace is the largest over `samples_of_class`.
/// Weights of half precision ("bf16", "fp16") have gradients that are summed in fp32, and a copy in
/// fp32 beside the optimizer's slots, which are fp32, too: 2 + 4 + 4 + 4 * slots bytes each
/// (Micikevicius et al., arXiv 1710.03740, section 3.1), unless `rules` say other bytes; an update
/// then takes less time as it moves less. All others are of the weights' own size.
std::vector<StageState> stage_states(const ModelParameters& weights,
                                     const std::vector<LayerSamples>& samples_of_class,
                                     const Partition& partition,
                                     const WeightRules& rules);
std::vector<StageState> stage_states(const Profile& profile,
                                     const std::vector<LayerSamples>& samples_of_class,
                                     const Partition& partition,
                                     const WeightRules& rules);

/// Weights, gradients and optimizer state of one stage.
Bytes kept_state(const StageState& state);

/// Weights, gradients and optimizer state of the whole model, each there once (where `rules` shards
/// them, the largest share): what all devices together hold at least.
Bytes kept_state(const Model& model, const Profile& profile, const WeightRules& rules);

}  // namespace pipetwin
