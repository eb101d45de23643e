// SPDX-License-Identifier: Apache-2.0
#include "core/schedule/generators/generators.h"

namespace pipetwin::schedules {

namespace {

/// Breadth-first: each rank sends all micro-batches through its first chunk before it turns to the
/// next, and comes back the same way.
///
///     rank 0   0 1 2 3 0 1 2 3 . . . . . . d d c c b b a a d d c c b b a a
///     rank 1   . 0 1 2 3 0 1 2 3 . . . d d c c b b a a d d c c b b a a . .
///     rank 2   . . 0 1 2 3 0 1 2 3 d d c c b b a a d d c c b b a a . . . .
///
/// GPipe with the short bubble of chunks. A rank uses one chunk's weights for m actions in a row,
/// so weights that are spread over replicas are gathered once per chunk; it keeps all m v
/// activations. With m < p a rank waits for the others after every chunk.
///
/// Source: Lamy-Poirier, "Breadth-First Pipeline Parallelism".
Schedule looped_bfs(const ScheduleShape& shape, const GeneratorOptions&) {
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

}  // namespace

const ScheduleTraits looped_bfs_traits{
    .name = "looped-bfs",
    .torch_name = "LoopedBFS",
    .generate = looped_bfs,
    .chunks = ChunkCounts::Several,
    .placement = StagePlacement::Loop,
    .split = BackwardSplit::Never,
    .searched = Searched::Yes,
    .stashes = [](const ScheduleShape& shape,
                  int) { return LiveStashes{shape.micro_batches * shape.chunks}; },
};

}  // namespace pipetwin::schedules
