// SPDX-License-Identifier: Apache-2.0
#include <thread>

#include <gtest/gtest.h>

#include "exec/data/random_batch.h"
#include "exec/device/paced_device.h"
#include "exec/executor/executor.h"
#include "tests/support/small_training.h"

namespace pipetwin::exec {
namespace paced_test {

using Clock = std::chrono::steady_clock;
using std::chrono::microseconds;
using std::chrono::milliseconds;

constexpr Action forward{.op = Op::Forward, .stage = 0, .micro_batch = 0};

TEST(PacedDevice, AnActionLastsAtLeastWhatThePlanSays) {
    const auto device = make_paced_device();
    const TimePoint begin = device->now();
    const TimePoint end = device->complete(forward, begin, milliseconds(3));
    EXPECT_GE(end - begin, milliseconds(3));
    EXPECT_GE(Clock::now() - begin, milliseconds(3));
}

TEST(PacedDevice, ItsClockNeverGoesBack) {
    const auto device = make_paced_device();
    TimePoint last = device->now();
    for (int action = 0; action < 20; ++action) {
        const TimePoint end = device->complete(forward, last, microseconds(100));
        EXPECT_GE(end, last);
        EXPECT_GE(device->now(), end);
        last = end;
    }
}

TEST(PacedDevice, ItHasReachedWhatIsPast) {
    const auto device = make_paced_device();
    const TimePoint end = device->complete(forward, device->now(), milliseconds(1));
    device->wait_until(end - microseconds(500));
    EXPECT_GE(device->now(), end);
}

TEST(PacedDevice, WhatTakesLongerThanPlannedIsNotHidden) {
    const auto device = make_paced_device();
    const TimePoint begin = Clock::now() - milliseconds(50);
    EXPECT_GE(device->complete(forward, begin, milliseconds(1)) - begin, milliseconds(50));
}

TEST(PacedExecutor, EveryComputeActionLastsAtLeastWhatThePlanSaysAndTheTraceIsMarkedAsEmulated) {
    const Model model = test::small_mlp();
    const test::Shape shape{.stages = 4, .schedule = "1f1b", .backend = Backend::Paced};
    const Plan plan = test::plan_of(model, shape);
    Executor executor(plan, model, test::options_of(shape));
    const StepResult step = executor.run_step(random_batch(model, shape.batch, 1), 0);
    EXPECT_EQ(step.timeline.origin, Origin::Emulated);
    Duration late{};
    Duration busy{};
    for (const std::vector<Span>& row : step.timeline.ranks) {
        for (const Span& span : row) {
            EXPECT_GE(span.end - span.begin, plan.duration(span.action)) << to_string(span.action);
            if (is_compute(span.action.op)) {
                busy += span.end - span.ready;
                late += span.end - span.ready - plan.duration(span.action);
            }
        }
    }
    EXPECT_NEAR(step.stolen, to_seconds(late) / to_seconds(busy), 1e-9);
}

/// Its work alone takes longer than the plan says: the step is not one to compare with.
TEST(PacedExecutor, ADeviceThatCannotKeepThePaceIsDisturbed) {
    const Model model = test::small_mlp();
    const test::Shape shape{.stages = 2, .schedule = "1f1b", .backend = Backend::Paced};
    ExecutorOptions options = test::options_of(shape);
    options.layer_done = [](int, Op, TimePoint, const GroupTimes&) {
        std::this_thread::sleep_for(milliseconds(5));
    };
    Executor executor(test::plan_of(model, shape), model, options);
    EXPECT_GT(executor.run_step(random_batch(model, shape.batch, 1), 0).stolen, 0.5);
}

TEST(PacedExecutor, AMessageIsUnderWayAtLeastAsLongAsItsLinkSays) {
    const Model model = test::small_mlp();
    const test::Shape shape{.stages = 2, .micro_batches = 2, .backend = Backend::Paced};
    const test::LayerTimes times{.link = {.latency = milliseconds(4)}};
    Executor executor(test::plan_of(model, shape, times), model, test::options_of(shape));
    const Timeline timeline = executor.run_step(random_batch(model, shape.batch, 1), 0).timeline;
    const Span& forward_done = timeline.ranks[0][0];
    const Span& received = timeline.ranks[1][0];
    ASSERT_EQ(received.action.op, Op::RecvForward);
    EXPECT_GE(received.ready - forward_done.end, milliseconds(4));
}

}  // namespace paced_test
}  // namespace pipetwin::exec
