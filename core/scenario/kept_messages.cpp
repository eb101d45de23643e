// SPDX-License-Identifier: Apache-2.0
#include "core/scenario/kept_messages.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

#include "core/base/as_index.h"
#include "core/costs/devices/stack.h"
#include "core/plan/plan.h"
#include "core/plan/stage_costs.h"
#include "core/scenario/rank_device.h"
#include "core/scenario/settled_scenario.h"

namespace pipetwin {

/// Sums of sequence parallelism are of whole outputs, one for each layer of a forward. Replicas
/// that divide the optimizer's state gather the weights of all stages of a rank at once.
void add_kept_messages(PlanParts& parts,
                       const SettledScenario& scenario,
                       const Profile& profile,
                       const Schedule& grid,
                       const StateShards& shards) {
    const std::shared_ptr<const Stack> stack = stack_of(scenario, profile);
    if (!stack || !stack->memory.kept_messages) {
        return;
    }
    const Stack::Memory::Kept& kept = stack->memory.kept_messages->value;
    const bool has_sums =
        scenario.pipeline.tensor_parallel > 1 && scenario.pipeline.sequence_parallel;
    const bool gathers = shards.optimizer > 1 && shards.weights == 1;
    const Bytes output = samples_at(profile, parts.micro_batch_sizes.front()).front().output;
    std::vector<double> sums(grid.ranks.size());
    std::vector<double> gathered(grid.ranks.size());
    for (int stage = 0; stage < grid.stage_count(); ++stage) {
        const std::size_t rank = as_index(grid.rank_of_stage[as_index(stage)]);
        const int layers = parts.partition->layers_in(grid.weights_of_stage[as_index(stage)]);
        const double of_forward = static_cast<double>(output.count) * layers;
        sums[rank] = std::max(sums[rank], has_sums ? kept.tensor_sums * of_forward : 0);
        const auto held = static_cast<double>(parts.states[as_index(stage)].weights.count);
        gathered[rank] += gathers ? kept.gathered_weights * held : 0;
    }
    parts.kept_messages.clear();
    for (std::size_t rank = 0; rank < sums.size(); ++rank) {
        parts.kept_messages.push_back(
            Bytes{static_cast<std::int64_t>(sums[rank] + gathered[rank])});
    }
}

}  // namespace pipetwin
