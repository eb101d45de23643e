// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "core/costs/profile.h"

namespace pipetwin {

struct PlanParts;
struct SettledScenario;
struct Stack;
struct StateShards;

/// What the memory pools of the devices keep of messages, as the stack says.
class KeptMessages {
  public:
    /// `micro_batch_size`: samples of the first micro-batch. Throws as `stack_of`.
    KeptMessages(const SettledScenario& scenario,
                 const Profile& profile,
                 const StateShards& shards,
                 int micro_batch_size);

    /// Sets `kept_messages` of a plan of the scenario from its rows, partition and states.
    void add_to(PlanParts& parts) const;

  private:
    std::shared_ptr<const Stack> stack_;  ///< null: pools keep nothing
    bool has_sums_ = false;               ///< of sequence parallelism
    bool gathers_ = false;                ///< weights that replicas have updated
    LayerSamples samples_{};
};

}  // namespace pipetwin
