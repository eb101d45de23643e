// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "core/base/units.h"

/// Messages of replicas in buckets: sums of gradients that begin before the last backward of their
/// stage has ended, and gathers of updated weights beside the forwards of the next step.
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

/// Leaves of `parts.weight_gather` what a rank waits for, where the next step begins meanwhile: a
/// stage's first forward sets out when the first of its `buckets` has come and ends when all have.
/// A rank gathers for one stage after the other in the order in which it computes them. Each OPT
/// keeps what its stage waits for, as steps repeat, and by how much the messages, which take
/// `share` of the multiprocessors, make the forward longer.
void hide_weight_gathers(PlanParts& parts, const std::vector<int>& buckets, double share);

}  // namespace pipetwin
