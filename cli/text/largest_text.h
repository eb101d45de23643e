// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "cli/base/console.h"
#include "cli/text/json_output.h"
#include "core/costs/profile.h"
#include "core/costs/repeated_layers.h"
#include "sim/search/largest_model.h"

namespace pipetwin {

struct Scenario;

}  // namespace pipetwin

/// The largest model that fits, as text and as JSON.
namespace pipetwin::cli {

/// The largest model that a search found, and what it was asked for.
struct LargestAnswer {
    const Scenario& scenario;
    const Profile& profile;  ///< of the scenario's own model
    const RepeatedLayers& repeated;
    const sim::LargestModel& largest;
};

/// The error where no size fits, with the one that misses by the least.
Error nothing_fits(const LargestAnswer& answer);

/// The largest model as text.
std::string largest_text(const LargestAnswer& answer, const Console& console);

/// The largest model as JSON.
Json largest_json(const LargestAnswer& answer);

}  // namespace pipetwin::cli
