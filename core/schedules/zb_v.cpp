#include <algorithm>

#include "core/schedules/generators.h"

namespace pipetwin::schedules {

namespace {

constexpr int down = 0;  ///< the rank's first chunk
constexpr int up = 1;    ///< and its second

/// The order for `n` micro-batches, of which there must be at least 2p - 1.
void write_full_row(RowWriter& row, int rank, int p, int n) {
    const auto all_of = [&row](int chunk) {
        row.next(Op::Forward, chunk);
        row.next(Op::BackwardInput, chunk);
        row.next(Op::BackwardWeight, chunk);
    };
    for (int k = 0; k < 2 * (p - rank) - 1; ++k) {
        row.next(Op::Forward, down);
    }
    for (int k = 0; k < rank; ++k) {
        row.next(Op::Forward, up);
        row.next(Op::Forward, down);
    }
    for (int k = 0; k < p - rank; ++k) {
        all_of(up);
    }
    while (row.done(Op::Forward, up) < n) {
        if (row.done(Op::Forward, down) < n) {
            row.next(Op::Forward, down);
        }
        row.next(Op::BackwardInput, down);
        row.next(Op::BackwardWeight, down);
        all_of(up);
    }
    for (int k = 0; k < rank; ++k) {
        row.next(Op::BackwardInput, down);
        row.next(Op::BackwardInput, up);
    }
    for (int k = 0; k < p - rank; ++k) {
        row.next(Op::BackwardInput, down);
        row.next(Op::BackwardWeight, down);
    }
    for (const int chunk : {up, down}) {
        while (row.done(Op::BackwardWeight, chunk) < n) {
            row.next(Op::BackwardWeight, chunk);
        }
    }
}

}  // namespace

/// PICTURE
Schedule zb_v(const ScheduleShape& shape) {
    require_two_chunks(shape, "zb-v");
    Schedule schedule = v_placement(shape);
    const int p = shape.ranks;
    const int m = shape.micro_batches;
    fill_rows(schedule, [p, m](int rank, RowWriter& row) {
        write_full_row(row, rank, p, std::max(m, 2 * p - 1));
    });
    for (auto& row : schedule.ranks) {
        std::erase_if(row, [m](const Action& action) { return action.micro_batch >= m; });
    }
    return schedule;
}

}  // namespace pipetwin::schedules
