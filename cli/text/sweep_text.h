// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "cli/predict/plain_sweep.h"
#include "cli/text/json_output.h"
#include "cli/text/uncertainty.h"

/// Plans side by side, as a table, as CSV, as JSON and as one picture.
namespace pipetwin::cli {

/// A table with a row for each plan, in the order given, the fastest marked. `varied` has an entry
/// for each plan.
std::string sweep_text(const std::vector<SweepCell>& cells, const std::vector<Uncertainty>& varied);

/// A line for each plan: swept keys, schedule, stages, chunks, micro_batches, step_ms,
/// bubble_total, live_stashes; of scenarios also their names in front, and recompute,
/// samples_per_second and peak_bytes behind. Where it was asked for, straggler_step_ms,
/// jitter_step_ms (the mean) and goodput_share follow. What has no plan has empty fields.
std::string sweep_csv(const std::vector<SweepCell>& cells, const std::vector<Uncertainty>& varied);

/// One object for each plan: what `sweep_csv` has, swept keys in `settings`, and `why_not`; what
/// varies as in `add_uncertainty`.
Json sweep_json(const std::vector<SweepCell>& cells, const std::vector<Uncertainty>& varied);

/// The timelines below each other on one time axis, those without a plan left out. `costs` says in
/// the title what they have in common.
std::string sweep_svg(const std::vector<SweepCell>& cells,
                      const std::string& costs,
                      const FigureLook& look = {});

}  // namespace pipetwin::cli
