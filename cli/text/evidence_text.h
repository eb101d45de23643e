// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "core/costs/devices/evidence.h"

namespace pipetwin::cli {

/// Published runs that are near to a plan, with their measured and predicted rates: a heading, and
/// a line for each. Empty: there is none.
std::vector<std::string> evidence_lines(const std::vector<NearRun>& runs);

/// Published runs that are near to a plan, as JSON: rates are tokens per second of each device.
nlohmann::ordered_json evidence_json(const std::vector<NearRun>& runs);

}  // namespace pipetwin::cli
