// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "cli/base/options.h"
#include "cli/base/plain_options.h"
#include "cli/base/swept_keys.h"
#include "cli/predict/plain_sweep.h"

/// Several scenarios, or a scenario with lists of schedules, stages and micro-batches, side by
/// side.
namespace pipetwin {

struct SettledScenario;

}  // namespace pipetwin

namespace pipetwin::cli {

/// Options of `sweep`.
struct SweepOptions {
    CommonOptions common;
    std::vector<std::filesystem::path> scenarios;  ///< empty: plain numbers
    std::filesystem::path profile;                 ///< of all scenarios
    std::optional<std::string> stack;              ///< of all scenarios
    PlainOptions plain;
    SweepFiles files{};
    std::vector<SweptKey> swept{};  ///< of all scenarios
};

/// The schedule and the shape of a cell's plan.
void set_shape(SweepCell& cell, const SettledScenario& scenario);

/// Every scenario with every combination of swept keys and of the lists, in the order of the
/// command line; what is not listed is as the scenario says. A schedule of a list has as many
/// chunks as it needs: one, two, or those of --chunks, else of the scenario, else two. Throws
/// Error(BadInput) where a scenario cannot be read, Error(Usage) for schedules that there are none
/// of, and Error(Infeasible) where no combination is a plan.
std::vector<SweepCell> sweep_scenarios(const SweepOptions& options);

}  // namespace pipetwin::cli
