#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/plan/plan.h"
#include "core/timeline/footprint.h"

/// Whether a plan fits, and the table that says where it does not.
namespace pipetwin {

/// Bytes in all and by kind, a line each below a head that calls them `what`.
struct NamedMemory {
    std::string name;
    MemoryUse use;
    std::string remark{};  ///< behind the line
};
std::string memory_table(std::string_view what, const std::vector<NamedMemory>& rows);

/// Throws Error(Infeasible) with a table of ranks, their bytes by kind and the limit, if the plan
/// has a memory limit and a rank is above it.
void check_memory(const Plan& plan);

/// The same for peaks of a timeline.
void check_memory(const Plan& plan, const std::vector<MemoryUse>& peaks);

}  // namespace pipetwin
