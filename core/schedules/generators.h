#pragma once

#include "core/schedule.h"

/// One generator per file, each with its picture in the .cpp. Callers use `generate` of core/schedule.h.
namespace pipetwin::schedules {

Schedule naive(const ScheduleShape& shape);
Schedule gpipe(const ScheduleShape& shape, BackwardOrder order);
Schedule one_f_one_b(const ScheduleShape& shape);

}  // namespace pipetwin::schedules
