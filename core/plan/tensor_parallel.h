#pragma once

#include "core/costs/profile.h"
#include "core/model/model.h"
#include "core/plan/stage_costs.h"

/// Ranks that are made of several devices, which compute every layer together: predicted and
/// planned, not trained.
namespace pipetwin {

/// Devices that compute the layers of one rank together, and the link between them.
struct TensorParallel {
    int devices = 1;  ///< T, of one rank
    LinkCost link{};  ///< between them
};

/// Bytes of one device's part when `bytes` are divided among `devices`, rounded up.
Bytes part_of(Bytes bytes, int devices);

/// Costs of every layer on each of T devices that share it. `samples` have the times of a T-th of
/// the layer already, as a rank's speed says (core/scenario/rank_device.h); this adds the sums, and
/// divides what can be divided. As in Megatron-LM (Shoeybi et al., arXiv 1909.08053, section 3):
/// weights are cut so that each device has a part of every layer's result, and
///
///     forward         + all-reduce of the layer's output
///     backward_input  + all-reduce of the gradient of its input
///     saved           input + (saved - input) / T      the input is whole on every device
///     split, workspace                           / T
///
/// both around a ring (core/costs/all_reduce.h). What passes between stages is whole. T = 1 changes
/// nothing.
LayerSamples with_tensor_parallel(const Model& model,
                                  LayerSamples samples,
                                  const TensorParallel& tensor);

}  // namespace pipetwin
