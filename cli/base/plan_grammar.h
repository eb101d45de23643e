// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include <CLI/CLI.hpp>

#include "cli/base/options.h"
#include "cli/base/plain_options.h"

/// Declarations of the options of `simulate` and `sweep`: plans, their costs, what varies.
namespace pipetwin::cli {

/// Group of the help with the options that replace a scenario.
inline constexpr const char* costs_group = "Costs on the command line, instead of a scenario";

/// A list is one word, whose entries have commas between them: the word behind it is a scenario.
/// The option can be repeated.
void take_one_word(CLI::Option& list);

/// The options that name a plan, or several to compare, in a group of the help.
void add_plans(CLI::App& app,
               const std::string& group,
               std::string_view default_schedules,
               PlainOptions& plain,
               SweepFiles& files);

/// The other options of plain numbers: keys of [pipeline], and costs.
void add_costs(CLI::App& app, PlainOptions& plain);

/// The options of variation and failures.
void add_uncertain(CLI::App& app, UncertaintyOptions& options);

}  // namespace pipetwin::cli
