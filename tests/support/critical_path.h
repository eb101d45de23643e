// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/timeline/timeline.h"

namespace pipetwin {

class Plan;

}  // namespace pipetwin

namespace pipetwin::testing {

/// The oracle of the simulator: when every action of a plan begins and ends, from the definitions
/// alone.
///
/// No events and no queue. Every time is the largest of the times it has to wait for - the action
/// before in the row, the message, room on the edge, the message before on the link - so all times
/// start at zero and are raised until none changes. That is the longest path through rows and
/// messages.
Timeline longest_path(const Plan& plan);

}  // namespace pipetwin::testing
