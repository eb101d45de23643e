// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/base/units.h"
#include "core/costs/profile.h"
#include "core/plan/pipeline_settings.h"
#include "core/plan/plan.h"
#include "core/schedule/generators/generate.h"
#include "core/schedule/recompute.h"
#include "core/schedule/schedule.h"

namespace pipetwin {

/// Plain numbers: uniform or per-stage costs without a model, and the settings of their pipeline.
/// Without a model partition, all_reduce and what recomputes layers change nothing.
struct PlainCosts : PipelineSettings {
    PlainCosts() { receives = Receives::Blocking; }

    ScheduleKind schedule = ScheduleKind::GPipe;
    std::optional<Schedule> schedule_from_file;  ///< takes the place of `schedule`
    std::string schedule_name{default_schedule};
    ScheduleShape shape;
    std::vector<Duration> forward;  ///< one per stage
    std::vector<Duration> backward;
    std::vector<Duration> backward_input;  ///< empty: halves of backward
    std::vector<Duration> backward_weight;
    std::vector<Duration> recompute_cost;  ///< empty: as forward
    RecomputeRules recompute;
    std::optional<RecomputeTiming> recompute_timing;  ///< none: the default of `schedule`
    LinkCost link;
    Bytes boundary;  ///< of every message
    /// Pieces of the model, no neighbours, of which the later one reads an output of the earlier
    /// one. Those of `schedule_from_file` stand in its rows.
    std::vector<StagePair> skips{};
};

/// Makes a plan from plain numbers. Throws Error(BadInput) if a list does not have one entry per
/// stage, Error(Infeasible) as Plan::make. Rows of a file, and those whose W are put off, are
/// checked against the rules whatever `rows` says.
Plan make_plan(const PlainCosts& costs, RowsFrom rows = RowsFrom::Anywhere);

}  // namespace pipetwin
