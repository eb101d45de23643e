// SPDX-License-Identifier: Apache-2.0
#include "core/artifacts/trace_contradictions.h"

#include <chrono>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/artifacts/chrome_trace.h"
#include "core/base/error.h"
#include "tests/support/error_of.h"
#include "tests/support/plain_plan.h"

namespace pipetwin {
namespace trace_contradictions_test {

using testing::error_of;
using ::testing::HasSubstr;
using namespace std::chrono_literals;

/// One step of two stages, in which the actions of each rank follow each other without a gap: F, B
/// and what else there is take 10 ms, and messages 1 ms.
Trace measured(Origin origin = Origin::Measured) {
    const Plan plan = make_plan(testing::plain(ScheduleKind::GPipe, 2, 2));
    Trace trace;
    trace.plan_hash = plan.hash();
    trace.schedule_name = "gpipe";
    trace.schedule = plan->schedule;
    Timeline& step = trace.timelines.steps.emplace_back();
    step.origin = origin;
    for (const auto& row : plan->schedule.ranks) {
        auto& spans = step.ranks.emplace_back();
        Duration time{};
        for (const Action& action : row) {
            const Duration end = time + (is_message(action.op) ? Duration(1ms) : Duration(10ms));
            spans.push_back({.action = action, .begin = time, .ready = time, .end = end});
            time = end;
        }
    }
    trace.timelines.noise.steps = 1;
    return trace;
}

/// The span of an action of the first rank.
Span& span_of(Trace& trace, Op op, int micro_batch) {
    for (Span& span : trace.timelines.steps.front().ranks.front()) {
        if (span.action.op == op && span.action.micro_batch == micro_batch) {
            return span;
        }
    }
    throw InternalError("an action of the plan");
}

void shift(Span& span, Duration by) {
    span.begin += by;
    span.ready += by;
    span.end += by;
}

/// What reading the trace says is wrong with it.
Error refusal(const Trace& trace) {
    return error_of([&] { parse_chrome_trace(print_chrome_trace(trace), "measured.trace.json"); });
}

TEST(TraceContradictions, AConsistentTraceHasNone) {
    EXPECT_EQ(contradiction(measured()), std::nullopt);
    EXPECT_NO_THROW(parse_chrome_trace(print_chrome_trace(measured()), "measured.trace.json"));
}

TEST(TraceContradictions, ATraceWithComputationsThatOverlapOnOneRankIsRefusedNamingBoth) {
    Trace trace = measured();
    Span& second = span_of(trace, Op::Forward, 1);
    shift(second, -6ms);  // the send between them takes 1 ms
    const Error error = refusal(trace);
    EXPECT_EQ(error.kind(), ErrorKind::BadInput);
    EXPECT_THAT(error.text(), HasSubstr("step 0, rank 0, 0F1 runs at the same time as 0F0 for 5"));
    EXPECT_THAT(error.hint(), ::testing::Not(::testing::IsEmpty()));
}

TEST(TraceContradictions, WhatClocksTellOnlyNearlyIsNone) {
    Trace trace = measured();
    shift(span_of(trace, Op::Forward, 1), -1ms - 500us);
    EXPECT_EQ(contradiction(trace), std::nullopt);  // half a millisecond of ten
}

TEST(TraceContradictions, AMessageBesideAComputationIsNone) {
    Trace trace = measured();
    shift(span_of(trace, Op::SendForward, 0), -5ms);
    EXPECT_EQ(contradiction(trace), std::nullopt);
}

TEST(TraceContradictions, AnActionFurtherOutsideThanTheStepIsLongIsRefusedWhereItWasMeasured) {
    for (const Origin origin : {Origin::Measured, Origin::Emulated}) {
        Trace trace = measured(origin);
        shift(trace.timelines.steps.front().ranks.front().back(), 200ms);
        const Error error = refusal(trace);
        EXPECT_THAT(error.text(), HasSubstr("lies 190"));  // the other rank ends 10 ms later
        EXPECT_THAT(error.text(), HasSubstr("away from the rest of the step"));
    }
    // In a predicted trace a message may be slower than everything else.
    Trace predicted = measured(Origin::Predicted);
    shift(predicted.timelines.steps.front().ranks.front().back(), 200ms);
    EXPECT_EQ(contradiction(predicted), std::nullopt);
}

TEST(TraceContradictions, AnActionThatWaitsForLongerThanItLastsIsRefused) {
    Trace trace = measured();
    Span& receive = span_of(trace, Op::RecvBackward, 0);
    receive.ready = receive.end + 5ms;
    EXPECT_THAT(refusal(trace).text(), HasSubstr("RECV_B0 waits for 6"));
}

TEST(TraceContradictions, TheHashOfAnotherPlanIsRefused) {
    Trace trace = measured();
    trace.plan_hash = make_plan(testing::plain(ScheduleKind::GPipe, 2, 3)).hash();
    const Error error = refusal(trace);
    EXPECT_THAT(error.place(), HasSubstr("/pipetwin/plan_hash"));
    EXPECT_THAT(error.text(), HasSubstr(measured().plan_hash + ", as these rows have"));
}

TEST(TraceContradictions, StepsThatDoNotFollowEachOtherAreRefused) {
    Trace trace = measured();
    trace.timelines.steps.push_back(trace.timelines.steps.front());
    trace.timelines.noise.steps = 2;
    std::string text = print_chrome_trace(trace);
    const std::size_t begins = text.find("\"step_begins_ns\"");
    const std::size_t open = text.find('[', begins);
    text.replace(open, text.find(']', open) - open, "[9000000000, 0");
    const Error error = error_of([&] { parse_chrome_trace(text, "measured.trace.json"); });
    EXPECT_THAT(error.place(), HasSubstr("/pipetwin/step_begins_ns"));
}

}  // namespace trace_contradictions_test
}  // namespace pipetwin
