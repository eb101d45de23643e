// SPDX-License-Identifier: Apache-2.0
#include "bench/published/calibrated_stacks.h"

#include <cmath>
#include <vector>

#include <gtest/gtest.h>

#include "core/base/median.h"
#include "tests/support/places.h"

/// Published runs of 2023 to 2026 as rows that correct their stacks.
namespace pipetwin::published {
namespace calibrated_stacks_test {

std::vector<Set> sets_with_stacks() {
    std::vector<Set> sets = read_sets(places::source_folder() + "/scenarios/published");
    std::erase_if(sets, [](const Set& set) { return !set.needs_stack; });
    return sets;
}

double median_error(const std::vector<CorrectedRun>& runs) {
    std::vector<double> errors;
    for (const CorrectedRun& run : runs) {
        errors.push_back(std::abs(run.error));
    }
    return median(errors);
}

/// What issue and documentation promise of one measured row.
TEST(CalibratedStacks, OneRowPredictsOtherScalesAndLayouts) {
    std::vector<CorrectedRun> same;
    std::vector<CorrectedRun> other;
    int warned = 0;
    for (const CorrectedRun& run : corrected_by_one(sets_with_stacks())) {
        (run.nearness == Nearness::SameLayout ? same : other).push_back(run);
        warned += run.is_warned ? 1 : 0;
    }
    ASSERT_GT(same.size(), 100U);
    ASSERT_GT(other.size(), 100U);
    EXPECT_LE(median_error(same), 0.015);
    EXPECT_LE(median_error(other), 0.06);
    EXPECT_LE(5 * warned, static_cast<int>(same.size() + other.size()));
}

TEST(CalibratedStacks, RunsOfOtherModelsPredictAModel) {
    const std::vector<CorrectedRun> runs = corrected_by_other_models(sets_with_stacks());
    ASSERT_GE(runs.size(), 30U);
    EXPECT_LE(median_error(runs), 0.05);
}

}  // namespace calibrated_stacks_test
}  // namespace pipetwin::published
