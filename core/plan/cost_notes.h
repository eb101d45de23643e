// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/costs/profile.h"
#include "core/plan/stage_costs.h"
#include "core/schedule/schedule.h"

/// Notes of a plan on the costs that it was made from: what they were measured with, what they do
/// not know, and what was assumed in its place. A note is a sentence without a full stop.
namespace pipetwin {

/// One note for each size of a micro-batch at which some layers have no costs: "estimated: no costs
/// at micro-batch size 8; those of 3 layers (a, b, c) are scaled in proportion, 'a' from size 4".
std::vector<std::string> size_notes(const Profile& profile, const std::vector<int>& sizes);

/// Names the layer whose measured times vary most, if they vary by more than their median.
std::vector<std::string> spread_notes(const Profile& profile);

/// Says that a rank's devices have equal parts of each layer, if the profile knows the costs of
/// parts, but not for so many devices. `devices`: of each rank.
std::vector<std::string> share_notes(const Profile& profile, int devices);

/// Notes on costs that were measured on ranks that shared a GPU, or with whole backwards, for a
/// plan of these rows. `schedule`: their name. `sets_interference`: the scenario says how much
/// ranks slow each other, so the measured number does not count.
std::vector<std::string> gpu_notes(const Profile& profile,
                                   const Schedule& rows,
                                   std::string_view schedule,
                                   bool sets_interference);

/// How much memory the second copy of the weights takes that the first and the last layer share.
/// `precision`: of the profile.
std::string tied_note(const std::string& precision, const WeightRules& rules);

}  // namespace pipetwin
