// SPDX-License-Identifier: Apache-2.0
#include "core/schedule/generators/torch_orders.h"

#include <algorithm>

#include "core/schedule/generators/schedule_traits.h"

namespace pipetwin {

bool is_torch_order(std::string_view our_name, const ScheduleShape& shape, int group_size) {
    if (schedule_traits(our_name).torch_name.empty()) {
        return false;
    }
    const int rounds = std::max(1, shape.micro_batches / shape.ranks);
    switch (schedule_kind(our_name)) {
        case ScheduleKind::OneFOneB:
            return shape.micro_batches >= shape.ranks;
        case ScheduleKind::Interleaved1F1B:
            return shape.micro_batches % rounds == 0 &&
                   interleaved_group_size(shape, group_size) == shape.micro_batches / rounds;
        default:
            return true;  // their classes and ours refuse the same shapes
    }
}

}  // namespace pipetwin
