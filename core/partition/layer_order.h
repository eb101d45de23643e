// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <vector>

#include "core/costs/profile.h"

/// Another order of the layers of a model with branches, for the sake of its stages.
namespace pipetwin {

class Model;

/// Returns the profile with its layers in another order, in which each comes after those it reads.
/// `order[i]` is the layer that becomes layer i.
Profile in_order(const Profile& profile, const Model& model, const std::vector<int>& order);

/// An order of a model's layers whose largest stage is smaller, with both times.
struct BetterOrder {
    Profile profile;            ///< in that order
    Duration largest{};         ///< forward and backward of its largest stage, one micro-batch
    Duration largest_before{};  ///< of the largest stage that the order of before can have
};

/// The order in which the largest of `stages` stages is smallest, where that makes it smaller by a
/// thousandth at least; none for a chain, and for a graph with too many ideals (`graph_partition`).
/// Throws as `cost_at` and `graph_partition`.
std::optional<BetterOrder> better_order(const Profile& profile,
                                        const Model& model,
                                        int stages,
                                        int micro_batch_size);

}  // namespace pipetwin
