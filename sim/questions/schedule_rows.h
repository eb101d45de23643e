// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/costs/profile.h"
#include "core/schedule/lower.h"
#include "core/schedule/schedule.h"
#include "sim/questions/found_profile.h"

namespace pipetwin {

struct SettledScenario;

}  // namespace pipetwin

/// Rows of a schedule without costs: those of a file, or what a scenario says about its pipeline.
namespace pipetwin::sim {

/// The costs that decide which messages a scenario's rows have: those of a model with branches
/// whose partition is open, and those of a model of kind "profile", whose layers they name. None
/// where the messages need no costs or the costs are not known. Throws as `known_profile`.
std::optional<FoundProfile> profile_for_rows(const SettledScenario& scenario,
                                             const std::filesystem::path& option = {},
                                             const std::filesystem::path& folder = {});

/// The order of a scenario's pipeline, with the skips that its model's branches make; rows of a
/// file that have messages already stand as they are. The layers of a model of kind "profile" are
/// those of `profile`; without it the model counts as a chain. A partition that is open is the one
/// that the costs of `profile` give, or without them the one of layers that cost the same. Throws
/// as `scenario_schedule` and as `scenario_partition`.
Schedule scenario_order(const SettledScenario& scenario, const Profile* profile = nullptr);

/// The rows that a scenario would run, without the updates: `scenario_order` with its messages and
/// recomputes. An order that depends on costs is that of unit costs. Throws as `scenario_order`,
/// and Error(BadInput) where a key that it needs is "auto".
Schedule scenario_rows(const SettledScenario& scenario,
                       const Profile* profile = nullptr,
                       MessageQueues queues = MessageQueues::PerStages);

/// When the recomputes of a schedule file run that has no communication of its own.
RecomputeTiming timing_of_files();

/// Adds the communication that the executor would add; the schedule's own stays where it has any.
Schedule with_communication(Schedule schedule,
                            RecomputeTiming timing,
                            MessageQueues queues = MessageQueues::PerStages);

/// Adds the communication as `with_communication` does, and proves that the schedule runs. Throws
/// Error(Infeasible) with every broken rule, or with the actions that wait on each other. The order
/// of the messages is checked only once they are there.
Schedule runnable(Schedule schedule,
                  RecomputeTiming timing,
                  std::string_view place,
                  MessageQueues queues = MessageQueues::PerStages);

/// Sentences on what the scenario asks for and its rows cannot be, as `shape_notes`, and on a
/// partition that `scenario_order` had to assume.
std::vector<std::string> notes_on_rows(const SettledScenario& scenario,
                                       const Profile* profile = nullptr);

}  // namespace pipetwin::sim
