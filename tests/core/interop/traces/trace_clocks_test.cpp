// SPDX-License-Identifier: Apache-2.0
#include "core/interop/traces/trace_clocks.h"

#include <chrono>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace pipetwin {
namespace trace_clocks_test {

using namespace std::chrono_literals;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

/// A message that takes `transfer`, between clocks that are `skew` ahead of the true time.
SentMessage message(
    int from, int to, Duration left, Duration transfer, std::vector<Duration> skew) {
    return {.from = from,
            .to = to,
            .departure = left + skew[static_cast<std::size_t>(from)],
            .arrival = left + transfer + skew[static_cast<std::size_t>(to)]};
}

TEST(ClockOffsets, ClocksThatFitStayAsTheyAre) {
    const std::vector<Duration> skew{0ms, 0ms};
    const ClockOffsets found =
        clock_offsets(2, {message(0, 1, 5ms, 1ms, skew), message(1, 0, 20ms, 3ms, skew)});
    EXPECT_THAT(found.add, ElementsAre(0ms, 0ms));
    EXPECT_THAT(found.notes, IsEmpty());
}

TEST(ClockOffsets, MessagesThereAndBackTellTheDifference) {
    const std::vector<Duration> skew{0ms, 7ms, -40ms};
    const ClockOffsets found = clock_offsets(3,
                                             {message(0, 1, 5ms, 1ms, skew),
                                              message(0, 1, 9ms, 4ms, skew),
                                              message(1, 0, 30ms, 1ms, skew),
                                              message(1, 2, 12ms, 2ms, skew),
                                              message(2, 1, 25ms, 2ms, skew)});
    EXPECT_THAT(found.add, ElementsAre(0ms, -7ms, 40ms));
    ASSERT_EQ(found.notes.size(), 2U);
    EXPECT_THAT(found.notes[0], HasSubstr("rank 1: its clock was 7.000 ms ahead of"));
    EXPECT_THAT(found.notes[1], HasSubstr("rank 2: its clock was 40.000 ms behind"));
}

TEST(ClockOffsets, MessagesOneWayAreMadeJustPossible) {
    const std::vector<Duration> skew{0ms, -10ms};
    const ClockOffsets found = clock_offsets(2, {message(0, 1, 5ms, 1ms, skew)});
    EXPECT_THAT(found.add, ElementsAre(0ms, 9ms));
}

TEST(ClockOffsets, RanksWithoutMessagesStay) {
    EXPECT_THAT(clock_offsets(3, {}).add, ElementsAre(0ms, 0ms, 0ms));
}

}  // namespace trace_clocks_test
}  // namespace pipetwin
