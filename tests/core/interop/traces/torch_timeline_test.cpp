// SPDX-License-Identifier: Apache-2.0
#include "core/interop/traces/torch_timeline.h"

#include <chrono>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/interop/traces/message_times.h"
#include "tests/support/error_of.h"

namespace pipetwin {
namespace torch_timeline_test {

using namespace std::chrono_literals;
using ::testing::Each;
using ::testing::ElementsAre;
using testing::error_of;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

/// Ranges of a rank in microseconds since the begin of the step, on a clock of its own.
class RankTrace {
  public:
    RankTrace(int rank, double clock) : rank_(rank), clock_(clock) {}

    RankTrace& add(std::string_view name, double begin, double length, int stream = 7) {
        events_ += fmt::format(
            R"({}{{"ph": "X", "cat": "gpu_user_annotation", "name": "{}", "pid": 0, "tid": {}, )"
            R"("ts": {:.3f}, "dur": {:.3f}}})",
            events_.empty() ? "" : ",",
            name,
            stream,
            1e6 + clock_ + begin,
            length);
        return *this;
    }

    TorchTrace read() const {
        return parse_torch_trace(
            fmt::format(
                R"({{"distributedInfo": {{"rank": {}}}, "traceEvents": [{}]}})", rank_, events_),
            "x");
    }

