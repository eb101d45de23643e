// SPDX-License-Identifier: Apache-2.0
#include "exec/profiling/layer_clock.h"

#include <algorithm>

#include "core/base/as_index.h"
#include "core/base/error.h"
#include "core/plan/plan.h"
#include "core/schedule/recompute.h"

namespace pipetwin::exec {

LayerClock::LayerClock(const Plan& plan)
    : watches_(static_cast<std::size_t>(plan.rank_count())),
      laps_(static_cast<std::size_t>(plan->partition->layer_count())) {
    for (int layer = 0; layer < plan->partition->layer_count(); ++layer) {
        const std::size_t stage = as_index(plan->partition->stage_of_layer(layer));
        rank_of_layer_.push_back(as_index(plan->schedule.rank_of_stage[stage]));
    }
}

void LayerClock::restart() {
    std::ranges::fill(laps_, Laps{});
}

void LayerClock::turn(int rank, Op op, TimePoint begin, const GroupTimes& waited) {
    watches_[as_index(rank)] = {.last = begin, .waited = waited, .action = op};
}

void LayerClock::lap(int layer, Op part, TimePoint done, const GroupTimes& waited) {
    const std::size_t index = as_index(layer);
    Watch& watch = watches_[rank_of_layer_[index]];
    const GroupTimes in_groups = waited - watch.waited;
    const Duration time = done - watch.last - in_groups.sum();
    Laps& laps = laps_[index];
    switch (part) {
        case Op::Forward:
            (watch.action == Op::Recompute ? laps.recompute : laps.forward) += time;
            laps.in_forward += in_groups;
            break;
        case Op::Recompute:
            laps.core += time;
            break;
        case Op::BackwardInput:
            laps.backward_input += time;
            laps.in_backward += in_groups;
            break;
        case Op::BackwardWeight:
            laps.backward_weight += time;
            laps.in_backward += in_groups;
            break;
        default:
            laps.optimizer += time;
            break;
    }
    watch.last = done;
    watch.waited = waited;
}

}  // namespace pipetwin::exec
