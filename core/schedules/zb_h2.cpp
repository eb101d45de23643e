#include <algorithm>

#include "core/schedules/generators.h"

namespace pipetwin::schedules {

/// PICTURE
Schedule zb_h2(const ScheduleShape& shape) {
    require_one_chunk(shape, "zb-h2");
    Schedule schedule = loop_placement(shape);
    const int p = shape.ranks;
    const int m = shape.micro_batches;
    fill_rows(schedule, [p, m](int rank, RowWriter& row) {
        const int warm_up = std::min(m, 2 * (p - rank) - 1);
        for (int k = 0; k < warm_up; ++k) {
            row.next(Op::Forward);
        }
        while (row.done(Op::Forward) < m) {
            row.next(Op::BackwardInput);
            if (row.done(Op::Forward) - row.done(Op::BackwardWeight) == 2 * p - 1) {
                row.next(Op::BackwardWeight);
            }
            row.next(Op::Forward);
        }
        while (row.done(Op::BackwardInput) < m) {
            row.next(Op::BackwardInput);
            if (row.done(Op::BackwardInput) - row.done(Op::BackwardWeight) > rank) {
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
