// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

#include "core/schedule/generators/generate.h"

namespace pipetwin {

/// Whether PyTorch has a class for the schedule that we call so, and the class makes the same rows
/// for this shape: it may refuse the shape, or take other groups than `group_size` (0: those of
/// `interleaved_group_size`).
bool is_torch_order(std::string_view our_name, const ScheduleShape& shape, int group_size);

}  // namespace pipetwin