  private:
    int rank_;
    double clock_;
    std::string events_;
};

/// Two stages, two micro-batches, F 10 us, B 20 us, messages 2 us, GPipe. Receives are posted as
/// soon as the rank has nothing else to do.
///
///     rank 0  F0 F1 ........ B1 B0       F 0-10, 10-20, B1 54-74, B0 74-94
///     rank 1  .. F0 F1 B1 B0             F 12-22, 22-32, B1 32-52, B0 52-72
std::vector<TorchTrace> two_ranks(double skew, int steps = 1) {
    RankTrace first(0, 0);
    RankTrace second(1, skew);
    for (int step = 0; step < steps; ++step) {
        const double t = step * 200;
        first.add("PP:0F0", t, 10).add("PP:0F1", t + 10, 10);
        first.add("PP:0RECV_B1", t + 20, 34, 20).add("PP:0B1", t + 54, 20);
        first.add("PP:0RECV_B0", t + 60, 14, 20).add("PP:0B0", t + 74, 20);
        second.add("PP:1RECV_F0", t, 12, 20).add("PP:1F0", t + 12, 10);
        second.add("PP:1RECV_F1", t + 13, 9, 20).add("PP:1F1", t + 22, 10);
        second.add("PP:1B1", t + 32, 20).add("PP:1B0", t + 52, 20);
    }
    return {first.read(), second.read()};
}

std::vector<std::string> names_of(const std::vector<Span>& row) {
    std::vector<std::string> names;
    for (const Span& span : row) {
        names.push_back(to_string(span.action));
    }
    return names;
}

void expect_step_in_order(const Timeline& step) {
    for (const std::vector<Span>& row : step.ranks) {
        for (std::size_t i = 0; i < row.size(); ++i) {
            EXPECT_LE(row[i].begin, row[i].ready);
            EXPECT_LE(row[i].ready, row[i].end);
            EXPECT_TRUE(i == 0 || row[i - 1].end <= row[i].begin) << to_string(row[i].action);
        }
    }
}

TEST(TorchTimeline, AReceiveWaitsForItsMessageAndThenTakesIt) {
    const TorchTimeline merged = torch_timeline(two_ranks(0), nullptr);
    EXPECT_THAT(merged.problems, IsEmpty());
    ASSERT_EQ(merged.trace.timelines.steps.size(), 1U);
    const Timeline& step = merged.trace.timelines.steps.front();
    expect_step_in_order(step);
    EXPECT_THAT(names_of(step.ranks[1]),
                ElementsAre("1RECV_F0", "1F0", "1RECV_F1", "1F1", "1B1", "1B0"));
    const Span& pending = step.ranks[1][0];
    EXPECT_EQ(pending.ready - pending.begin, 10us);  // until stage 0 has computed it
    EXPECT_EQ(pending.end - pending.ready, 2us);
    const Span& there_before = step.ranks[1][2];  // it came while F0 ran
    EXPECT_EQ(there_before.end, there_before.begin);
}

TEST(TorchTimeline, TransfersAreThoseThatWereWaitedFor) {
    // F0: 10 to 12. F1: the receive was pending from 13, its F ended at 20, it ended at 22. B1: 52
    // to
    // 54. B0: 72 to 74.
    EXPECT_THAT(torch_timeline(two_ranks(0), nullptr).transfers, ElementsAre(2us, 2us, 2us, 2us));
}

TEST(TorchTimeline, ClocksAreMovedSoThatNoMessageArrivesBeforeItHasLeft) {
    const TorchTimeline right = torch_timeline(two_ranks(0), nullptr);
    for (const double skew : {5000.0, -5000.0, 30.0}) {
        const TorchTimeline merged = torch_timeline(two_ranks(skew), nullptr);
        EXPECT_EQ(merged.trace.timelines.steps, right.trace.timelines.steps) << skew;
        EXPECT_THAT(merged.problems, ElementsAre(HasSubstr("rank 1: its clock was"))) << skew;
        EXPECT_THAT(merged.transfers, ElementsAre(2us, 2us, 2us, 2us)) << skew;
    }
}

// A range that is left out as damaged once made the messages behind it those of the step before,
// and so the clocks of the ranks a whole step apart.
TEST(TorchTimeline, AMissingActionMovesNoMessagesIntoAnotherStep) {
    const std::size_t of_a_step = two_ranks(0)[0].spans.size();
    for (std::size_t missing = 0; missing < 4 * of_a_step; ++missing) {
        std::vector<TorchTrace> ranks = two_ranks(0, 2);
        TorchTrace& damaged = ranks[missing / (2 * of_a_step)];
        const auto place = static_cast<std::ptrdiff_t>(missing % (2 * of_a_step));
        damaged.spans.erase(damaged.spans.begin() + place);
        damaged.steps.erase(damaged.steps.begin() + place);
        std::vector<std::string> problems;
        EXPECT_THAT(measured_transfers(ranks, problems), Each(2us)) << missing;
        EXPECT_THAT(problems, Each(Not(HasSubstr("clock")))) << missing;
    }
}

TEST(TorchTimeline, SeveralStepsStandOneAfterTheOther) {
    const TorchTimeline merged = torch_timeline(two_ranks(0, 3), nullptr);
    ASSERT_EQ(merged.trace.timelines.steps.size(), 3U);
    EXPECT_EQ(merged.trace.timelines.steps[0], merged.trace.timelines.steps[2]);
}

TEST(TorchTimeline, AStepThatBeganBeforeTheTraceIsLeftOut) {
    std::vector<TorchTrace> ranks = two_ranks(0, 2);
    // The trace of rank 0 begins in the middle of its first step.
    ranks[0].spans.erase(ranks[0].spans.begin(), ranks[0].spans.begin() + 2);
    ranks[0].steps.erase(ranks[0].steps.begin(), ranks[0].steps.begin() + 2);
    ranks[1].spans.erase(ranks[1].spans.begin(), ranks[1].spans.begin() + 2);
    ranks[1].steps.erase(ranks[1].steps.begin(), ranks[1].steps.begin() + 2);
    for (TorchTrace& rank : ranks) {
        rank.messages.clear();
    }
    const TorchTimeline merged = torch_timeline(std::move(ranks), nullptr);
    ASSERT_EQ(merged.trace.timelines.steps.size(), 1U);
    EXPECT_THAT(names_of(merged.trace.timelines.steps[0].ranks[0]),
                ElementsAre("0F0", "0F1", "0B1", "0B0"));
    EXPECT_THAT(merged.problems, Each(HasSubstr("before its first forward")));
}

TEST(TorchTimeline, MarkedStepsAreThoseThatAllRanksHave) {
    RankTrace first(0, 0);
    RankTrace second(1, 0);
    for (int step = 0; step < 3; ++step) {
        const double t = step * 100;
        if (step > 0) {
            first.add(fmt::format("ProfilerStep#{}", step), t, 100);
            first.add("PP:0F0", t, 10).add("PP:0B0", t + 70, 10);
        }
        second.add(fmt::format("ProfilerStep#{}", step), t, 100);
        second.add("PP:1F0", t + 20, 10 + step).add("PP:1B0", t + 40, 10);
    }
    const TorchTimeline merged = torch_timeline({first.read(), second.read()}, nullptr);
    ASSERT_EQ(merged.trace.timelines.steps.size(), 2U);
    // The first of them is step 1, in which F took 11 us.
    const Span& forward = merged.trace.timelines.steps[0].ranks[1][0];
    EXPECT_EQ(forward.end - forward.begin, 11us);
    EXPECT_THAT(merged.problems, ElementsAre(HasSubstr("the first is ProfilerStep#0")));
}

TEST(TorchTimeline, ATraceWithoutBeginningsIsRefused) {
    TorchTrace trace = parse_torch_trace(
        R"([{"ph": "X", "name": "PP:0F0", "dur": 1}, {"ph": "X", "name": "PP:0B0", "dur": 1}])",
        "x");
    const Error error = error_of([&] { torch_timeline({trace}, nullptr); });
    EXPECT_THAT(error.text(), HasSubstr("rank 0 does not say when its actions began"));
}

}  // namespace torch_timeline_test
}  // namespace pipetwin
