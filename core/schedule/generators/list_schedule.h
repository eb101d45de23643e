// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <vector>

#include "core/base/as_index.h"
#include "core/schedule/schedule.h"

namespace pipetwin::schedules {

/// Fills the rows of `grid` in unit slots where F and B take one slot each: in every slot each rank
/// that is free takes one of its ready actions - a backward before a forward, then the deeper
/// stage, then the lower micro-batch. `first_stage(k)` is where micro-batch k enters; from there it
/// goes through `depth` stages.
template <class FirstStage>
void list_schedule(Schedule& grid, int depth, const FirstStage& first_stage) {
    /// How far a micro-batch has come.
    struct Progress {
        int forwards = 0;   ///< stages passed on the way down
        int backwards = 0;  ///< and back
    };
    std::vector<Progress> progress(as_index(grid.micro_batches));
    const auto next_of = [&](int micro_batch) {
        const Progress& done = progress[as_index(micro_batch)];
        const bool forward = done.forwards < depth;
        const int level = forward ? done.forwards : depth - 1 - done.backwards;
        return Action{.op = forward ? Op::Forward : Op::Backward,
                      .stage = first_stage(micro_batch) + level,
                      .micro_batch = micro_batch};
    };
    const auto comes_before = [&](const Action& a, const Action& b) {
        if (a.op != b.op) {
            return a.op == Op::Backward;
        }
        const int level_a = a.stage - first_stage(a.micro_batch);
        const int level_b = b.stage - first_stage(b.micro_batch);
        return level_a != level_b ? level_a > level_b : a.micro_batch < b.micro_batch;
    };
    int left = 2 * depth * grid.micro_batches;
    while (left > 0) {
        std::vector<std::optional<Action>> taken(grid.ranks.size());
        for (int k = 0; k < grid.micro_batches; ++k) {
            if (progress[as_index(k)].backwards == depth) {
                continue;
            }
            const Action action = next_of(k);
            const int rank = grid.rank_of_stage[as_index(action.stage)];
            auto& choice = taken[as_index(rank)];
            if (!choice || comes_before(action, *choice)) {
                choice = action;
            }
        }
        for (std::size_t rank = 0; rank < taken.size(); ++rank) {
            if (taken[rank]) {
                grid.ranks[rank].push_back(*taken[rank]);
                Progress& done = progress[as_index(taken[rank]->micro_batch)];
                ++(taken[rank]->op == Op::Forward ? done.forwards : done.backwards);
                --left;
            }
        }
    }
}

}  // namespace pipetwin::schedules
