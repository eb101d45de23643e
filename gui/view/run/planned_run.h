// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/costs/profile.h"
#include "core/model/model.h"
#include "core/plan/plan.h"
#include "core/scenario/settled_scenario.h"

namespace pipetwin::gui {

/// The scenario, model, profile and plan of a run, from which what-ifs are made.
struct PlannedRun {
    SettledScenario scenario;
    Model model;
    Profile profile;
    Plan plan;
    bool knows_bytes = true;  ///< else its costs are estimated times, and its memory is not known
};

}  // namespace pipetwin::gui
