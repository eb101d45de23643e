// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/timeline/footprint.h"

/// Whether a plan fits, and the table that says where it does not.
namespace pipetwin {

class Plan;

/// One line of `memory_table`: a name and its bytes.
struct NamedMemory {
    std::string name;
    MemoryUse use;
    std::string remark{};  ///< behind the line
};
/// A table of bytes in all and by kind, one line for each row, below a head that calls the names
/// `what`.
std::string memory_table(std::string_view what, const std::vector<NamedMemory>& rows);

/// Throws Error(Infeasible) with a table of ranks, their bytes by kind and the limit, if the plan
/// has a memory limit and a rank is above it.
void check_memory(const Plan& plan);

/// Checks the peaks of a timeline, [rank], against the plan's memory limits. Throws
/// Error(Infeasible) with a table of ranks, their bytes by kind and the limit, if a rank is above
/// it.
void check_memory(const Plan& plan, const std::vector<MemoryUse>& peaks);

}  // namespace pipetwin
