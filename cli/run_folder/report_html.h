#pragma once

#include <string>
#include <string_view>

#include "cli/run_folder/finished_run.h"

namespace pipetwin::cli {

/// One page that needs nothing else: headline, both timelines as pictures, tables, learning curve
/// and scenario.
std::string report_html(const FinishedRun& run);

/// `text` with the characters that mean something in HTML replaced.
std::string html_escaped(std::string_view text);

}  // namespace pipetwin::cli
