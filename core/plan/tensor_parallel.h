// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>

#include "core/costs/collectives/all_reduce.h"
#include "core/costs/devices/lanes.h"
#include "core/costs/profile.h"
#include "core/plan/stage_costs.h"

/// Ranks that are made of several devices, which compute every layer together.
namespace pipetwin {

class Model;

/// Devices that compute the layers of one rank together, and the link between them.
struct TensorParallel {
    int devices = 1;           ///< T, of one rank
    LinkCost link{};           ///< between them
    int per_node = 0;          ///< of them on one node; 0: all
    LinkCost between_nodes{};  ///< where they lie on several
    /// Each has its part of the sequence where a layer would be whole on all of them (Korthikanti
    /// et al., arXiv 2205.05198, section 4.2.2).
    bool sequence_parallel = false;
    std::optional<GroupLatency> latency{};  ///< as DeviceGroup
    /// How messages go on beside products, where they divide the sequence; none: after them.
    std::optional<MessageLanes> lanes{};
    bool is_measured = false;  ///< the samples have what these devices' messages take
};

/// Bytes of one device's part when `bytes` are divided among `devices`, rounded up.
Bytes part_of(Bytes bytes, int devices);

/// Whether the samples of one of the devices that share a layer say what it has, or only what one
/// device has that does not share it.
enum class SharesKnown { No, Yes };

/// Costs of every layer on each of T devices that share it. `samples` have the times of a T-th of
/// the layer already, as a rank's speed says (core/scenario/rank_device.h), or, where the shares
/// are known, those of one of the devices; this adds the sums, and divides what can be divided. As
/// in Megatron-LM (Shoeybi et al., arXiv 1909.08053, section 3): weights are cut so that each
/// device has a part of every layer's result, and
///
///     forward         + all-reduces of the layer's output
///     backward_input  + all-reduces of the gradient of its input
///     saved           input + (saved - input) / T      the input is whole on every device
///     split, workspace                           / T
///
/// the fastest way (core/costs/collectives/all_reduce.h), `tensor_sums` of them where the layer
/// says so. Where the shares are known nothing is divided again. With sequence parallelism what a
/// layer has whole is divided, too, as is what passes between layers and stages, and each
/// all-reduce becomes a reduce-scatter and an all-gather, which take as long together. A backward
/// gathers the layer's input once more for the gradient of its weights (section 4.2.2): up to what
/// it gains by the division, so that no time is longer than without. Else what passes between
/// stages is whole. T = 1 changes nothing.
///
/// With lanes each half of an all-reduce goes on beside a product (`beside`), and only what it adds
/// to the layer is added: the gather of the input, and in a backward of the gradient, beside the
/// product that reads it; the reduce-scatter of the output beside that which makes it; that of the
/// input's gradient, and the input's second gather, beside the gradients of the weights and of the
/// input. What is added is part of `backward_input` even so: where a schedule divides the backward,
/// the part that reads it has no less to wait for. Layers of which no product is known have nothing
/// to hide messages beside, or, where that is so of all layers, half of their computation.
///
/// Where the messages were measured, the samples say how long all of a layer's take.
LayerSamples with_tensor_parallel(const Model& model,
                                  const Profile& profile,
                                  LayerSamples samples,
                                  const TensorParallel& tensor,
                                  SharesKnown known = SharesKnown::No);

}  // namespace pipetwin
