// SPDX-License-Identifier: Apache-2.0
#include "core/artifacts/live_steps.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/base/error.h"
#include "core/plan/plain_plan.h"
#include "core/plan/plan.h"

namespace pipetwin {
namespace live_steps_test {

using ::testing::HasSubstr;
using ::testing::SizeIs;
using ::testing::ThrowsMessage;

LiveHeader header() {
    PlainCosts costs;
    costs.shape = {.ranks = 2, .micro_batches = 2};
    costs.forward.assign(2, std::chrono::milliseconds(1));
    costs.backward.assign(2, std::chrono::milliseconds(2));
    const Plan plan = make_plan(costs);
    return {.plan_hash = plan.hash(),
            .schedule_name = "gpipe",
            .origin = Origin::Emulated,
            .schedule = plan->schedule};
}

/// Every action takes `length`, after a wait of a nanosecond.
LiveStep step(int number, Duration length) {
    LiveStep result;
    result.step = number;
    result.timeline.origin = Origin::Emulated;
    for (const std::vector<Action>& row : header().schedule.ranks) {
        Duration now{};
        auto& spans = result.timeline.ranks.emplace_back();
        for (const Action& action : row) {
            spans.push_back(
                {.action = action, .begin = now, .ready = now + Duration{1}, .end = now + length});
            now += length;
        }
    }
    return result;
}

TEST(LiveSteps, AreReadAsTheyWereWrittenHoweverTheyArrive) {
    const std::string text = print_live_header(header()) + print_live_step(step(7, Duration{100})) +
                             print_live_step(step(8, Duration{50}));
    for (std::size_t piece = 1; piece < text.size(); piece += 13) {
        LiveReader reader("live.jsonl");
        std::vector<LiveStep> steps;
        for (std::size_t at = 0; at < text.size(); at += piece) {
            for (LiveStep& complete : reader.feed(std::string_view(text).substr(at, piece))) {
                steps.push_back(std::move(complete));
            }
        }
        ASSERT_TRUE(reader.has_header());
        EXPECT_EQ(reader.header(), header());
        ASSERT_THAT(steps, SizeIs(2));
        EXPECT_EQ(steps[0].step, 7);
        EXPECT_EQ(steps[0].timeline, step(7, Duration{100}).timeline);
        EXPECT_EQ(steps[1].timeline, step(8, Duration{50}).timeline);
    }
}

TEST(LiveSteps, HalfALineWaits) {
    LiveReader reader("live.jsonl");
    const std::string line = print_live_header(header());
    EXPECT_THAT(reader.feed(line.substr(0, line.size() - 1)), SizeIs(0));
    EXPECT_FALSE(reader.has_header());
    reader.feed("\n");
    EXPECT_TRUE(reader.has_header());
}

TEST(LiveSteps, OtherLinesAreRefusedWithTheirPlace) {
    const auto fed = [](const std::string& line) {
        return [line] {
            LiveReader reader("live.jsonl");
            reader.feed(print_live_header(header()));
            reader.feed(line);
        };
    };
    EXPECT_THAT(fed("oops\n"), ThrowsMessage<Error>(HasSubstr("live.jsonl:2")));
    EXPECT_THAT(fed("{\"step\":1}\n"), ThrowsMessage<Error>(HasSubstr("live.jsonl:2")));
    EXPECT_THAT(fed("{\"step\":1,\"spans\":[[],[]]}\n"),
                ThrowsMessage<Error>(HasSubstr("row 0 has 0 numbers")));
    EXPECT_THAT(fed("{\"step\":1,\"spans\":[]}\n"), ThrowsMessage<Error>(HasSubstr("no rows")));
    std::string backwards = print_live_step(step(1, Duration{100}));
    backwards.replace(backwards.find("100,"), 4, "-99,");
    EXPECT_THAT(
        fed(backwards),
        ThrowsMessage<Error>(HasSubstr("expected a time that is not before the previous one")));
}

TEST(LiveSteps, AnotherFileIsRefusedAtItsFirstLine) {
    LiveReader reader("metrics.jsonl");
    EXPECT_THAT([&] { reader.feed("{\"step\":0,\"loss\":5.1}\n"); },
                ThrowsMessage<Error>(HasSubstr("metrics.jsonl:1")));
}

}  // namespace live_steps_test
}  // namespace pipetwin
