// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/artifacts/measured_runs.h"
#include "core/base/units.h"
#include "core/costs/profile.h"
#include "core/scenario/scenario.h"
#include "core/scenario/settled_scenario.h"

namespace pipetwin {

class Model;

}  // namespace pipetwin

/// Measured runs as scenarios that can be simulated.
namespace pipetwin::sim {

/// A model and what its layers cost.
struct RunCosts {
    Profile profile{};
    std::shared_ptr<const Model> model{};
};

/// A measured run with the scenario that it is a run of, and its measured step.
struct SettledRun {
    std::string name{};   ///< empty: the row has none
    std::string place{};  ///< for errors
    SettledScenario scenario{};
    double step_seconds = 0;
    std::optional<Bytes> peak{};  ///< of the device that holds most
    MeasuredTimers timers{};
    /// Where it is a run of another model, or of other devices; else null.
    std::shared_ptr<const RunCosts> costs{};
    std::string warning{};  ///< what its step depends on and it does not say; empty: nothing
};

/// The scenario of a command, which the keys of a run change.
struct ScenarioSource {
    std::filesystem::path file{};
    std::vector<Override> overrides{};  ///< of the command line
    Unwritten unwritten = Unwritten::Default;
};

/// A measured run with every key settled: those that it does not name are the scenario's own. Of
/// times that it states in several ways all are within 2 % of each other. Throws Error(BadInput) at
/// the run's place for what is no key of a scenario or no value, for another model than the
/// scenario's, for what is left "auto", for times that disagree, and for a rate that the profile
/// does not say enough for.
SettledRun settled_run(const MeasuredRun& run,
                       const ScenarioSource& source,
                       const Profile& profile);

/// A measured run of a scenario, which has its keys already, otherwise as above.
SettledRun settled_run(const MeasuredRun& run, Scenario scenario, const Profile& profile);

}  // namespace pipetwin::sim
