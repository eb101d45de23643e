// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cli/base/console.h"
#include "cli/processes/processes.h"
#include "core/costs/profile.h"

namespace pipetwin {

class Plan;
struct Scenario;
struct SettledScenario;

}  // namespace pipetwin

/// What the processes of a training agree on before its first step. Every process calls each
/// function. In a training of one process they send and compare nothing.
namespace pipetwin::cli {

/// Throws Error(Disagreement) in all processes if they read different scenarios or data, or are
/// different builds of the program.
void agree_on_inputs(Processes& processes, const Scenario& scenario);

/// Writes the hosts on which the processes run into the scenario, in place of those that it
/// expects.
void place_on_hosts(SettledScenario& scenario, const Processes& processes);

/// Returns the first process's profile, in all processes, with the measured links between them.
Profile shared_profile(Profile profile, const SettledScenario& scenario, Processes& processes);

/// Prints the links between processes.
void note_links(const Profile& profile, const Processes& processes, Console& console);

/// Throws Error(Disagreement) in all processes if their plans differ. From then on the processes'
/// monitor waits as long as the longest message of the plan takes before it calls a process silent.
void agree_on_plan(Processes& processes, const Plan& plan);

}  // namespace pipetwin::cli
