#pragma once

#include <vector>

#include "core/model.h"
#include "core/partition.h"
#include "core/plan.h"
#include "core/profile.h"

/// From the costs of layers to those of stages: sums of times, and what a stage holds.
namespace pipetwin {

/// Every layer of a model at one micro-batch size.
using LayerSamples = std::vector<LayerSample>;

/// Throws Error(BadInput) as `cost_at`.
LayerSamples samples_at(const Profile& profile, int micro_batch_size);

/// Gradients that a layer hands to the layers it reads; nobody asks a layer of the model's input
/// for one.
Bytes input_gradient(const Model& model, const LayerSamples& samples, int layer);

/// What any neighbouring layers of a model cost as a stage, at one micro-batch size. `samples` must
/// outlive it.
class StageCosts {
  public:
    StageCosts(const Model& model, const LayerSamples& samples);

    /// Layers `first` to `end` - 1. O(their number).
    StageCost of(int first, int end) const;

  private:
    const LayerSamples& samples_;
    std::vector<Bytes> boundary_;        ///< [cut]: what crosses it in front of layer `cut`
    std::vector<Bytes> input_gradient_;  ///< [layer]: what it hands to the layers that it reads
};

/// What is held of a model's weights.
struct WeightRules {
    int optimizer_slots = 0;  ///< numbers per weight that the optimizer keeps
    int devices = 1;          ///< that share the weights of a stage: each has its part

    bool operator==(const WeightRules&) const = default;
};

/// One state per piece of the partition; the workspace is the largest over `samples_of_class`.
/// Weights of half precision ("bf16", "fp16") have gradients that are summed in fp32, and a copy in
/// fp32 beside the optimizer's slots, which are fp32, too: 2 + 4 + 4 + 4 * slots bytes each
/// (Micikevicius et al., arXiv 1710.03740, section 3.1). All others are of the weights' own size.
std::vector<StageState> stage_states(const Profile& profile,
                                     const std::vector<LayerSamples>& samples_of_class,
                                     const Partition& partition,
                                     const WeightRules& rules);

}  // namespace pipetwin
