// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "cli/text/json_output.h"
#include "sim/questions/outlook.h"

/// What the number of devices costs a plan, and where its numbers come from.
namespace pipetwin::cli {

/// Where the numbers of a plan come from: range, published runs with their sources, the loss by
/// scale; a line or more for each.
std::vector<std::string> outlook_sources(const sim::Outlook& outlook);

/// What the number of devices costs, and what published runs lost; empty for few devices.
std::vector<std::string> scale_lines(const sim::Outlook& outlook);

/// The loss by scale as JSON; null: costs are not of a stack.
Json scale_json(const sim::Outlook& outlook);

}  // namespace pipetwin::cli
