#pragma once

#include "core/schedule.h"

/// One generator per file, each with its picture in the .cpp. Callers use `generate` of
/// core/schedule.h.
///
/// Every generator writes rows of F and B only, and checks its shape before it allocates.
namespace pipetwin::schedules {

Schedule naive(const ScheduleShape& shape);
Schedule gpipe(const ScheduleShape& shape, BackwardOrder order);
Schedule one_f_one_b(const ScheduleShape& shape);

/// The empty grid that a generator fills: stage s on rank s mod p, every stage with its own
/// weights.
Schedule loop_placement(const ScheduleShape& shape);

/// For generators without chunks. Throws Error(Infeasible): "gpipe: one chunk per rank, got 2".
void require_one_chunk(const ScheduleShape& shape, std::string_view name);

}  // namespace pipetwin::schedules
