// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <utility>

#include "core/base/units.h"
#include "sim/search/candidate.h"
#include "sim/search/partition_descent.h"
#include "sim/search/trial.h"

namespace pipetwin::sim {

/// What a search has simulated, for searches of a part of the same scenario with the same model and
/// costs: they come to the same with it, and sooner.
struct SearchMemory {
    std::map<Candidate, KnownPartitions> tried_partitions{};  ///< by searches of the partition
    /// What the partitions that are tried first came to, by the bound that they follow from.
    std::map<std::pair<Candidate, Duration>, Outcome> outcomes{};
};

}  // namespace pipetwin::sim
