// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "core/costs/profile.h"
#include "core/scenario/settled_scenario.h"

namespace pipetwin {

class Model;
class Plan;

}  // namespace pipetwin

/// What `partition = "auto"` stands for.
namespace pipetwin::sim {

struct KnownPartitions;

/// The plan of a scenario, with its capacity settled (`settled_capacity`). Where the scenario
/// leaves the partition open it is the one whose simulated step is shortest of those that were
/// tried and fit into the memory of their ranks; of equal ones the one with the least peak, then
/// the most even one. Where none fits it is the one that lacks least.
///
/// Tried are all partitions, where there are few of them for the size of the plan. Else partitions
/// are searched for at canonical costs (`canonical_profiles`), which are those of faster and of
/// slower layers, too, and the best of each search are simulated at the costs of the profile. A
/// search begins with `partition_for`, the one whose slowest rank has least to do, with others
/// whose pieces are about alike (`even_splits`, and equal numbers of layers), and where memory is
/// limited with those that balance what the ranks hold, or the work within the limits. It goes on
/// with the fastest, which it makes fit, and with the best: one layer or two move from one piece to
/// any other while the boundaries between them move along, first where that relieves the longest
/// chains of the steps that were simulated; where none of these moves is better it goes on after
/// some of them at once. It ends where nothing is better, 4,000,000 actions have been simulated, or
/// 5,000 plans, or 30 where each has to search for its order. The same on every machine.
///
/// So of two profiles that differ by one factor of all their layers' times the faster one has the
/// shorter step, or the same: the least of the steps of the same partitions, each of which grows
/// with the times of the layers, if rows do not follow costs and nothing is shared. It may be
/// longer by a thousandth where a capacity is settled (`is_as_fast`), and where times are rounded
/// so that the canonical costs differ.
///
/// Where the costs were measured, `partition_for` gives way only to partitions whose steps are
/// shorter by 1 % at least at some canonical costs: so that what two measurements of one model
/// differ by does not cut it in two ways. Throws as make_plan.
Plan make_settled_plan(const SettledScenario& scenario, const Model& model, const Profile& profile);

/// A partition, and how many actions were simulated to find it.
struct ChosenPartition {
    std::vector<int> layers_per_piece;
    std::int64_t actions = 0;
};

/// The partition of such a plan, looked for until so many actions have been simulated. The search
/// begins with `first`, too, where there is one. What is in `tried` counts, but is not simulated
/// again; what else is tried is added: for several searches of one scenario.
ChosenPartition chosen_partition(const SettledScenario& scenario,
                                 const Model& model,
                                 const Profile& profile,
                                 std::int64_t actions,
                                 const std::vector<int>& first = {},
                                 KnownPartitions* tried = nullptr);

/// What `partition = "auto"` of one scenario stands for as its layers take other times: without a
/// search and a simulation of everything for each of them.
class ScaledPartitions {
  public:
    /// Keeps references to model and profile.
    ScaledPartitions(const SettledScenario& scenario, const Model& model, const Profile& profile);
    ScaledPartitions(ScaledPartitions&&) noexcept;
    ~ScaledPartitions();

    /// Layers per piece with layers that take `compute` times as long as the profile says
    /// (`with_factors`). What a factor gives does not depend on which others were asked before.
    /// Throws as make_plan.
    std::vector<int> best(double compute);

  private:
    struct Known;

    SettledScenario scenario_;
    const Model& model_;
    const Profile& profile_;
    std::unique_ptr<Known> known_;
};

}  // namespace pipetwin::sim
