#pragma once

#include "cli/base/options.h"
#include "core/plan/plan.h"

namespace pipetwin::cli {

/// The costs that plain numbers on the command line describe. Throws Error(Usage), naming the
/// option, for what is missing, contradictory or no number; Error(BadInput) for a schedule file
/// that cannot be read.
PlainCosts plain_costs(const PlainOptions& options);

}  // namespace pipetwin::cli
