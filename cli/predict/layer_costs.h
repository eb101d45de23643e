// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "core/costs/profile.h"

namespace pipetwin {

class Model;
struct Scenario;

}  // namespace pipetwin

namespace pipetwin::cli {

/// What a model's layers cost on a device that need not be there: times that are estimated, and the
/// bytes that an executor would count, in the precision of the scenario. Throws Error(BadInput) for
/// a model that is known by its costs only, and for a device that is not known or has no rate at
/// that precision.
Profile estimated_costs(const Scenario& scenario, const Model& model, const std::string& device);

}  // namespace pipetwin::cli
