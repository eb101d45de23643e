// SPDX-License-Identifier: Apache-2.0
#include "core/costs/devices/measured_layout.h"

namespace pipetwin {

std::vector<std::pair<std::string_view, int>> divided_degrees(const MeasuredLayout& layout) {
    std::vector<std::pair<std::string_view, int>> degrees{
        {"context_parallel", layout.context_parallel}, {"expert_parallel", layout.expert_parallel}};
    std::erase_if(degrees, [](const auto& degree) { return degree.second == 1; });
    return degrees;
}

Nearness nearness(const MeasuredLayout& one, const MeasuredLayout& other) {
    if (one.parameters != other.parameters || one.sequence != other.sequence ||
        one.device != other.device || one.precision != other.precision) {
        return Nearness::OtherModel;
    }
    if (one.stages != other.stages || one.chunks != other.chunks ||
        one.tensor_parallel != other.tensor_parallel ||
        one.context_parallel != other.context_parallel ||
        one.expert_parallel != other.expert_parallel || one.recompute != other.recompute) {
        return Nearness::OtherLayout;
    }
    return one.micro_batch_size == other.micro_batch_size && one.shard == other.shard &&
                   one.schedule == other.schedule
               ? Nearness::SameLayout
               : Nearness::SameStages;
}

}  // namespace pipetwin
