// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>

#include "core/base/units.h"

/// Messages that go on beside work of the same device.
namespace pipetwin {

/// How a message gets on beside work.
struct MessageLane {
    /// Part of the device's multiprocessors that the message takes from the work while both go on.
    double share = 0;
    /// Work and message are cut into as many parts, each of which waits for one of the other; 0:
    /// neither needs the other.
    int chunks = 0;

    bool operator==(const MessageLane&) const = default;
};

/// Time in which both work and message are done. With work' = work + min(work, message) * share,
///
///     max(work', message) + min(work', message) / chunks
///
/// as the first part of one of them, or the last, has nothing beside it; never longer than one
/// after the other. Throws Error(BadInput) if that is longer than a step may last.
inline Duration beside(Duration work, Duration message, const MessageLane& lane) {
    const Duration slowed = work + scaled(std::min(work, message), lane.share);
    const Duration alone = lane.chunks > 0 ? std::min(slowed, message) / lane.chunks : Duration{};
    return std::min(work + message, std::max(slowed, message) + alone);
}

/// By how much a message makes work longer.
inline Duration added(Duration work, Duration message, const MessageLane& lane) {
    return beside(work, message, lane) - work;
}

/// The messages of a kind of training software that go on beside work. Where nothing else is known
/// those among the devices that share a layer are hidden as in Transformer Engine's user buffers on
/// H100, with 132 multiprocessors (NVIDIA-NeMo/Megatron-Bridge, training/comm_overlap.py).
struct MessageLanes {
    bool hides_tensor = false;                ///< those of devices that share a layer
    bool has_narrow_gathers = false;          ///< gathers in 8 bits, where products are narrow
    MessageLane tensor_gather{1.0 / 132, 4};  ///< beside the product that reads what is gathered
    MessageLane tensor_sum{20.0 / 132, 4};    ///< beside the product whose results are summed
    MessageLane tensor_bulk{4.0 / 132, 0};    ///< beside another product
    bool hides_weights = false;               ///< those of weights that replicas have updated
    MessageLane gradients{};                  ///< of replicas: sums beside backwards
    MessageLane weights{};                    ///< of replicas: gathers beside forwards

    bool operator==(const MessageLanes&) const = default;
};

}  // namespace pipetwin
