#pragma once

#include <string>

#include "cli/base/console.h"
#include "cli/text/json_output.h"
#include "core/costs/profile.h"
#include "sim/search/hybrid.h"

/// How PipeDream would share the devices out, for people and for programs.
namespace pipetwin::cli {

std::string hybrid_text(const sim::Hybrid& hybrid,
                        const sim::FoundPlan& best,
                        const Profile& profile,
                        const Console& console);

Json hybrid_json(const sim::Hybrid& hybrid);

}  // namespace pipetwin::cli
