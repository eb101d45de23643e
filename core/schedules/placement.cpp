#include <fmt/format.h>

#include "core/error.h"
#include "core/schedules/generators.h"

namespace pipetwin::schedules {

/// Three ranks, two chunks - every micro-batch goes round twice:
///
///     rank 0   stage 0   stage 3
///     rank 1   stage 1   stage 4
///     rank 2   stage 2   stage 5
Schedule loop_placement(const ScheduleShape& shape) {
    check_shape(shape);
    Schedule schedule;
    schedule.micro_batches = shape.micro_batches;
    for (int stage = 0; stage < shape.ranks * shape.chunks; ++stage) {
        schedule.rank_of_stage.push_back(stage % shape.ranks);
        schedule.weights_of_stage.push_back(stage);
    }
    schedule.ranks.resize(static_cast<std::size_t>(shape.ranks));
    const auto actions_per_row =
        2 * static_cast<std::size_t>(shape.chunks) * static_cast<std::size_t>(shape.micro_batches);
    for (auto& row : schedule.ranks) {
        row.reserve(actions_per_row);
    }
    return schedule;
}

void require_one_chunk(const ScheduleShape& shape, std::string_view name) {
    if (shape.chunks != 1) {
        throw Error(ErrorKind::Infeasible,
                    "",
                    fmt::format("{}: one chunk per rank, got {}", name, shape.chunks),
                    "set chunks = 1");
    }
}

}  // namespace pipetwin::schedules
