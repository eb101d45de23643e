// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <CLI/CLI.hpp>

#include "cli/commands/plan_options.h"

/// The options of `plan` that ask about several clusters, numbers of nodes and stacks at once.
namespace pipetwin::cli {

/// Declares deadlines, failures and the forms of the table.
void add_combinations(CLI::App& app, PlanOptions& options);

/// The first option that only a table of combinations has; empty: none is given.
std::string_view option_of_table(const PlanOptions& options);

/// Takes the lists apart into `options.combinations`, and leaves these empty where one answer is
/// asked for. Throws Error(Usage) for lists with empty, repeated or impossible entries, for
/// deadlines without tokens or in the past, and for what a table cannot have beside it;
/// Error(BadInput) for an unknown cluster or stack of several.
void complete_combinations(PlanOptions& options, const CommonOptions& common);

}  // namespace pipetwin::cli
