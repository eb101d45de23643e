// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "core/base/as_index.h"
#include "core/base/error.h"
#include "core/schedule/generators/generators.h"

namespace pipetwin::schedules {

namespace {

/// A grid whose stage s lies on rank_of(s).
template <class RankOf>
Schedule placement(const ScheduleShape& shape, RankOf rank_of) {
    check_shape(shape);
    Schedule schedule;
    schedule.micro_batches = shape.micro_batches;
    for (int stage = 0; stage < shape.ranks * shape.chunks; ++stage) {
        schedule.rank_of_stage.push_back(rank_of(stage));
        schedule.weights_of_stage.push_back(stage);
    }
    schedule.ranks.resize(as_index(shape.ranks));
    return schedule;
}

void require_chunks(const ScheduleShape& shape, int chunks, std::string_view name) {
    require_rule(
        shape.chunks == chunks,
        name,
        fmt::format(
            "needs {} per rank, got {}", chunks == 1 ? "one chunk" : "two chunks", shape.chunks),
        {"set {}", {{"pipeline.chunks", fmt::to_string(chunks)}}});
}

}  // namespace

/// Three ranks, two chunks - every micro-batch goes round twice:
///
///     rank 0   stage 0   stage 3
///     rank 1   stage 1   stage 4
///     rank 2   stage 2   stage 5
Schedule loop_placement(const ScheduleShape& shape) {
    return placement(shape, [&shape](int stage) { return stage % shape.ranks; });
}

/// Three ranks - every micro-batch goes down and up again:
///
///     rank 0   stage 0   stage 5
///     rank 1   stage 1   stage 4
///     rank 2   stage 2   stage 3
Schedule v_placement(const ScheduleShape& shape) {
    return placement(
        shape, [p = shape.ranks](int stage) { return stage < p ? stage : 2 * p - 1 - stage; });
}

void fill_rows(Schedule& schedule, const std::function<void(int rank, RowWriter& row)>& write) {
    std::vector<std::vector<int>> stages(schedule.ranks.size());
    for (int stage = 0; stage < schedule.stage_count(); ++stage) {
        const int rank = schedule.rank_of_stage[as_index(stage)];
        stages[as_index(rank)].push_back(stage);
    }
    for (int rank = 0; rank < schedule.rank_count(); ++rank) {
        const std::size_t index = as_index(rank);
        RowWriter row(schedule.ranks[index], std::move(stages[index]));
        write(rank, row);
    }
}

void require_one_chunk(const ScheduleShape& shape, std::string_view name) {
    require_chunks(shape, 1, name);
}

void require_two_chunks(const ScheduleShape& shape, std::string_view name) {
    require_chunks(shape, 2, name);
}

void require_rule(bool holds, std::string_view name, std::string_view rule, const Hint& hint) {
    if (!holds) {
        throw Error(ErrorKind::Infeasible, std::string(name), std::string(rule), hint)
            .about("pipeline.schedule")
            .because(ErrorReason::ScheduleRule);
    }
}

}  // namespace pipetwin::schedules
