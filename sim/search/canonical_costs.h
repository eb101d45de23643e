// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "core/costs/profile.h"

namespace pipetwin {

class Model;
class Plan;
struct SettledScenario;

}  // namespace pipetwin

/// Costs that do not depend on how fast the devices compute: what is found with them is found for
/// faster and for slower devices alike.
namespace pipetwin::sim {

/// Profiles of one model in which the layers take fixed multiples of what a step takes without
/// computing: messages, sums between devices, dispatch. Fixed: 64 times as long, 8 times, as long,
/// an eighth; the first of them always, and then those down to about a third of the multiple that
/// the profile itself has. A profile whose layers all take longer by one factor has the same first
/// ones, or fewer at the end. Times are rounded to a thousandth of the mean layer, as measured and
/// written times are rounded, too. The optimizer's update counts by its share of the computing, in
/// powers of 4, and not at all where that is below 1/256.
///
/// `plan` is one of the scenario. Where nothing but computing takes time, or `only_first`, there is
/// one profile. Throws as make_plan.
std::vector<Profile> canonical_profiles(const SettledScenario& scenario,
                                        const Model& model,
                                        const Profile& profile,
                                        const Plan& plan,
                                        bool only_first = false);

}  // namespace pipetwin::sim
