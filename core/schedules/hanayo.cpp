#include <fmt/format.h>

#include "core/schedules/generators.h"
#include "core/schedules/list_schedule.h"

namespace pipetwin::schedules {

/// PICTURE
Schedule hanayo(const ScheduleShape& shape) {
    require_two_chunks(shape, "hanayo");
    const int p = shape.ranks;
    require_rule(
        shape.micro_batches == p,
        "hanayo",
        fmt::format("one micro-batch per rank, got {} for {} ranks", shape.micro_batches, p),
        fmt::format("take {} micro-batches", p));
    Schedule schedule = v_placement(shape);
    list_schedule(schedule, 2 * p, [](int) { return 0; });
    return schedule;
}

}  // namespace pipetwin::schedules
