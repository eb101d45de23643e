// SPDX-License-Identifier: Apache-2.0
#include "exec/executor/recorder.h"

#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/base/error.h"

namespace pipetwin::exec {
namespace recorder_test {

constexpr Action forward{.op = Op::Forward, .stage = 1, .micro_batch = 2};
constexpr Action receive{.op = Op::RecvBackward, .stage = 1, .micro_batch = 2};

TimePoint at(int nanoseconds) {
    return TimePoint(Duration(nanoseconds));
}

std::vector<Span> spans_of(const Recorder& recorder, TimePoint start) {
    std::vector<Span> spans;
    recorder.spans(start, spans);
    return spans;
}

TEST(Recorder, GivesTheSpansOfItsRowSinceTheStart) {
    Recorder recorder({forward, receive});
    recorder.record(at(100), at(100), at(130), {});
    recorder.record(at(130), at(150), at(155), Duration(3));
    EXPECT_THAT(spans_of(recorder, at(100)),
                ::testing::ElementsAre(Span{forward, Duration(0), Duration(0), Duration(30)},
                                       Span{receive, Duration(30), Duration(50), Duration(55)}));
    std::vector<Duration> in_groups{Duration(9)};
    recorder.times_in_groups(in_groups);
    EXPECT_THAT(in_groups, ::testing::ElementsAre(Duration(0), Duration(3)));
}

TEST(Recorder, AnotherStepForgetsTheFirst) {
    Recorder recorder({forward});
    recorder.record(at(1), at(1), at(2), {});
    recorder.begin_compute();
    recorder.end_compute();
    recorder.restart();
    EXPECT_TRUE(spans_of(recorder, at(0)).empty());
    EXPECT_EQ(recorder.compute_wall(), Duration{});
    recorder.record(at(5), at(5), at(6), {});
    EXPECT_EQ(spans_of(recorder, at(0)).size(), 1U);
}

TEST(Recorder, RefusesMoreSpansThanTheRowHasActions) {
    Recorder recorder({forward});
    recorder.record(at(1), at(1), at(2), {});
    EXPECT_THROW(recorder.record(at(2), at(2), at(3), {}), InternalError);
}

TEST(Recorder, SleepingIsWallTimeWithoutCpuTime) {
    Recorder recorder({forward});
    recorder.begin_compute();
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    recorder.end_compute();
    EXPECT_GE(recorder.compute_wall(), std::chrono::milliseconds(10));
    EXPECT_LT(recorder.compute_cpu(), std::chrono::milliseconds(5));
}

}  // namespace recorder_test
}  // namespace pipetwin::exec
