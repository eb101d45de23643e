// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "core/base/units.h"
#include "core/costs/profile.h"
#include "core/partition/replicated.h"
#include "sim/search/found_plan.h"

namespace pipetwin {

class Model;
struct Scenario;

}  // namespace pipetwin

namespace pipetwin::sim {

/// PipeDream's hybrid of model and data parallelism, in its steady state: stages that are on
/// different numbers of devices, each of which takes a stage's micro-batches in turn. Memory,
/// filling and draining are left out, so this is no plan: it says whether stages of equal width
/// cost much.
struct Hybrid {
    ReplicatedSplit split;               ///< `largest` is the time from one micro-batch to the next
    std::vector<Duration> work{};        ///< [stage] of one micro-batch on one device
    std::vector<Duration> all_reduce{};  ///< [stage] of its gradients, once per mini-batch
    int devices = 1;                     ///< that there are; with T to a rank, groups of T
    int micro_batch_size = 1;
    int micro_batches = 1;  ///< of the whole mini-batch

    double samples_per_second() const;
};

/// With the micro-batch size, the recompute and the tensor parallelism of a plan, on all devices of
/// the scenario. Gradients are summed once per mini-batch, while the devices compute: each of its
/// micro-batches bears its part. A boundary takes as long as its message occupies one link, between
/// nodes where there are several. A plan that recomputes on some stages is taken as one that does
/// on all.
/// Throws Error(Infeasible) where the scenario tells the devices apart.
Hybrid hybrid_like(const Scenario& scenario,
                   const Model& model,
                   const Profile& profile,
                   const FoundPlan& plan);

}  // namespace pipetwin::sim
