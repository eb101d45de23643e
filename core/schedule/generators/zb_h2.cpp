// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "core/schedule/generators/generators.h"

namespace pipetwin::schedules {

namespace {

/// ZB-H2: as ZB-H1, but with twice as many forwards at the start, so that no rank ever waits once
/// it has begun.
///
///     rank 0   0 1 2 3 4 a A 5 b B c C d D e E f F . .
///     rank 1   . 0 1 2 a 3 b 4 c A 5 d B e C f D E F .
///     rank 2   . . 0 a 1 b 2 c 3 d 4 e A 5 f B C D E F
///
/// The trapezoid has become a parallelogram: each rank is busy for m (F + I + W) without a gap
/// where all three are equal, and the next step can begin on rank 0 while rank p - 1 still works,
/// provided that the optimizer does not wait for all ranks. Every rank keeps min(m, 2p - 1)
/// activations, about twice as many as 1F1B's first.
///
/// Source: Qi et al., "Zero Bubble Pipeline Parallelism", section 2 (handcrafted schedules).
Schedule zb_h2(const ScheduleShape& shape, const GeneratorOptions&) {
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

}  // namespace

const ScheduleTraits zb_h2_traits{
    .name = "zb-h2",
    .generate = zb_h2,
    .placement = StagePlacement::OnePerRank,
    .split = BackwardSplit::Always,
    .searched = Searched::Yes,
    .stashes =
        [](const ScheduleShape& shape, int rank) {
            const int all = std::min(shape.micro_batches, 2 * shape.ranks - 1);
            const int in_flight = 2 * (shape.ranks - rank) - 1;
            return LiveStashes{.all = all, .pending = std::max(all - in_flight, 0)};
        },
    .in_flight = [](const ScheduleShape& shape, int rank) { return 2 * (shape.ranks - rank) - 1; },
};

}  // namespace pipetwin::schedules
