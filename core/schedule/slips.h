// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <vector>

#include "core/schedule/schedule.h"
#include "core/schedule/validate.h"

namespace pipetwin {

/// A schedule without its slips of the pen, and a violation for each of them.
struct Mended {
    Schedule schedule;
    std::vector<Violation> slips;
};

/// Finds actions that were written in the place of others. On a rank that has one action too many
/// and lacks one, and where the two differ in one number or letter, the one was meant to be the
/// other: `0B6` twice and no `0B5`. The only action of the last micro-batch or stage is a slip,
/// too. Where a rule is broken because of a slip, the slip alone is worth a report: `schedule` has
/// what was meant, in the same cell, or UNSHARD where that is not known. None where there is no
/// slip. Two pipelines of one model are left alone.
std::optional<Mended> mend_slips(const Schedule& schedule);

}  // namespace pipetwin
