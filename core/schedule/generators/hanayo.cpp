// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include <fmt/format.h>

#include "core/base/number_text.h"
#include "core/schedule/generators/generators.h"
#include "core/schedule/generators/list_schedule.h"

namespace pipetwin::schedules {

namespace {

/// Hanayo with one wave: the pieces go down the ranks and up again, and actions are taken as they
/// become ready.
///
///     rank 0   0 1 2 3 . . . 0 a a 1 b b 2 c c 3 d d . . . a a . . b b . . c c . . d d
///     rank 1   . 0 1 2 3 . 0 . 1 . a a 2 b b 3 c c . . a a d d b b . . c c . . d d . .
///     rank 2   . . 0 1 2 0 3 1 . 2 . . a a 3 b b . a a c c b b d d c c . . d d . . . .
///     rank 3   . . . 0 0 1 1 2 2 3 3 . . . a a a a b b b b c c c c d d d d . . . . . .
///
/// The order comes from a list scheduler in which F and B take a slot each, and is then timed with
/// the real costs: 10 p - 4 pieces' worth of forward for B = 2F. m = p.
///
/// Source: Liu et al., "Hanayo: Harnessing Wave-like Pipeline Parallelism for Enhanced Large Model
/// Training Efficiency".
Schedule hanayo(const ScheduleShape& shape, const GeneratorOptions&) {
    require_two_chunks(shape, "hanayo");
    const int p = shape.ranks;
    require_rule(
        shape.micro_batches == p,
        "hanayo",
        fmt::format("needs as many micro-batches as ranks ({}), got {}", p, shape.micro_batches),
        {"set {}", {{"pipeline.micro_batches", fmt::to_string(p)}}});
    Schedule schedule = v_placement(shape);
    list_schedule(schedule, 2 * p, [](int) { return 0; });
    return schedule;
}

}  // namespace

const ScheduleTraits hanayo_traits{
    .name = "hanayo",
    .generate = hanayo,
    .chunks = ChunkCounts::Two,
    .placement = StagePlacement::V,
    .split = BackwardSplit::Never,
    .searched = Searched::Yes,
    .stashes = [](const ScheduleShape& shape,
                  int) { return LiveStashes{std::min(shape.micro_batches + 1, 2 * shape.ranks)}; },
};

}  // namespace pipetwin::schedules
