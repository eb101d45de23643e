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

/// What one piece of the partition costs as a stage.
StageCost stage_cost(const Model& model,
                     const LayerSamples& samples,
                     const Partition& partition,
                     int piece);

/// One state per piece of the partition; the workspace is the largest over `samples_of_class`.
std::vector<StageState> stage_states(const Profile& profile,
                                     const std::vector<LayerSamples>& samples_of_class,
                                     const Partition& partition,
                                     int optimizer_bytes_per_weight_byte);

}  // namespace pipetwin
