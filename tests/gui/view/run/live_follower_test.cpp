// SPDX-License-Identifier: Apache-2.0
#include "gui/view/run/live_follower.h"

#include <cmath>
#include <fstream>

#include <QTemporaryDir>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/artifacts/chrome_trace.h"
#include "core/plan/plain_plan.h"
#include "sim/simulate/simulate.h"

namespace pipetwin::gui {
namespace live_follower_test {

using ::testing::HasSubstr;
using ::testing::SizeIs;

/// A folder as a training with --live fills it.
class LiveFollowerTest : public ::testing::Test {
  protected:
    static Plan plan() {
        PlainCosts costs;
        costs.shape = {.ranks = 2, .micro_batches = 4};
        costs.forward.assign(2, std::chrono::milliseconds(1));
        costs.backward.assign(2, std::chrono::milliseconds(2));
        return make_plan(costs);
    }

    Timeline step() const { return sim::simulate(plan_); }

    void begin() const {
        Trace trace;
        trace.plan_hash = plan_.hash();
        trace.schedule_name = "gpipe";
        trace.schedule = plan_->schedule;
        trace.timelines.steps = {step()};
        write("predicted.trace.json", print_chrome_trace(trace), std::ios::trunc);
        write("live.jsonl",
              print_live_header({.plan_hash = plan_.hash(),
                                 .schedule_name = "gpipe",
                                 .origin = Origin::Measured,
                                 .schedule = plan_->schedule}),
              std::ios::trunc);
        write("metrics.jsonl", "", std::ios::trunc);
    }

    void add_step(int number) const {
        write("live.jsonl", print_live_step({.step = number, .timeline = step()}));
        write("metrics.jsonl",
              "{\"step\":" + std::to_string(number) + ",\"loss\":5.5,\"step_ms\":12.5}\n");
    }

    void write(const char* name,
               const std::string& text,
               std::ios::openmode mode = std::ios::app) const {
        std::ofstream(folder() / name, std::ios::out | mode) << text;
    }

    std::filesystem::path folder() const { return folder_.path().toStdString(); }

    QTemporaryDir folder_;
    Plan plan_ = plan();
};

TEST_F(LiveFollowerTest, SeesNothingInAnEmptyFolderAndNoneAtAll) {
    EXPECT_FALSE(LiveFollower(folder()).look().anything);
    EXPECT_FALSE(LiveFollower(folder() / "not" / "there").look().anything);
}

TEST_F(LiveFollowerTest, ShowsStepsAsTheyComeBelowThePrediction) {
    LiveFollower follower(folder());
    begin();
    EXPECT_EQ(follower.look().run, nullptr) << "no step yet";
    add_step(0);
    const LiveUpdate first = follower.look();
    ASSERT_NE(first.run, nullptr);
    EXPECT_EQ(first.run->twin.step_count(), 1);
    EXPECT_TRUE(first.run->twin.has(Side::Predicted));
    ASSERT_TRUE(first.run->comparison);
    EXPECT_EQ(first.run->comparison->step.error_percent(), 0) << "it measured what was predicted";
    ASSERT_THAT(first.metrics, SizeIs(1));
    EXPECT_EQ(first.metrics[0].loss, 5.5);
    EXPECT_FALSE(follower.look().anything);
    add_step(1);
    add_step(2);
    const LiveUpdate second = follower.look();
    EXPECT_EQ(second.run->twin.step_count(), 3);
    EXPECT_THAT(second.metrics, SizeIs(2));
}

TEST_F(LiveFollowerTest, ALossThatIsNotThereIsNone) {
    begin();
    write("metrics.jsonl", "{\"step\":0,\"loss\":null,\"step_ms\":12.5}\n");
    LiveFollower follower(folder());
    const LiveUpdate update = follower.look();
    ASSERT_THAT(update.metrics, SizeIs(1));
    EXPECT_TRUE(std::isnan(update.metrics[0].loss));
}

TEST_F(LiveFollowerTest, KeepsTheLatestSteps) {
    begin();
    for (int number = 0; number < 40; ++number) {
        add_step(number);
    }
    LiveFollower follower(folder());
    const std::shared_ptr<const RunData> run = follower.look().run;
    EXPECT_EQ(run->twin.step_count(), 32);
    EXPECT_EQ(run->step_number(0), 8);
    EXPECT_EQ(run->step_number(31), 39);
}

TEST_F(LiveFollowerTest, HalfALineWaitsForItsOtherHalf) {
    begin();
    LiveFollower follower(folder());
    follower.look();
    const std::string line = print_live_step({.step = 0, .timeline = step()});
    write("live.jsonl", line.substr(0, line.size() / 2));
    EXPECT_EQ(follower.look().run, nullptr);
    write("live.jsonl", line.substr(line.size() / 2));
    EXPECT_NE(follower.look().run, nullptr);
}

TEST_F(LiveFollowerTest, NoticesThatAnotherTrainingHasBegun) {
    begin();
    add_step(0);
    add_step(1);
    LiveFollower follower(folder());
    follower.look();
    begin();
    EXPECT_TRUE(follower.look().restarted);
    add_step(0);
    EXPECT_EQ(follower.look().run->twin.step_count(), 1);
}

TEST_F(LiveFollowerTest, EndsWithTheMeasuredTraceButNotWithAnOlderOne) {
    begin();
    write("measured.trace.json", "{}", std::ios::trunc);
    LiveFollower late(folder());
    EXPECT_TRUE(late.look().ended);
    LiveFollower restarting(folder(), true);
    EXPECT_FALSE(restarting.look().ended);
}

TEST_F(LiveFollowerTest, WhatIsNoLineIsASentence) {
    begin();
    write("live.jsonl", "oops\n");
    LiveFollower follower(folder());
    EXPECT_THAT(follower.look().problem, HasSubstr("live.jsonl:2"));
}

}  // namespace live_follower_test
}  // namespace pipetwin::gui
