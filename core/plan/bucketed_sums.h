// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "core/base/units.h"

/// Sums of gradients over replicas that begin before the last backward of their stage has ended.
namespace pipetwin {

struct PlanParts;

/// How the sums of a stage's gradients go on beside its last backward: in buckets, each of which
/// sets out as soon as all its gradients are there. Times that follow from its REDUCE_GRAD.
struct BucketedSums {
    Duration head{};    ///< as long before it the first bucket sets out
    Duration tail{};    ///< as long after it the last one is summed, at least
    Duration slowed{};  ///< its own time: by so much the messages make the backward longer

    bool operator==(const BucketedSums&) const = default;
};

/// Sets `parts.bucketed_sums` from costs, rows and `parts.all_reduce`. `buckets`: [stage] of its
/// gradients, at least 1. `share`: of the multiprocessors that the messages take.
void add_bucketed_sums(PlanParts& parts, const std::vector<int>& buckets, double share);

}  // namespace pipetwin
