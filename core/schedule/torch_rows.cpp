// SPDX-License-Identifier: Apache-2.0
#include "core/schedule/torch_rows.h"

#include <utility>
#include <vector>

#include "core/schedule/lower.h"
#include "core/schedule/validate.h"

namespace pipetwin {

namespace {

bool is_torch_word(Op op) {
    return op != Op::Recompute && op != Op::GradientNorm && op != Op::Optimizer;
}

bool needs_no_room(const Schedule& rows) {
    return validate(rows, MessageQueues::PerRanks).empty() &&
           find_deadlock(rows, 0, MessageQueues::PerRanks).deadlock_free;
}

}  // namespace

TorchRows torch_rows(Schedule rows) {
    for (std::vector<Action>& row : rows.ranks) {
        std::erase_if(row, [](const Action& action) { return !is_torch_word(action.op); });
    }
    rows = add_reduction(std::move(rows), !is_forward_only(rows));
    const bool has_messages = has_communication(rows);
    if (has_messages && needs_no_room(rows)) {
        return {.schedule = std::move(rows)};
    }
    for (std::vector<Action>& row : rows.ranks) {
        std::erase_if(row, [](const Action& action) { return is_message(action.op); });
    }
    rows = add_communication(std::move(rows), RecomputeTiming::Eager);
    return {.schedule = receive_in_order_of_sends(std::move(rows)), .reordered = has_messages};
}

}  // namespace pipetwin
