// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "core/schedule/generators/generators.h"

namespace pipetwin::schedules {

namespace {

/// ZB-H1: the backward is split in two. The gradient of the input (a) goes on to the stage before;
/// that of the weights (A) is not needed until the update, so it fills what would be idle.
///
///     rank 0   0 1 2 3 . . . a A 4 b B 5 c C d D e E f F
///     rank 1   . 0 1 2 . . a 3 b A 4 c B 5 d C e D f E F
///     rank 2   . . 0 1 . a 2 b 3 c A 4 d B 5 e C f D E F
///     rank 3   . . . 0 a 1 b 2 c 3 d A 4 e B 5 f C D E F
///
/// Rank r computes the weight gradient r turns late: the deeper the rank, the longer it would idle
/// at the end. m (F + I + W) + (p - 1)(F + I - W) in all for W <= min(F, I), a third of 1F1B's
/// bubble where all three are equal; every rank keeps min(m, p) activations, as 1F1B's first does.
///
/// Source: Qi et al., "Zero Bubble Pipeline Parallelism", section 2 (handcrafted schedules).
Schedule zb_h1(const ScheduleShape& shape, const GeneratorOptions&) {
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

}  // namespace

const ScheduleTraits zb_h1_traits{
    .name = "zb-h1",
    .generate = zb_h1,
    .placement = StagePlacement::OnePerRank,
    .split = BackwardSplit::Always,
    .searched = Searched::Yes,
    .stashes =
        [](const ScheduleShape& shape, int rank) {
            const int all = std::min(shape.micro_batches, shape.ranks);
            return LiveStashes{.all = all, .pending = std::max(all - (shape.ranks - rank), 0)};
        },
    .in_flight = [](const ScheduleShape& shape, int rank) { return shape.ranks - rank; },
};

}  // namespace pipetwin::schedules
