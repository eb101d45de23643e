#include <fmt/format.h>

#include "core/schedules/generators.h"
#include "core/schedules/list_schedule.h"

namespace pipetwin::schedules {

/// PICTURE
Schedule chimera(const ScheduleShape& shape) {
    require_one_chunk(shape, "chimera");
    const int p = shape.ranks;
    const int m = shape.micro_batches;
    require_rule(p % 2 == 0,
                 "chimera",
                 fmt::format("an even number of ranks, got {}", p),
                 "take one rank more or less");
    require_rule(m == p,
                 "chimera",
                 fmt::format("one micro-batch per rank, got {} for {} ranks", m, p),
                 fmt::format("take {} micro-batches", p));
    Schedule schedule = loop_placement(shape);
    for (int stage = 0; stage < p; ++stage) {  // the second pipeline, with the same weights
        schedule.rank_of_stage.push_back(p - 1 - stage);
        schedule.weights_of_stage.push_back(stage);
    }
    list_schedule(schedule, p, [p, m](int k) { return k < m / 2 ? 0 : p; });
    return schedule;
}

}  // namespace pipetwin::schedules
