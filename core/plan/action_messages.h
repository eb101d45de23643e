// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <vector>

#include "core/base/units.h"
#include "core/costs/devices/lanes.h"

/// Messages that are part of an action: the rank waits for them, and its row knows nothing of them.
namespace pipetwin {

/// A layer whose messages with other replicas go on while it computes (ZeRO-2, ZeRO-3). Both
/// together take what `beside` says.
struct LayerOverlap {
    Duration computation{};  ///< in nanoseconds, with the sums of tensor parallelism in it
    Duration sums{};         ///< of tensor parallelism: part of `computation`
    Duration messages{};     ///< gathers of weights, sums of gradients: computed from the links
    MessageLane lane{};      ///< of these messages

    bool operator==(const LayerOverlap&) const = default;
};

/// Parts of the duration of one kind of action of one stage, for one micro-batch, in which nothing
/// is computed. Zero where there are none. They follow from the links of the cluster and the sizes
/// of the profile: core/plan/gathered_weights.h and core/plan/tensor_parallel.h.
struct ActionMessages {
    /// In nanoseconds: the rank waits for weights and gradients of other replicas, as their
    /// messages take longer than the computation beside them, or have none beside them.
    Duration shards{};
    /// In nanoseconds: sums among the devices of the rank (tensor parallelism).
    Duration tensor{};
    /// The layers that compute beside messages of `shards`, hidden or not.
    std::vector<LayerOverlap> overlaps{};

    bool operator==(const ActionMessages&) const = default;
};

/// The time of some computation after a change.
using OtherTime = std::function<Duration(Duration)>;

/// Returns what `messages.shards` would be if each computation took another time: messages that a
/// shorter one no longer hides are waited for.
Duration shards_with(const ActionMessages& messages, const OtherTime& other);

/// Returns the duration of an action that lasts `time` now, with `parts` in it, if each computation
/// took another time. Messages take as long as they do.
Duration with_computation(Duration time,
                          const std::vector<const ActionMessages*>& parts,
                          const OtherTime& other);

/// The messages of an action whose computation takes another time.
ActionMessages with_computation(ActionMessages messages, const OtherTime& other);

}  // namespace pipetwin
