// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "core/text/override.h"

namespace pipetwin {

struct Scenario;

/// A scenario that a program has begun, with the keys of a cluster put over it, by its name in
/// profiles/clusters or its file "*.toml" (empty: none), and then the overrides. A number of
/// devices in `begun` stays, whatever the cluster has. `begun.file` names it in errors and is what
/// relative paths start from. Throws as `parse_scenario`.
Scenario scenario_over(Scenario begun,
                       const std::string& cluster,
                       const std::vector<Override>& overrides);

}  // namespace pipetwin
