// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>

#include "core/costs/collectives/all_reduce.h"
#include "core/costs/devices/lanes.h"
#include "core/costs/profile.h"

/// Layers whose gradients are summed, and whose weights are gathered, with every micro-batch, as
/// each replica has only its share of them (ZeRO-2, ZeRO-3).
namespace pipetwin {

/// Who has the shares of routed experts, where these are divided otherwise than all else.
struct GatheredExperts {
    int devices = 1;         ///< that divide the experts of a layer
    DeviceGroup replicas{};  ///< as GatheredWeights
    DeviceGroup between{};

    bool operator==(const GatheredExperts&) const = default;
};

/// Who has the shares, and what of them.
struct GatheredWeights {
    std::optional<GatheredExperts> experts{};  ///< none: as all other weights
    DeviceGroup replicas{};                    ///< that have a copy between them
    DeviceGroup between{};                     ///< one replica of each copy
    AllReduceKind all_reduce = AllReduceKind::Ring;
    bool weights = false;        ///< weights are shared, too, and gathered for forward and backward
    bool fp32_gradients = true;  ///< of weights with two bytes
    bool prefetch = true;        ///< a layer's weights are gathered while another is computed
    std::optional<MessageLanes> lanes{};  ///< how they go on beside it; none: without a trace
    bool is_measured = false;             ///< the samples have what the replicas' messages take
};

/// The samples with the time of these messages. Half of an all-reduce leaves each replica its share
/// of the sums, the other half gives every replica all shares. They go on beside the computation:
///
///     forward         max(forward, gather)
///     backward        max(backward, gather + sums)
///
/// of the layer's weights, and gradients of the same number. Where there are several copies, a
/// share of the sums is summed between them, too. Without prefetch a gather is added instead. With
/// lanes each maximum is what `beside` says, for the messages take multiprocessors; and nothing is
/// computed beside the first gather of a forward and the last sums of a backward, both of the
/// model's first layer, whose backward reads no weights. One replica changes nothing. `devices`
/// share each layer, and gather its parts. Where the messages were measured, the samples say what
/// they add to a forward and to a backward.
LayerSamples with_gathered_weights(const Profile& profile,
                                   LayerSamples samples,
                                   const GatheredWeights& gathered,
                                   int devices);

}  // namespace pipetwin
