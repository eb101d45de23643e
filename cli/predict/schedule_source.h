#pragma once

#include <filesystem>
#include <string_view>

#include "core/scenario/settled_scenario.h"
#include "core/schedule/lower.h"
#include "core/schedule/schedule.h"

/// Schedules without costs: from a file of cells, or from what a scenario says about its pipeline.
namespace pipetwin::cli {

/// The rows that a scenario would run, without the updates. An order that depends on costs is that
/// of unit costs. Throws as `scenario_schedule`, and Error(BadInput) where a key that it needs is
/// "auto".
Schedule scenario_rows(const SettledScenario& scenario);

/// Reads a schedule file as it is, which may be no valid one; "-" is standard input. A file of too
/// many cells is refused before any of it is kept. Throws as `parse_schedule_csv` and `read_file`.
Schedule read_schedule_file(const std::filesystem::path& file);

/// When the recomputes of a schedule file run that has no communication of its own.
RecomputeTiming timing_of_files();

/// Adds the communication that the executor would add; the schedule's own stays where it has any.
Schedule with_communication(Schedule schedule, RecomputeTiming timing);

/// Adds the communication as `with_communication` does, and proves that the schedule runs. Throws
/// Error(Infeasible) with every broken rule, or with the actions that wait on each other. The order
/// of the messages is checked only once they are there.
Schedule runnable(Schedule schedule, RecomputeTiming timing, std::string_view place);

/// Sentences on what the scenario asks for and its rows cannot be, as `shape_notes`.
std::vector<std::string> notes_on_rows(const SettledScenario& scenario);

}  // namespace pipetwin::cli
