#include <algorithm>

#include <fmt/format.h>

#include "core/schedules/generators.h"
#include "core/schedules/interleaved_order.h"

namespace pipetwin::schedules {

/// PICTURE
Schedule interleaved_zb(const ScheduleShape& shape) {
    Schedule schedule = loop_placement(shape);
    const int p = shape.ranks;
    const int m = shape.micro_batches;
    const int v = shape.chunks;
    const int rounds = std::max(1, m / p);
    require_rule(m % rounds == 0,
                 "interleaved-zb",
                 fmt::format("{} micro-batches do not divide into {} rounds", m, rounds),
                 fmt::format("take a multiple of the {} ranks", p));
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

}  // namespace pipetwin::schedules
