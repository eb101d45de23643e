// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/base/units.h"
#include "core/costs/cost_factors.h"
#include "core/costs/profile.h"
#include "sim/calibration/rank_times.h"
#include "sim/calibration/settled_runs.h"

namespace pipetwin {

class Model;

}  // namespace pipetwin

/// Costs corrected by measured runs.
namespace pipetwin::sim {

/// Predictions of runs by others that are further off than this share are warned of.
inline constexpr double large_error = 0.1;

/// A step and a peak that are simulated.
struct PredictedRun {
    double step = 0;  ///< seconds
    Bytes peak{};     ///< of the rank that holds most
    bool fits = true;
    std::vector<int> partition{};
    RankTimes times{};  ///< the most over the ranks
};

/// Throws as make_settled_plan, at `place`.
PredictedRun predicted_run(const std::string& place,
                           const SettledScenario& scenario,
                           const Model& model,
                           const Profile& profile);

/// What tells a reader which configuration a run is taken for: "2 stages, 1 replica, 2 devices, 8
/// micro-batches, ..."
std::string setup_text(const SettledScenario& scenario);

/// What is predicted of a measured run, before and after.
struct CalibratedRun {
    std::string name{};        ///< its own, or "run 2"
    std::string setup{};       ///< as `setup_text`
    MeasuredLayout layout{};   ///< with how far the others' prediction is off
    double measured_step = 0;  ///< seconds, as the next two
    double predicted_step = 0;
    double calibrated_step = 0;
    std::optional<Bytes> measured_peak{};  ///< of the device that holds most, as the next two
    Bytes predicted_peak{};
    Bytes calibrated_peak{};
    bool fits = true;  ///< the calibrated peak, into the memory of its devices
    /// By how much its step is predicted too long, as a share, with the factor that all other runs
    /// together have; none where there is no other.
    std::optional<double> leave_one_out_error{};
    /// By how much its peak is predicted too large, as a share, with the memory factor of all other
    /// runs that state one; none where it states none, or no other does.
    std::optional<double> leave_one_out_peak_error{};
};

/// The factors that make predictions those of measured runs.
struct Calibration {
    double compute_factor = 1;
    std::optional<double> memory_factor{};  ///< none: no run says what its devices held
    /// On times of messages; none: no run has timers of its layers that go with its step.
    std::optional<double> messages_factor{};
    std::optional<double> update_factor{};  ///< of the optimizer; likewise, of its pipeline
    std::vector<CalibratedRun> runs{};
    std::vector<std::string> warnings{};  ///< sentences on what is implausible
};

/// Finds two factors (`with_factors`) so that the steps of the runs, and the peaks of those that
/// state one, are predicted right: one run exactly, of several the median of the logarithms of
/// predicted by measured is 0, so one odd run of three does not decide. Runs with costs of their
/// own decide only where none is of the model, device and precision of `profile`; each kind of them
/// counts as its median. No factor falls where a measured value grows: a distance from what is
/// predicted falls with it, and the median of distances with each of them. Transfers, sums between
/// devices and the optimizer's update stay as predicted.
///
/// Where runs have timers (`MeasuredTimers`), the factor of layers makes what they take right,
/// forwards and backwards together on the rank that has most. Then a factor from 1/8 to 8 on
/// messages makes the pipeline right, or the step where no timer says how long the pipeline takes;
/// and one from 1/10 to 10 on the optimizer's update makes the step right, where a timer does.
/// Timers with which no such factor gives the measured times are left out, with a warning.
/// Throws Error(BadInput) at the place of a run whose step is no longer than what stays takes, or
/// whose peak is no larger, and where no factor from 1/1000 to 1000 gives the measured values; as
/// make_settled_plan for a run that is no plan.
Calibration calibrate_by_runs(const std::vector<SettledRun>& runs,
                              const Model& model,
                              const Profile& profile);

/// Returns the profile with the costs that a calibration found, and with a note of it
/// (`Profile::run_calibrations`).
Profile calibrated_profile(const Profile& profile, const Calibration& calibration);

}  // namespace pipetwin::sim
