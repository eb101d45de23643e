// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "core/schedule/schedule.h"

namespace pipetwin {

/// 16 hex digits that name the rows of a schedule: two plans with the same hash have the same
/// actions in the same order.
std::string rows_hash(const Schedule& schedule);

}  // namespace pipetwin
