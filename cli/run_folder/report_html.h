// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "cli/run_folder/finished_run.h"

namespace pipetwin::cli {

/// One page that needs nothing else: headline, both timelines as pictures, tables, learning curve
/// and scenario.
std::string report_html(const FinishedRun& run);

}  // namespace pipetwin::cli
