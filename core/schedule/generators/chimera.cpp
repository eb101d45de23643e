// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "core/schedule/generators/generators.h"
#include "core/schedule/generators/list_schedule.h"
#include "core/schedule/generators/schedule_traits.h"

namespace pipetwin::schedules {

namespace {

/// Chimera: two pipelines of one model in opposite directions, each with half of the micro-batches.
/// Where one is filling the other is at work.
///
///     rank 0   0 1 . 2 c c 3 d d . a a . . b b      stage 0 of the first, stage 3 of the second
///     rank 1   . 0 2 1 3 . c c a a d d b b . .      stage 1                stage 2
///     rank 2   . 2 0 3 1 . a a c c b b d d . .      stage 2                stage 1
///     rank 3   2 3 . 0 a a 1 b b . c c . . d d      stage 3                stage 0
///
/// Micro-batches 0 and 1 go down, 2 and 3 up. Every rank holds the weights of two stages, so the
/// copies' gradients are added at the end of a step: a sum of two terms, in another order than that
/// of a single pipeline. In the schedule the second pipeline is stages p..2p-1.
///
/// The order comes from a list scheduler in which F and B take a slot each (2m + p - 2 slots), and
/// is then timed with the real costs: 3m + 2(p - 2) forwards for B = 2F. p/2 + 1 to p activations
/// are alive. p even, m = p.
///
/// Source: Li and Hoefler, "Chimera: Efficiently Training Large-Scale Neural Networks with
/// Bidirectional Pipelines".
Schedule chimera(const ScheduleShape& shape, const GeneratorOptions&) {
    require_one_chunk(shape, "chimera");
    const int p = shape.ranks;
    const int m = shape.micro_batches;
    require_rule(p % 2 == 0,
                 "chimera",
                 fmt::format("needs an even number of ranks, got {}", p),
                 {"set {}", {{"pipeline.stages", fmt::to_string(p + 1)}}});
    require_rule(m == p,
                 "chimera",
                 fmt::format("needs as many micro-batches as ranks ({}), got {}", p, m),
                 {"set {}; the paper runs more of them as several such units, one behind the "
                  "other, which are not generated",
                  {{"pipeline.micro_batches", fmt::to_string(p)}}});
    Schedule schedule = loop_placement(shape);
    for (int stage = 0; stage < p; ++stage) {  // the second pipeline, with the same weights
        schedule.rank_of_stage.push_back(p - 1 - stage);
        schedule.weights_of_stage.push_back(stage);
    }
    list_schedule(schedule, p, [p, m](int k) { return k < m / 2 ? 0 : p; });
    return schedule;
}

}  // namespace

const ScheduleTraits chimera_traits{
    .name = "chimera",
    .generate = chimera,
    .placement = StagePlacement::BothWays,
    .split = BackwardSplit::Never,
    .searched = Searched::Yes,
};

}  // namespace pipetwin::schedules
