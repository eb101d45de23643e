#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "cli/predict/prediction.h"
#include "core/costs/profile.h"
#include "core/scenario/settled_scenario.h"
#include "core/timeline/compare.h"
#include "exec/training/trainer.h"

namespace pipetwin::cli {

/// Both sides of one training run.
struct FinishedRun {
    std::filesystem::path folder;
    SettledScenario scenario;
    Profile profile;
    Prediction prediction;
    exec::TrainingResult training;
    Comparison comparison;
};

/// What a reader of the result has to know of how it came about.
std::vector<std::string> notes_of(const FinishedRun& run);

}  // namespace pipetwin::cli
