// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "core/costs/profile.h"
#include "sim/explain/sensitivity.h"

namespace pipetwin {

class Model;
class Plan;
struct SettledScenario;

}  // namespace pipetwin

namespace pipetwin::sim {

/// Most actions of a plan for which faster links of its cluster are tried.
constexpr std::size_t largest_relinked = 200'000;

/// The step of a scenario's plan if the links between nodes, or those inside of nodes, were twice
/// as fast (latency and rate), best first; those that gain nothing are left out.
///
/// The plan is made again with the rows and the partition of `plan`, and simulated: faster links
/// shorten messages from rank to rank, sums over replicas, gathers of weights and sums of tensor
/// parallelism. `step` is the step of `plan`. Empty for plain numbers, and for plans of more than
/// `largest_relinked` actions.
std::vector<WhatIf> faster_cluster_links(const Plan& plan,
                                         Duration step,
                                         const SettledScenario& scenario,
                                         const Model& model,
                                         const Profile& profile);

}  // namespace pipetwin::sim
