// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "core/base/undertaking.h"
#include "core/base/units.h"

namespace pipetwin::sim {

/// Shape of a pipeline whose plan and timeline are held as a whole.
struct PlanSize {
    std::int64_t stages = 1;  ///< all chunks of all ranks
    std::int64_t micro_batches = 1;
};

/// Memory that a plan and its simulation take together, about.
Bytes memory_of_plan(const PlanSize& size);

/// Names the plan as what memory has to suffice for, with what would do where it does not.
Undertaking undertaking_of_plan(const PlanSize& size);

/// Refuses a plan that would take more memory than is left, before any of it is made. Throws
/// Error(Infeasible) with both numbers and the most micro-batches that would do. `key` is what sets
/// their number: "--micro-batches" or "pipeline.micro_batches".
void expect_memory_for(const PlanSize& size, std::string_view key, std::optional<Bytes> left);

}  // namespace pipetwin::sim
