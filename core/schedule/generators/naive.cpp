// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "core/base/error.h"
#include "core/schedule/generators/generators.h"

namespace pipetwin::schedules {

namespace {

/// Naive model parallelism: the mini-batch goes through the stages in one piece, and one rank works
/// at a time.
///
///     rank 0   0 . . . . . . . . . a a
///     rank 1   . 0 . . . . . . a a . .
///     rank 2   . . 0 . . . a a . . . .          0 forward, a backward (twice as long)
///     rank 3   . . . 0 a a . . . . . .
///
/// It is what GPipe improves on, and GPipe with a single micro-batch. p ranks take p (F + B); each
/// of them is idle for the share 1 - 1/p of it.
Schedule naive(const ScheduleShape& shape, const GeneratorOptions& options) {
    check_shape(shape);
    require_rule(
        shape.micro_batches == 1,
        "naive",
        fmt::format("needs one micro-batch, got {}", shape.micro_batches),
        {"set {}, or {}", {{"pipeline.micro_batches", "1"}, {"pipeline.schedule", "\"gpipe\""}}});
    require_one_chunk(shape, "naive");
    return gpipe_traits.generate(shape, options);
}

}  // namespace

const ScheduleTraits naive_traits{
    .name = "naive",
    .generate = naive,
    .placement = StagePlacement::OnePerRank,
    .split = BackwardSplit::Never,
};

}  // namespace pipetwin::schedules
