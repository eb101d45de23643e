// SPDX-License-Identifier: Apache-2.0
#include "core/costs/devices/measured_layout.h"

namespace pipetwin {

Nearness nearness(const MeasuredLayout& one, const MeasuredLayout& other) {
    if (one.parameters != other.parameters || one.sequence != other.sequence ||
        one.device != other.device || one.precision != other.precision) {
        return Nearness::OtherModel;
    }
    if (one.stages != other.stages || one.chunks != other.chunks ||
        one.tensor_parallel != other.tensor_parallel || one.recompute != other.recompute) {
        return Nearness::OtherLayout;
    }
    return one.micro_batch_size == other.micro_batch_size && one.shard == other.shard &&
                   one.schedule == other.schedule
               ? Nearness::SameLayout
               : Nearness::SameStages;
}

}  // namespace pipetwin
