// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "core/base/as_index.h"
#include "core/schedule/generators/generators.h"

namespace pipetwin::schedules {

namespace {

/// 1F1B: a few forwards to fill the pipeline, then one forward and one backward in turn, then the
/// rest.
///
///     rank 0   0 1 2 3 . . . . . . a a 4 b b 5 c c . d d . e e . f f
///     rank 1   . 0 1 2 . . . . a a 3 b b 4 c c 5 d d . e e . f f . .
///     rank 2   . . 0 1 . . a a 2 b b 3 c c 4 d d 5 e e . f f . . . .
///     rank 3   . . . 0 a a 1 b b 2 c c 3 d d 4 e e 5 f f . . . . . .
///              |---------|   one forward, one backward   |---------|
///                warm-up                                    drain
///
///     0..5  forward of micro-batches 0..5
///     a..f  backward of micro-batches 0..5 (here twice as long)
///
/// Rank r warms up with w = min(m, p - 1 - r) forwards: so many micro-batches are on their way
/// through the ranks behind it before its first gradient comes back. From then on it frees one
/// micro-batch for each it takes in, and keeps min(m, p - r) alive instead of GPipe's m. The time
/// is GPipe's, (m + p - 1)(F + B).
///
/// Source: Narayanan et al., "PipeDream" (the order), and "Efficient Large-Scale Language Model
/// Training on GPU Clusters", section 2.2.1 (with a flush per step).
Schedule one_f_one_b(const ScheduleShape& shape, const GeneratorOptions&) {
    require_one_chunk(shape, "1f1b");
    Schedule schedule = loop_placement(shape);
    const int m = shape.micro_batches;
    for (int stage = 0; stage < shape.ranks; ++stage) {
        auto& row = schedule.ranks[as_index(stage)];
        row.reserve(2 * as_index(m));
        const int warm_up = std::min(m, shape.ranks - 1 - stage);
        for (int k = 0; k < warm_up; ++k) {
            row.push_back({.op = Op::Forward, .stage = stage, .micro_batch = k});
        }
        for (int k = 0; k < m; ++k) {
            if (warm_up + k < m) {
                row.push_back({.op = Op::Forward, .stage = stage, .micro_batch = warm_up + k});
            }
            row.push_back({.op = Op::Backward, .stage = stage, .micro_batch = k});
        }
    }
    return schedule;
}

}  // namespace

const ScheduleTraits one_f_one_b_traits{
    .name = "1f1b",
    .torch_name = "1F1B",
    .generate = one_f_one_b,
    .placement = StagePlacement::OnePerRank,
    .split = BackwardSplit::Never,
    .in_megatron = true,
    .searched = Searched::First,
    .stashes =
        [](const ScheduleShape& shape, int rank) {
            return LiveStashes{std::min(shape.micro_batches, shape.ranks - rank)};
        },
    .in_flight = [](const ScheduleShape& shape, int rank) { return shape.ranks - rank; },
};

}  // namespace pipetwin::schedules
