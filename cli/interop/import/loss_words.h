// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "cli/text/json_output.h"
#include "core/interop/launch/logged_losses.h"

/// The losses of a run's log, for people and programs.
namespace pipetwin::cli {

/// "10.83 at iteration 10, 7.97 at iteration 100 (10 reports)"; of a run without a number "no
/// number in 3 reports".
std::string loss_text(const LossCourse& course);

/// Sentences about reports that are no numbers, and about the largest spike; empty: there are none.
std::vector<std::string> loss_warnings(const LossCourse& course);

/// An object whose numbers are finite; null where a value is missing.
Json loss_json(const LossCourse& course);

}  // namespace pipetwin::cli
