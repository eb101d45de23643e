// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <vector>

#include "core/base/units.h"
#include "core/costs/profile.h"

namespace pipetwin {

/// Contiguous stages that cover every layer; none is empty.
class Partition {
  public:
    /// Throws Error(BadInput) if an entry is below 1 or the sum is not `layer_count`; the text
    /// names both numbers and suggests partition = "auto".
    Partition(std::vector<int> layers_per_stage, int layer_count);

    int stage_count() const { return static_cast<int>(layers_per_stage_.size()); }
    int layer_count() const { return layer_count_; }
    /// Number of layers of a stage. Throws InternalError if there is no such stage.
    int layers_in(int stage) const;
    /// Index of a stage's first layer. Throws InternalError if there is no such stage.
    int first_layer(int stage) const;
    /// The stage that holds a layer. Throws InternalError if there is no such layer.
    int stage_of_layer(int layer) const;
    const std::vector<int>& layers_per_stage() const { return layers_per_stage_; }

    bool operator==(const Partition&) const = default;

  private:
    std::vector<int> layers_per_stage_;
    std::vector<int> first_layers_;
    int layer_count_ = 0;
};

/// Splits a chain of costs into contiguous stages so that the largest stage is as small as
/// possible.
///
/// Exact. Of several best splits the one with the earliest boundaries is returned
/// (lexicographically smallest list of stage sizes), so the result is unique. `stage_count` is
/// between 1 and the number of costs; throws Error(Infeasible) naming both numbers otherwise. Costs
/// are not negative. O(n + stages * log(n) * log(total cost)). Source: linear partition problem;
/// bisection on the largest stage, filling stages greedily.
Partition balanced_partition(std::span<const Duration> layer_costs, int stage_count);

}  // namespace pipetwin
