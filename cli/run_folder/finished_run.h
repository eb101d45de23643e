// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "core/costs/profile.h"
#include "core/scenario/settled_scenario.h"
#include "core/timeline/compare.h"
#include "exec/training/trainer.h"
#include "sim/questions/prediction.h"

namespace pipetwin::cli {

/// A training run that has ended, with its prediction and its measurement.
struct FinishedRun {
    std::filesystem::path folder;
    SettledScenario scenario;
    Profile profile;
    sim::Prediction prediction;
    exec::TrainingResult training;
    Comparison comparison;
};

/// Notes that a reader of the result needs about how it came about.
std::vector<std::string> notes_of(const FinishedRun& run);

}  // namespace pipetwin::cli
