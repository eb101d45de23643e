// SPDX-License-Identifier: Apache-2.0
#include "core/schedule/generators/generators.h"
#include "core/schedule/generators/schedule_traits.h"

namespace pipetwin::schedules {

namespace {

/// Inference, or the validation at the end of an epoch: nothing comes back.
///
///     rank 0   0 1 2 3 4 5 . . .
///     rank 1   . 0 1 2 3 4 5 . .
///     rank 2   . . 0 1 2 3 4 5 .
///     rank 3   . . . 0 1 2 3 4 5
///
/// (m + p - 1) F. It cannot train.
Schedule forward_only(const ScheduleShape& shape, const GeneratorOptions&) {
    require_one_chunk(shape, "forward-only");
    Schedule schedule = loop_placement(shape);
    fill_rows(schedule, [&shape](int, RowWriter& row) {
        for (int k = 0; k < shape.micro_batches; ++k) {
            row.next(Op::Forward);
        }
    });
    return schedule;
}

}  // namespace

const ScheduleTraits forward_only_traits{
    .name = "forward-only",
    .generate = forward_only,
    .placement = StagePlacement::OnePerRank,
    .split = BackwardSplit::Never,
    .trains = false,
};

}  // namespace pipetwin::schedules
