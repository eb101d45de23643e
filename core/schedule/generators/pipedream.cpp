// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "core/schedule/generators/generators.h"

namespace pipetwin::schedules {

namespace {

/// PipeDream and PipeDream-2BW: 1F1B that never flushes. New mini-batches enter while older ones
/// are on their way back, so in the long run there is no bubble at all.
///
///     rank 0   0 1 2 3 . . . . . . a a 4 b b 5 c c . d d ...      this is what a finite stretch of
///     rank 1   . 0 1 2 . . . . a a 3 b b 4 c c 5 d d . e ...      it looks like; the end is not
///     rank 2   . . 0 1 . . a a 2 b b 3 c c 4 d d 5 e e . ...      drained in a real run
///     rank 3   . . . 0 a a 1 b b 2 c c 3 d d 4 e e 5 f f ...
///
/// The price is that a gradient belongs to weights that have been updated since. PipeDream keeps a
/// version of the weights for each micro-batch under way and updates after every one of them; 2BW
/// accumulates at least p of them and keeps two versions. Both train something else than GPipe
/// does, so they are simulated only.
///
/// Source: Narayanan et al., "PipeDream: Generalized Pipeline Parallelism for DNN Training", and
/// "Memory-Efficient Pipeline-Parallel DNN Training".
Schedule pipedream(const ScheduleShape& shape, const GeneratorOptions& options) {
    require_one_chunk(shape, "pipedream");
    return one_f_one_b_traits.generate(shape, options);
}

/// PipeDream-2BW: the same rows.
Schedule pipedream_2bw(const ScheduleShape& shape, const GeneratorOptions& options) {
    require_one_chunk(shape, "pipedream-2bw");
    return one_f_one_b_traits.generate(shape, options);
}

}  // namespace

const ScheduleTraits pipedream_traits{
    .name = "pipedream",
    .generate = pipedream,
    .placement = StagePlacement::OnePerRank,
    .split = BackwardSplit::Never,
    .stale_gradients = true,
};

const ScheduleTraits pipedream_2bw_traits{
    .name = "pipedream-2bw",
    .generate = pipedream_2bw,
    .placement = StagePlacement::OnePerRank,
    .split = BackwardSplit::Never,
    .stale_gradients = true,
};

}  // namespace pipetwin::schedules
