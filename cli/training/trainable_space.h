// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cli/base/console.h"
#include "core/costs/profile.h"
#include "core/scenario/scenario.h"

/// The plans among which a training that is to be planned may choose, and what they cost here.
namespace pipetwin::cli {

/// The open keys as this machine could train them: replicas and tensor parallelism are not
/// possible, so they are 1; as many devices as cores, unless the scenario says how many.
Scenario trainable_space(Scenario scenario);

/// Measures the costs that the search may need: sizes of micro-batches from one sample to the
/// mini-batch, none more than four times the one before, in a pipeline of as many stages as there
/// may be.
Profile measure_open_profile(const Scenario& space, Console& console);

}  // namespace pipetwin::cli
