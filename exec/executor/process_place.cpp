// SPDX-License-Identifier: Apache-2.0
#include "exec/executor/process_place.h"

#include "core/base/error.h"
#include "core/plan/plan.h"

namespace pipetwin::exec {

int process_of(const ProcessGroup& group, const Plan& plan, int replica, int rank) {
    return group.is_alone() ? group.index() : replica * plan.rank_count() + rank;
}

ReplicasHere replicas_here(const ProcessGroup& group, const Plan& plan) {
    if (group.is_alone()) {
        return {.first = 0, .count = plan->replicas};
    }
    return {.first = group.index() / plan.rank_count(), .count = 1};
}

std::vector<int> ranks_here(const ProcessGroup& group, const Plan& plan, int replica) {
    PIPETWIN_EXPECT(group.is_alone() || group.size() == plan->replicas * plan.rank_count(),
                    "a process for each rank of each replica");
    std::vector<int> here;
    for (int rank = 0; rank < plan.rank_count(); ++rank) {
        if (process_of(group, plan, replica, rank) == group.index()) {
            here.push_back(rank);
        }
    }
    return here;
}

}  // namespace pipetwin::exec
