#include "core/schedules/generators.h"

namespace pipetwin::schedules {

/// PICTURE
Schedule forward_only(const ScheduleShape& shape) {
    require_one_chunk(shape, "forward-only");
    Schedule schedule = loop_placement(shape);
    fill_rows(schedule, [&shape](int, RowWriter& row) {
        for (int k = 0; k < shape.micro_batches; ++k) {
            row.next(Op::Forward);
        }
    });
    return schedule;
}

}  // namespace pipetwin::schedules
