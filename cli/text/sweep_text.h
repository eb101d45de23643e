#pragma once

#include <string>
#include <vector>

#include "cli/predict/plain_sweep.h"
#include "cli/text/json_output.h"

/// Plans side by side, as a table, as CSV, as JSON and as one picture.
namespace pipetwin::cli {

/// A table with a row for each plan, in the order given, the fastest marked.
std::string sweep_text(const std::vector<SweepCell>& cells);

/// A line for each plan: schedule, stages, chunks, micro_batches, step_ms, bubble_total,
/// live_stashes; of scenarios also their names in front, and recompute, samples_per_second and
/// peak_bytes behind. What has no plan has empty fields.
std::string sweep_csv(const std::vector<SweepCell>& cells);

/// One object for each plan: what `sweep_csv` has, `schedule_name` and `why_not`.
Json sweep_json(const std::vector<SweepCell>& cells);

/// The timelines below each other on one time axis, those without a plan left out.
std::string sweep_svg(const std::vector<SweepCell>& cells);

}  // namespace pipetwin::cli
