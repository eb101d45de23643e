// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "core/schedule/generators/generators.h"

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

/// ZB-V: two chunks per rank, laid out in a V, so that a micro-batch ends on the rank where it
/// began, and its backward starts there at once.
///
///     rank 0   0 1 2 3 4 0 a A 1 b B 2 c C 5 a A 3 d D b B 4 e E c C 5 f F d D e E f F . .
///     rank 1   . 0 1 2 0 3 1 a A 2 b B 4 a A 3 c C 5 b B 4 d D c C 5 e E d f e D f E F F .
///     rank 2   . . 0 0 1 1 2 2 a A 3 a A 3 b B 4 b B 4 c C 5 c C 5 d D d e e f f D E F E F
///
/// No bubble in any rank's span for m >= 2p - 1 where F, I and W are equal, with the memory of
/// 1F1B's first rank on every rank: 2p activations of pieces half as large. For fewer micro-batches
/// it is the order of 2p - 1 of them with the others left out.
///
/// Source: Qi et al., "Pipeline Parallelism with Controllable Memory" and "Zero Bubble Pipeline
/// Parallelism", section 6.
Schedule zb_v(const ScheduleShape& shape, const GeneratorOptions&) {
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

}  // namespace

const ScheduleTraits zb_v_traits{
    .name = "zb-v",
    .torch_name = "ZBVZeroBubble",
    .generate = zb_v,
    .chunks = ChunkCounts::Two,
    .placement = StagePlacement::V,
    .split = BackwardSplit::Always,
    .searched = Searched::Yes,
    .stashes = [](const ScheduleShape& shape,
                  int) { return LiveStashes{std::min(shape.micro_batches + 1, 2 * shape.ranks)}; },
};

}  // namespace pipetwin::schedules
