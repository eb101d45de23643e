// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "bench/published/published_runs.h"

#include <string>
#include <vector>

#include "core/costs/devices/measured_layout.h"

/// Published runs with stacks as corrections of their stacks.
namespace pipetwin::published {

/// A run that is predicted with a stack which other runs corrected.
struct CorrectedRun {
    std::string set;
    std::string group;  ///< of the run: stack, device, precision, model
    std::string name;
    std::string corrected_by;
    bool is_of_one_set = false;  ///< as what corrects it
    Nearness nearness{};         ///< to the nearest of these
    double error = 0;            ///< of the step, as a share: too long is above 0
    double uncorrected = 0;
    bool is_warned = false;  ///< the program says that it may be off by more than 10 %
};

/// Each run with a stack as one row that corrects each other run with the same model, stack, device
/// and precision.
std::vector<CorrectedRun> corrected_by_one(const std::vector<Set>& sets);

/// Each run with a stack, corrected by all runs of other models with the same stack, device and
/// precision; those without any are left out.
std::vector<CorrectedRun> corrected_by_other_models(const std::vector<Set>& sets);

/// The share by which nine of ten steps are off at most, either way, of runs that others of so much
/// in common correct; every set weighs the same. What `published_spread` holds, but for other
/// models: there all runs of other models correct, and else one of the same set.
double learned_spread(const std::vector<CorrectedRun>& runs, Nearness nearness);

/// Medians, shares that are warned of, and what of the errors above 10 % is, one line each.
std::string corrected_tables(const std::vector<Set>& sets);

}  // namespace pipetwin::published
