// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace pipetwin {

struct PlanParts;
struct Profile;
struct SettledScenario;
struct StateShards;

/// Adds what the memory pools of the devices keep of messages, as the stack says, from the parts'
/// rows, partition and states. Throws as `stack_of`.
void add_kept_messages(PlanParts& parts,
                       const SettledScenario& scenario,
                       const Profile& profile,
                       const StateShards& shards);

}  // namespace pipetwin
