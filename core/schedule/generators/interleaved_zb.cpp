// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include <fmt/format.h>

#include "core/schedule/generators/generators.h"
#include "core/schedule/generators/interleaved_order.h"

namespace pipetwin::schedules {

namespace {

/// Interleaved 1F1B with split backwards: the weight gradients (capitals) fill the gaps.
///
///     rank 0   0 1 2 0 1 2 . . a A 3 b B 4 c C 5 a A 3 b B 4 c C 5 d D e E f F d D e E f F
///     rank 1   . 0 1 2 0 1 . a 2 b A 3 c B 4 a C 5 b A 3 c B 4 d C 5 e D f E d F e D f E F
///     rank 2   . . 0 1 2 0 a 1 b 2 c A 3 a B 4 b C 5 c A 3 d B 4 e C 5 f D d E e F f D E F
///
/// Micro-batches go through the chunks in m div p rounds. Rank r computes each weight gradient r
/// turns late. m v (F + I + W) + (p - 1) max(F, I, F + I - W) per piece, where m is a multiple of
/// p; every rank keeps p v activations.
///
/// Source: the schedule of that name in PyTorch (torch.distributed.pipelining), after Qi et al.,
/// "Zero Bubble Pipeline Parallelism".
Schedule interleaved_zb(const ScheduleShape& shape, const GeneratorOptions&) {
    Schedule schedule = loop_placement(shape);
    const int p = shape.ranks;
    const int m = shape.micro_batches;
    const int v = shape.chunks;
    const int rounds = std::max(1, m / p);
    require_rule(m % rounds == 0,
                 "interleaved-zb",
                 fmt::format("{} micro-batches do not divide into {} rounds", m, rounds),
                 {fmt::format("set {{}}, or to another multiple of the {} ranks", p),
                  {{"pipeline.micro_batches", fmt::to_string((m + p - 1) / p * p)}}});
    const InterleavedOrder order(m, v, m / rounds);
    const int all = m * v;
    fill_rows(schedule, [&](int rank, RowWriter& row) {
        const auto add = [&row](Op op, InterleavedOrder::Turn turn) {
            row.add(op, turn.chunk, turn.micro_batch);
        };
        const int warm_up = std::min(all, (v - 1) * (m / rounds) + p - 1 - rank);
        for (int k = 0; k < warm_up; ++k) {
            add(Op::Forward, order.forward(k));
        }
        int weights = 0;
        for (int k = 0; k < all; ++k) {
            if (warm_up + k < all) {
                add(Op::Forward, order.forward(warm_up + k));
            }
            add(Op::BackwardInput, order.backward(k));
            if (k >= rank) {
                add(Op::BackwardWeight, order.backward(weights++));
            }
        }
        while (weights < all) {
            add(Op::BackwardWeight, order.backward(weights++));
        }
    });
    return schedule;
}

}  // namespace

const ScheduleTraits interleaved_zb_traits{
    .name = "interleaved-zb",
    .torch_name = "InterleavedZeroBubble",
    .generate = interleaved_zb,
    .chunks = ChunkCounts::Several,
    .placement = StagePlacement::Loop,
    .split = BackwardSplit::Always,
    .searched = Searched::Yes,
    .stashes =
        [](const ScheduleShape& shape, int rank) {
            const int p = shape.ranks;
            const int m = shape.micro_batches;
            const int before = (shape.chunks - 1) * (m / std::max(1, m / p));
            const int all = std::min(m * shape.chunks, before + p);
            const int in_flight = std::min(m * shape.chunks, before + p - rank);
            return LiveStashes{.all = all, .pending = all - in_flight};
        },
};

}  // namespace pipetwin::schedules
