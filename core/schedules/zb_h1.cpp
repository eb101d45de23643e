#include <algorithm>

#include "core/schedules/generators.h"

namespace pipetwin::schedules {

/// PICTURE
Schedule zb_h1(const ScheduleShape& shape) {
    require_one_chunk(shape, "zb-h1");
    Schedule schedule = loop_placement(shape);
    const int m = shape.micro_batches;
    fill_rows(schedule, [&shape, m](int rank, RowWriter& row) {
        const int warm_up = std::min(m, shape.ranks - 1 - rank);
        for (int k = 0; k < warm_up; ++k) {
            row.next(Op::Forward);
        }
        for (int k = 0; k < m; ++k) {
            if (row.done(Op::Forward) < m) {
                row.next(Op::Forward);
            }
            row.next(Op::BackwardInput);
            if (k >= rank) {
                row.next(Op::BackwardWeight);
            }
        }
        while (row.done(Op::BackwardWeight) < m) {
            row.next(Op::BackwardWeight);
        }
    });
    return schedule;
}

}  // namespace pipetwin::schedules
