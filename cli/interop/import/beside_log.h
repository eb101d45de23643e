// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/base/console.h"
#include "cli/interop/import/importers.h"
#include "cli/text/json_output.h"
#include "sim/calibration/calibration.h"
#include "sim/questions/first_changes.h"

/// What is predicted of a run whose log was imported, beside what the log says.
namespace pipetwin::cli {

/// A timer of the log, and what is predicted for it.
struct BesideTimer {
    LoggedTimer measured{};
    double least = 0;  ///< seconds, of all ranks
    double most = 0;
};

struct BesideLog {
    LoggedRun logged;
    sim::PredictedRun predicted;  ///< with costs as estimated
    /// The costs corrected by the log; none: the reason is in `uncorrected`.
    std::optional<sim::Calibration> calibration{};
    std::string uncorrected{};
    std::vector<BesideTimer> timers{};  ///< those that have a meaning here
    sim::FirstChanges changes{};        ///< with corrected costs, where they are
};

/// Predicts the run of a log, and what single changes would make of it. The imported scenario and
/// its costs are in their files. None where nothing was measured, or where the scenario does not
/// say all of the run: then a note says what is missing.
std::optional<BesideLog> beside_log(Imported& imported, const ImportOptions& options);

/// Lines for people.
std::string beside_text(const BesideLog& beside, const ImportOptions& options);

/// The value of the key "log".
Json beside_json(const BesideLog& beside);

}  // namespace pipetwin::cli
