// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

namespace pipetwin {

class Cluster;

/// Which groups of devices leave their NVLink domain, and over how many of these they lie; and
/// which leave their leaf of the network. Empty where the scenario says neither, or none leaves.
std::vector<std::string> network_notes(const Cluster& cluster);

}  // namespace pipetwin
