// SPDX-License-Identifier: Apache-2.0
#include "core/costs/devices/measured_layout.h"

#include <vector>

#include <gtest/gtest.h>

#include "core/costs/estimate_error.h"

namespace pipetwin {
namespace measured_layout_test {

const MeasuredLayout pipeline{.parameters = 70,
                              .sequence = 8192,
                              .device = "h100-sxm",
                              .precision = "bf16",
                              .devices = 64,
                              .stages = 4,
                              .tensor_parallel = 4};

MeasuredLayout changed(int MeasuredLayout::*key, int value) {
    MeasuredLayout layout = pipeline;
    layout.*key = value;
    return layout;
}

double width(const std::vector<MeasuredLayout>& runs, const MeasuredLayout& asked) {
    const ErrorRange range = range_of_measured(runs, asked);
    EXPECT_NEAR(range.low * range.high, 1, 1e-12);
    return range.high;
}

TEST(MeasuredLayout, RunsHaveMoreOrLessInCommon) {
    EXPECT_EQ(nearness(pipeline, changed(&MeasuredLayout::devices, 512)), Nearness::SameLayout);
    EXPECT_EQ(nearness(pipeline, changed(&MeasuredLayout::micro_batch_size, 2)),
              Nearness::SameStages);
    for (const auto key : {&MeasuredLayout::stages,
                           &MeasuredLayout::chunks,
                           &MeasuredLayout::tensor_parallel,
                           &MeasuredLayout::context_parallel,
                           &MeasuredLayout::expert_parallel}) {
        EXPECT_EQ(nearness(pipeline, changed(key, 16)), Nearness::OtherLayout);
    }
    EXPECT_EQ(nearness(pipeline, changed(&MeasuredLayout::sequence, 4096)), Nearness::OtherModel);
}

TEST(MeasuredLayout, TheNearerTheRunTheNarrowerTheRange) {
    const double same = width({pipeline}, pipeline);
    EXPECT_NEAR(same, 1 + published_spread(Nearness::SameLayout), 1e-9);
    const double other = width({pipeline}, changed(&MeasuredLayout::stages, 8));
    EXPECT_GT(other, width({pipeline}, changed(&MeasuredLayout::micro_batch_size, 2)));
    EXPECT_GT(other, same);
    EXPECT_EQ(width({pipeline, changed(&MeasuredLayout::stages, 8)}, pipeline), same);
    EXPECT_NEAR(width({pipeline}, changed(&MeasuredLayout::devices, 256)), same * 1.04, 1e-9);
}

/// What rows say of each other counts, but not of a prediction that has less in common with them.
TEST(MeasuredLayout, RowsThatPredictEachOtherWronglyWidenTheRange) {
    std::vector<MeasuredLayout> runs{pipeline, pipeline};
    const auto with = [&runs](double left_out) {
        for (MeasuredLayout& run : runs) {
            run.left_out = left_out;
        }
        return runs;
    };
    const double known = width({pipeline}, pipeline);
    EXPECT_LT(width(with(0), pipeline), known);
    EXPECT_GT(width(with(0.2), pipeline), known);
    const MeasuredLayout other = changed(&MeasuredLayout::stages, 8);
    EXPECT_EQ(width(with(0), other), width({pipeline}, other));
}

TEST(MeasuredLayout, FarIsWhatNoRunOfTheModelHasTheStagesOf) {
    const std::vector<MeasuredLayout> runs{pipeline};
    EXPECT_FALSE(is_far_from_measured(runs, changed(&MeasuredLayout::micro_batch_size, 2)));
    EXPECT_TRUE(is_far_from_measured(runs, changed(&MeasuredLayout::chunks, 2)));
}

}  // namespace measured_layout_test
}  // namespace pipetwin
