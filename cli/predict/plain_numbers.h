// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "cli/base/plain_options.h"
#include "core/plan/plain_plan.h"
#include "core/schedule/generators/generate.h"

namespace pipetwin::cli {

/// Throws Error(Usage) for the first option that takes the place of a scenario, beside `scenario`.
[[noreturn]] void refuse_beside_scenario(const PlainOptions& options,
                                         const std::filesystem::path& scenario,
                                         const std::vector<Override>& overrides);

/// The costs that plain numbers on the command line describe. Throws Error(Usage), naming the
/// option, for what is missing, contradictory or no number; Error(BadInput) for a schedule file
/// that cannot be read.
PlainCosts plain_costs(const PlainOptions& given);

/// The schedule of a name that --schedule gives. Throws Error(Usage) for an unknown one; a name
/// with a dot or a slash is meant as a file.
ScheduleKind asked_schedule(const std::string& name);

/// The numbers between the commas of an option's text. Throws Error(Usage) for what is no number of
/// zero or more.
std::vector<double> numbers(const std::string& text, std::string_view option);

}  // namespace pipetwin::cli
