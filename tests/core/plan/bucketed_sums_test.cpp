// SPDX-License-Identifier: Apache-2.0
#include "core/plan/bucketed_sums.h"

#include <gtest/gtest.h>

#include "core/plan/plan.h"
#include "core/schedule/generators/generate.h"
#include "core/schedule/lower.h"
#include "tests/support/plain_plan.h"

namespace pipetwin {
namespace bucketed_sums_test {

using testing::milliseconds;
using testing::plain;

/// Two stages and one micro-batch, F 1 ms and B 2 ms, whose gradients are summed meanwhile.
PlanParts two_stages(Duration sums) {
    PlanParts parts = make_plan(plain(ScheduleKind::GPipe, 2, 1)).parts();
    parts.overlap_reduction = true;
    parts.all_reduce.assign(2, sums);
    parts.schedule.ranks[0].push_back({.op = Op::ReduceGradient, .stage = 0});
    parts.schedule.ranks[1].push_back({.op = Op::ReduceGradient, .stage = 1});
    return parts;
}

/// The first of four buckets sets out after a quarter of the backward, and the last at its end.
TEST(BucketedSums, SetOutWhenTheLastBackwardHasMadeThem) {
    PlanParts parts = two_stages(milliseconds(50));
    add_bucketed_sums(parts, {4, 1}, 0.1);
    const BucketedSums four{
        .head = Duration(1'500'000), .tail = Duration(12'500'000), .slowed = Duration(150'000)};
    EXPECT_EQ(parts.bucketed_sums[0], four);
    // One bucket is there when all gradients are.
    const BucketedSums one{.tail = milliseconds(50)};
    EXPECT_EQ(parts.bucketed_sums[1], one);
}

/// Messages that are shorter than the backward slow it as long as they go on.
TEST(BucketedSums, SlowTheBackwardWhileTheyGoOn) {
    PlanParts parts = two_stages(milliseconds(1));
    add_bucketed_sums(parts, {4, 4}, 0.1);
    EXPECT_EQ(parts.bucketed_sums[0].slowed, Duration(100'000));
    const Plan plan = Plan::make(std::move(parts));
    EXPECT_EQ(plan.duration({.op = Op::ReduceGradient, .stage = 0}), Duration(100'000));
}

/// Where the backward is in two, W makes the gradients.
TEST(BucketedSums, AreMadeByTheHalfOfTheWeights) {
    PlanParts parts = two_stages(milliseconds(50));
    for (auto& row : parts.schedule.ranks) {
        std::erase_if(row, [](const Action& action) { return action.op == Op::Backward; });
        row.insert(row.begin() + 1, {.op = Op::BackwardWeight, .stage = row.front().stage});
    }
    for (StageCost& cost : parts.costs.front()) {
        cost.backward_weight = milliseconds(8);
    }
    add_bucketed_sums(parts, {8, 8}, 0);
    EXPECT_EQ(parts.bucketed_sums[0].head, milliseconds(7));
}

/// Two stages, F 1 ms and B 2 ms each, whose weights are gathered after the update.
PlanParts gathering(Duration first, Duration second) {
    PlanParts parts = make_plan(plain(ScheduleKind::GPipe, 2, 1)).parts();
    parts.weight_gather = {first, second};
    return parts;
}

/// With four buckets a forward begins when a quarter has come, so that three quarters of it hide.
TEST(HiddenGathers, LeaveWhatTheFirstForwardWaitsFor) {
    PlanParts parts = gathering(Duration(700'000), milliseconds(5));
    hide_weight_gathers(parts, {4, 4}, 0);
    EXPECT_EQ(parts.weight_gather[0], Duration{});
    EXPECT_EQ(parts.weight_gather[1], milliseconds(5) - Duration(750'000));
}

TEST(HiddenGathers, OfOneBucketAreAwaited) {
    PlanParts parts = gathering(Duration(700'000), milliseconds(5));
    hide_weight_gathers(parts, {1, 1}, 0.1);
    EXPECT_EQ(parts.weight_gather[0], Duration(700'000));
    EXPECT_EQ(parts.weight_gather[1], milliseconds(5));
}

/// Messages take multiprocessors while they go on, and never more than they hide.
TEST(HiddenGathers, SlowTheForward) {
    PlanParts parts = gathering(Duration(100'000), milliseconds(5));
    hide_weight_gathers(parts, {4, 4}, 0.1);
    EXPECT_EQ(parts.weight_gather[0], Duration(10'000));
    EXPECT_EQ(parts.weight_gather[1], milliseconds(5) - Duration(750'000) + Duration(75'000));
}

/// A later chunk of a rank has the forwards of all earlier ones to hide behind.
TEST(HiddenGathers, OfLaterChunksHideBehindEarlierOnes) {
    PlainCosts costs = plain(ScheduleKind::Interleaved1F1B, 2, 8);
    costs.shape.chunks = 2;
    costs.forward.assign(4, milliseconds(1));
    costs.backward.assign(4, milliseconds(2));
    PlanParts parts = make_plan(costs).parts();
    parts.weight_gather.assign(4, milliseconds(2));
    hide_weight_gathers(parts, {4, 4, 4, 4}, 0);
    // 2 ms less 0.75 of the first forward; the second chunk's comes at 4 ms, after 1.25 ms of
    // waiting, two forwards of the first chunk and 0.75 of its own.
    EXPECT_EQ(parts.weight_gather[0], Duration(1'250'000));
    EXPECT_EQ(parts.weight_gather[2], Duration{});
}

}  // namespace bucketed_sums_test
}  // namespace pipetwin
