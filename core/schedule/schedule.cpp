// SPDX-License-Identifier: Apache-2.0
#include "core/schedule/schedule.h"

#include <algorithm>
#include <cstddef>

#include "core/base/as_index.h"
#include "core/base/error.h"
#include "core/schedule/edge.h"

namespace pipetwin {

bool has_next_stage(const Schedule& schedule, int stage) {
    const auto next = as_index(stage) + 1;
    return next < schedule.rank_of_stage.size() &&
           (next >= schedule.weights_of_stage.size() ||
            schedule.weights_of_stage[next] > schedule.weights_of_stage[next - 1]);
}

bool has_stage_before(const Schedule& schedule, int stage) {
    return stage > 0 && has_next_stage(schedule, stage - 1);
}

int model_stage_count(const Schedule& schedule) {
    return schedule.weights_of_stage.empty() ? schedule.stage_count()
                                             : schedule.weights_of_stage.back() + 1;
}

int model_stage_of(const Schedule& schedule, int stage) {
    return stage - first_stage_of_pipeline(schedule, stage);
}

std::optional<int> weight_sharing_stage(const Schedule& schedule, int stage) {
    const int pieces = model_stage_count(schedule);
    if (pieces == schedule.stage_count()) {
        return std::nullopt;
    }
    return stage < pieces ? stage + pieces : stage - pieces;
}

std::optional<int> gradient_source(const Schedule& schedule, int stage) {
    const int last = schedule.stage_count() - 1;
    if (schedule.tied_ends && last > 0 && (stage == 0 || stage == last)) {
        return last - stage;
    }
    return weight_sharing_stage(schedule, stage);
}

bool has_gradient_norms(const Schedule& schedule) {
    return std::ranges::any_of(schedule.ranks, [](const std::vector<Action>& row) {
        // Reductions stand at the end of a row, before its updates.
        return std::ranges::any_of(row.rbegin(), row.rend(), [](const Action& action) {
            return action.op == Op::GradientNorm;
        });
    });
}

int first_stage_of_pipeline(const Schedule& schedule, int stage) {
    return stage - stage % model_stage_count(schedule);
}

bool is_forward_only(const Schedule& schedule) {
    return std::ranges::all_of(schedule.ranks, [](const std::vector<Action>& row) {
        return std::ranges::none_of(row, [](const Action& action) {
            return action.op == Op::Backward || action.op == Op::BackwardInput ||
                   action.op == Op::BackwardWeight;
        });
    });
}

int edge_of_skip(const Schedule& schedule, const Action& message) {
    const StagePair stages = stages_of(message);
    const auto skip = std::ranges::lower_bound(schedule.skips, stages);
    PIPETWIN_EXPECT(skip != schedule.skips.end() && *skip == stages,
                    "the schedule has a skip for the message");
    const std::size_t pair =
        boundary_count(schedule) + static_cast<std::size_t>(skip - schedule.skips.begin());
    const bool forward = message.op == Op::SendForward || message.op == Op::RecvForward;
    return static_cast<int>(2 * pair) + (forward ? 0 : 1);
}

}  // namespace pipetwin
