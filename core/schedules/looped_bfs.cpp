#include "core/schedules/generators.h"

namespace pipetwin::schedules {

/// PICTURE
Schedule looped_bfs(const ScheduleShape& shape) {
    Schedule schedule = loop_placement(shape);
    fill_rows(schedule, [&shape](int, RowWriter& row) {
        for (int chunk = 0; chunk < shape.chunks; ++chunk) {
            for (int k = 0; k < shape.micro_batches; ++k) {
                row.next(Op::Forward, chunk);
            }
        }
        for (int chunk = shape.chunks - 1; chunk >= 0; --chunk) {
            for (int k = shape.micro_batches - 1; k >= 0; --k) {
                row.add(Op::Backward, chunk, k);
            }
        }
    });
    return schedule;
}

}  // namespace pipetwin::schedules
