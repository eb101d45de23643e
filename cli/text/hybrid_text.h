#pragma once

#include <string>

#include "cli/base/console.h"
#include "cli/text/json_output.h"
#include "core/costs/profile.h"
#include "sim/search/hybrid.h"

/// PipeDream's distribution of layers over devices, as text and as JSON.
namespace pipetwin::cli {

std::string hybrid_text(const sim::Hybrid& hybrid,
                        const sim::FoundPlan& best,
                        const Profile& profile,
                        const Console& console);

Json hybrid_json(const sim::Hybrid& hybrid);

}  // namespace pipetwin::cli
