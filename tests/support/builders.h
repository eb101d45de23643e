// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/plan/plain_plan.h"
#include "core/plan/plan.h"
#include "core/schedule/generators/generate.h"

/// Small schedules and plans for tests.
namespace pipetwin::testing {

/// A plan without a model: every stage alike.
struct Uniform {
    ScheduleKind kind = ScheduleKind::GPipe;
    int ranks = 1;
    int micro_batches = 1;
    Duration forward = std::chrono::milliseconds(10);
    Duration backward = std::chrono::milliseconds(20);
    std::optional<Duration> recompute_cost{};  ///< as forward
    RecomputeRules recompute = Recompute::None;
    RecomputeTiming timing = RecomputeTiming::Eager;
    Duration latency{};
    double bytes_per_second = 0;
    Bytes boundary{};
    std::optional<int> capacity{};
};

PlainCosts uniform_costs(const Uniform& what);
Plan uniform_plan(const Uniform& what);
Plan uniform_plan(
    ScheduleKind kind, int ranks, int micro_batches, Duration forward, Duration backward);

/// One forward and one backward per stage.
PlainCosts staged_costs(ScheduleKind kind,
                        int micro_batches,
                        std::vector<Duration> forward,
                        std::vector<Duration> backward);

/// Generated, with recompute, communication, reduction where there are two pipelines, and OPT.
Schedule lowered(ScheduleKind kind,
                 const ScheduleShape& shape,
                 const RecomputeRules& recompute = Recompute::None,
                 RecomputeTiming timing = RecomputeTiming::Eager);

struct ShapedSchedule {
    ScheduleKind kind;
    ScheduleShape shape;
};

/// "zb-v, 4 ranks, 2 chunks, 8 micro-batches".
std::string to_string(const ShapedSchedule& schedule);

/// True if the weight halves of every stage take the micro-batches in the order of its input
/// halves; a whole backward is both.
bool weights_follow_inputs(const Schedule& schedule);

/// Every schedule that can be generated, in each of these shapes that it takes: one at least.
std::vector<ShapedSchedule> every_schedule(const std::vector<int>& ranks,
                                           const std::vector<int>& chunks,
                                           const std::vector<int>& micro_batches);

/// A schedule from rows of cells, "0F0 0SEND_F0 0B0": one string per rank. Stages and micro-batches
/// are those that occur.
Schedule schedule_of(std::initializer_list<std::string_view> rows);

/// "1SEND_F2" to its action.
Action action_of(std::string_view text);

/// "0F0 0SEND_F0": the row of a rank, for comparing and printing.
std::string row_text(const Schedule& schedule, int rank);

}  // namespace pipetwin::testing
