// SPDX-License-Identifier: Apache-2.0
#include "core/timeline/span_times.h"

#include <chrono>
#include <vector>

#include <gtest/gtest.h>

#include "core/base/error.h"

namespace pipetwin {
namespace span_times_test {

using namespace std::chrono_literals;

const Action forward{.op = Op::Forward, .stage = 1, .micro_batch = 2};
const Action update{.op = Op::Optimizer, .stage = 1};

std::vector<Span> spans_of(const SpanTimes& times, const Action& action) {
    std::vector<Span> spans;
    for (int cell = 0; cell < times.size(); ++cell) {
        spans.push_back({action, times.begin(cell), times.ready(cell), times.end(cell)});
    }
    return spans;
}

TEST(SpanTimes, AreThoseOfTheRowHoweverLong) {
    // 2^32 - 1 ns is the first length that does not fit its 32 bits.
    const Duration fits{4'294'967'294};
    const std::vector<Span> row{{forward, -5ns, -5ns, 0ns},
                                {forward, 0ns, fits, fits},
                                {forward, 5s, 10s, 10s + fits + 1ns},
                                {forward, 20s, 26h, 27h},
                                {forward, 28h, 28h, 28h}};
    SpanTimes times(row);
    EXPECT_EQ(spans_of(times, forward), row);
    EXPECT_EQ(times.length(3), 27h - 20s);
    EXPECT_EQ(times.wait(3), 26h - 20s);
    times.subtract(-5ns);
    EXPECT_EQ(times.begin(0), 0ns);
    EXPECT_EQ(times.end(3), 27h + 5ns);
}

TEST(SpanTimes, FindsWhatBeginsAfterATime) {
    const SpanTimes times(std::vector<Span>{
        {forward, 0ns, 0ns, 5ns}, {forward, 10ns, 10ns, 10ns}, {forward, 10ns, 12ns, 15ns}});
    EXPECT_EQ(times.first_beginning_after(-1ns, 0, 3), 0);
    EXPECT_EQ(times.first_beginning_after(0ns, 0, 3), 1);
    EXPECT_EQ(times.first_beginning_after(9ns, 0, 3), 1);
    EXPECT_EQ(times.first_beginning_after(10ns, 0, 3), 3);
    EXPECT_EQ(times.first_beginning_after(0ns, 2, 3), 2) << "not before the first";
    EXPECT_EQ(times.first_beginning_after(10ns, 0, 1), 1) << "not behind the last";
}

TEST(SpanTimes, RefusesARowThatGoesBackward) {
    EXPECT_THROW(SpanTimes(std::vector<Span>{{forward, 3ns, 2ns, 4ns}}), InternalError);
    EXPECT_THROW(SpanTimes(std::vector<Span>{{forward, 3ns, 4ns, 3ns}}), InternalError);
    EXPECT_THROW(SpanTimes(std::vector<Span>{{forward, 0ns, 0ns, 4ns}, {forward, 3ns, 3ns, 5ns}}),
                 InternalError);
}

TEST(StepTimes, AndTheirActionsAreTheTimeline) {
    const Timeline timeline{
        .origin = Origin::Predicted,
        .ranks = {{{forward, 0ns, 1ns, 4ns}, {update, 7ns, 8ns, 9ns}}, {}},
        .links = {{{{.op = Op::SendForward, .stage = 0, .micro_batch = 1}, 0ns, 0ns, 3ns}}, {}},
        .host_copies = {{{forward, 4ns, 5ns, 6ns}}, {}},
        .replicas = {}};
    EXPECT_EQ(timeline_of({{forward, update}, {}}, step_times(timeline)), timeline);
    EXPECT_THROW(timeline_of({{forward}, {}}, step_times(timeline)), InternalError);
    EXPECT_THROW(timeline_of({{forward, update}}, step_times(timeline)), InternalError);
}

}  // namespace span_times_test
}  // namespace pipetwin
