// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <random>

#include "gui/view/run/run_data.h"

namespace pipetwin {

class Plan;

}  // namespace pipetwin

/// Runs of real plans, which know what they were planned from.
namespace pipetwin::gui {

/// Predicted as the simulator does, measured as the steps say; a run without steps has one side.
std::shared_ptr<const RunData> planned_run(const Plan& plan, std::vector<Timeline> measured = {});

/// The plan's step with every action up to half as long again, as the rules have it: what an
/// executor without any time of its own would measure.
Timeline jittered_step(const Plan& plan, std::mt19937& random);

/// A run of four stages on four ranks with 1f1b, F 1 ms and B 2 ms, of which stages 2 and 3 read
/// what stage 0 makes: two skip messages for each micro-batch, and their gradients. Both sides, the
/// measured one jittered.
std::shared_ptr<const RunData> run_with_skips(int micro_batches = 4);

}  // namespace pipetwin::gui
