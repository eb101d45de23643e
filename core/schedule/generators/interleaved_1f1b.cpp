// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include <fmt/format.h>

#include "core/base/error.h"
#include "core/base/number_text.h"
#include "core/schedule/generators/generators.h"
#include "core/schedule/generators/interleaved_order.h"

namespace pipetwin::schedules {

namespace {

/// True if each of the groups has a micro-batch for every rank, the last one included.
bool fills_all_ranks(int micro_batches, int group_size, int ranks) {
    const int last = micro_batches % group_size;
    return group_size >= ranks && (last == 0 || last >= ranks);
}

/// The smallest group size that fills all ranks; all micro-batches where there are too few.
int smallest_group_size(int micro_batches, int ranks) {
    int size = std::min(micro_batches, ranks);
    while (size < micro_batches && !fills_all_ranks(micro_batches, size, ranks)) {
        ++size;
    }
    return size;
}

/// Interleaved 1F1B: the model is cut into more pieces than there are ranks, and every rank holds
/// several of them, a loop apart.
///
///     rank 0   0 1 2 0 1 2 3 4 . . a a 5 b b 3 c c 4 a a 5 b b . c c . d d . e e . f f d d e e f f
///     rank 1   . 0 1 2 0 1 2 . a a 3 b b 4 c c 5 a a 3 b b 4 c c 5 d d . e e . f f d d e e f f . .
///     rank 2   . . 0 1 2 0 a a 1 b b 2 c c 3 a a 4 b b 5 c c 3 d d 4 e e 5 f f d d e e f f . . . .
///
/// Three ranks, two chunks each: micro-batches go in groups of g (here 3, the number of ranks)
/// through the first chunk, then through the second. A chunk is a v-th of a stage, and so is the
/// time in which the pipeline fills: (m v + p - 1)(F + B) per piece, against (m + p - 1)(F + B) v
/// of 1F1B. The price is v times as many messages, and min(m v, (v - 1) g + 2 (p - 1 - r) + 1) live
/// activations on rank r.
///
/// A last group of fewer micro-batches is fine as long as it has one per rank. Where the caller
/// names no group size, it is the smallest that keeps this rule: PyTorch's rounds of
/// m / max(1, m div p), where these are equal, and more numbers of micro-batches besides. Fewer
/// micro-batches than ranks are one group, as in PyTorch.
///
/// Source: Narayanan et al., "Efficient Large-Scale Language Model Training on GPU Clusters Using
/// Megatron-LM", section 2.2.2.
Schedule interleaved_1f1b(const ScheduleShape& shape, const GeneratorOptions& options) {
    Schedule schedule = loop_placement(shape);
    const int p = shape.ranks;
    const int m = shape.micro_batches;
    const int v = shape.chunks;
    const int g = interleaved_group_size(shape, options.group_size);
    require_rule(
        g >= std::min(m, p),
        "interleaved-1f1b",
        fmt::format("needs groups of at least as many micro-batches as ranks ({}), got {}", p, g),
        {"set {} or more", {{"pipeline.group_size", fmt::to_string(p)}}});
    require_rule(m < p || fills_all_ranks(m, g, p),
                 "interleaved-1f1b",
                 fmt::format("{} in groups of {} {} a last group of {}, smaller than the {} ranks",
                             counted(m, "micro-batch"),
                             g,
                             verb_for(m, "leaves", "leave"),
                             m % g,
                             p),
                 {fmt::format("set {{}}, or take a multiple of {} micro-batches", g),
                  {{"pipeline.group_size", fmt::to_string(smallest_group_size(m, p))}}});
    const InterleavedOrder order(m, v, g);
    const int all = m * v;
    fill_rows(schedule, [&](int rank, RowWriter& row) {
        const auto forward = [&](int k) {
            row.add(Op::Forward, order.forward(k).chunk, order.forward(k).micro_batch);
        };
        const int warm_up = std::min(all, (v - 1) * g + 2 * (p - 1 - rank));
        for (int k = 0; k < warm_up; ++k) {
            forward(k);
        }
        for (int k = 0; k < all; ++k) {
            if (warm_up + k < all) {
                forward(warm_up + k);
            }
            row.add(Op::Backward, order.backward(k).chunk, order.backward(k).micro_batch);
        }
    });
    return schedule;
}

}  // namespace

const ScheduleTraits interleaved_1f1b_traits{
    .name = "interleaved-1f1b",
    .torch_name = "Interleaved1F1B",
    .generate = interleaved_1f1b,
    .chunks = ChunkCounts::Several,
    .placement = StagePlacement::Loop,
    .split = BackwardSplit::Never,
    .in_megatron = true,
    .has_groups = true,
    .searched = Searched::Yes,
    .stashes =  // in groups of p, the smallest, or of all micro-batches where these are fewer
    [](const ScheduleShape& shape, int rank) {
        const int p = shape.ranks;
        const int m = shape.micro_batches;
        const int v = shape.chunks;
        return LiveStashes{std::min(m * v, (v - 1) * std::min(m, p) + 2 * (p - 1 - rank) + 1)};
    },
};

}  // namespace pipetwin::schedules

namespace pipetwin {

int interleaved_group_size(const ScheduleShape& shape, int asked) {
    return asked == 0 ? schedules::smallest_group_size(shape.micro_batches, shape.ranks)
                      : std::min(asked, shape.micro_batches);
}

}  // namespace pipetwin
