// SPDX-License-Identifier: Apache-2.0
#include "core/base/as_index.h"
#include "core/schedule/generators/generators.h"

namespace pipetwin::schedules {

namespace {

/// GPipe: all forwards, then all backwards, and one update for the whole mini-batch.
///
///     rank 0   0 1 2 3 . . . . . . . . . d d c c b b a a
///     rank 1   . 0 1 2 3 . . . . . . d d c c b b a a . .
///     rank 2   . . 0 1 2 3 . . . d d c c b b a a . . . .
///     rank 3   . . . 0 1 2 3 d d c c b b a a . . . . . .
///
///     0..3  forward of micro-batches 0..3
///     a..d  backward of micro-batches 0..3 (here twice as long)
///
/// Backwards run in descending order, as in the paper: the last micro-batch's intermediates were
/// made last, so with recompute the last stage has them still and need not make them again.
/// Ascending is an option.
///
/// With m micro-batches on p ranks a step takes (m + p - 1)(F + B): the bubble, the triangles of
/// the picture, is (p - 1)/(m + p - 1) of it. Every rank keeps m micro-batches alive at the turn.
///
/// Source: Huang et al., "GPipe: Efficient Training of Giant Neural Networks using Pipeline
/// Parallelism", section 2.3, figure 2c.
Schedule gpipe(const ScheduleShape& shape, const GeneratorOptions& options) {
    require_one_chunk(shape, "gpipe");
    Schedule schedule = loop_placement(shape);
    const int m = shape.micro_batches;
    for (int stage = 0; stage < shape.ranks; ++stage) {
        auto& row = schedule.ranks[as_index(stage)];
        row.reserve(2 * as_index(m));
        for (int k = 0; k < m; ++k) {
            row.push_back({.op = Op::Forward, .stage = stage, .micro_batch = k});
        }
        for (int k = 0; k < m; ++k) {
            const int micro_batch =
                options.gpipe_order == BackwardOrder::Descending ? m - 1 - k : k;
            row.push_back({.op = Op::Backward, .stage = stage, .micro_batch = micro_batch});
        }
    }
    return schedule;
}

}  // namespace

const ScheduleTraits gpipe_traits{
    .name = "gpipe",
    .torch_name = "GPipe",
    .generate = gpipe,
    .placement = StagePlacement::OnePerRank,
    .split = BackwardSplit::Never,
    .forwards_first = true,
    .recompute = Recompute::Always,
    // The paper, section 2.3: recompute is scheduled without waiting for the gradient.
    .recompute_timing = RecomputeTiming::Eager,
    .searched = Searched::Yes,
    .stashes = [](const ScheduleShape& shape, int) { return LiveStashes{shape.micro_batches}; },
};

}  // namespace pipetwin::schedules
