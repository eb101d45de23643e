#include <algorithm>

#include <fmt/format.h>

#include "core/error.h"
#include "core/schedules/generators.h"
#include "core/schedules/interleaved_order.h"

namespace pipetwin::schedules {

/// PICTURE
Schedule interleaved_1f1b(const ScheduleShape& shape, int group_size) {
    Schedule schedule = loop_placement(shape);
    const int p = shape.ranks;
    const int m = shape.micro_batches;
    const int v = shape.chunks;
    const int g = group_size == 0 ? p : group_size;
    require_rule(
        g >= p,
        "interleaved-1f1b",
        fmt::format("a group has at least one micro-batch per rank, got {} for {} ranks", g, p),
        fmt::format("give a group size of {} or more", p));
    require_rule(m % g == 0 || m % g >= p,
                 "interleaved-1f1b",
                 fmt::format("{} micro-batches in groups of {} leave a last group of {}, smaller "
                             "than the {} ranks",
                             m,
                             g,
                             m % g,
                             p),
                 fmt::format("take a multiple of {} micro-batches", g));
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

}  // namespace pipetwin::schedules
