// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace pipetwin {

/// The kind of nodes that a device usually comes in, out of `cluster_names`; empty: none is known.
std::string usual_cluster(const std::string& device);

}  // namespace pipetwin
