// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "cli/base/console.h"
#include "cli/text/json_output.h"
#include "core/costs/profile.h"
#include "sim/search/hybrid.h"

/// PipeDream's distribution of layers over devices, as text and as JSON.
namespace pipetwin::cli {

/// The distribution as text, beside the best plan of the search.
std::string hybrid_text(const sim::Hybrid& hybrid,
                        const sim::FoundPlan& best,
                        const Profile& profile,
                        const Console& console);

/// The distribution as JSON.
Json hybrid_json(const sim::Hybrid& hybrid);

}  // namespace pipetwin::cli
