// SPDX-License-Identifier: Apache-2.0
#include "exec/executor/process_place.h"

#include "core/base/error.h"
#include "core/plan/plan.h"

namespace pipetwin::exec {

int process_of(const ProcessGroup& group, const Plan& plan, const DeviceOfPlan& of) {
    return group.is_alone()
               ? group.index()
               : (of.replica * plan.rank_count() + of.rank) * plan->tensor_parallel + of.device;
}

DeviceOfPlan place_of_process(const Plan& plan, int process) {
    const int rank = process / plan->tensor_parallel;
    return {.replica = rank / plan.rank_count(),
            .rank = rank % plan.rank_count(),
            .device = process % plan->tensor_parallel};
}

ReplicasHere replicas_here(const ProcessGroup& group, const Plan& plan) {
    if (group.is_alone()) {
        return {.first = 0, .count = plan->replicas};
    }
    return {.first = place_of_process(plan, group.index()).replica, .count = 1};
}

ReplicasHere devices_here(const ProcessGroup& group, const Plan& plan) {
    if (group.is_alone()) {
        return {.first = 0, .count = plan->tensor_parallel};
    }
    return {.first = place_of_process(plan, group.index()).device, .count = 1};
}

std::vector<int> ranks_here(const ProcessGroup& group, const Plan& plan, int replica, int device) {
    PIPETWIN_EXPECT(group.is_alone() ||
                        group.size() == plan->replicas * plan.rank_count() * plan->tensor_parallel,
                    "a process for each device of each rank of each replica");
    std::vector<int> here;
    for (int rank = 0; rank < plan.rank_count(); ++rank) {
        if (process_of(group, plan, {.replica = replica, .rank = rank, .device = device}) ==
            group.index()) {
            here.push_back(rank);
        }
    }
    return here;
}

}  // namespace pipetwin::exec
