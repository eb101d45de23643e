// SPDX-License-Identifier: Apache-2.0
#include "gui/view/analysis/action_details.h"

#include <limits>
#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/base/short_number.h"
#include "sim/explain/breakdown.h"
#include "sim/simulate/simulate.h"
#include "tests/gui/canned.h"
#include "tests/gui/planned.h"
#include "tests/support/builders.h"
#include "tests/support/plain_plan.h"

namespace pipetwin::gui {
namespace action_details_test {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

const Action b2_of_0{.op = Op::Backward, .stage = 0, .micro_batch = 2};
const Action recv_b2_of_0{.op = Op::RecvBackward, .stage = 0, .micro_batch = 2};

const DetailLine& line(const std::vector<DetailLine>& lines, std::string_view name) {
    for (const DetailLine& candidate : lines) {
        if (candidate.name == name) {
            return candidate;
        }
    }
    throw std::out_of_range("no line " + std::string(name));
}

/// F and B of rank 0, micro-batch 2 take 0 % longer, of micro-batch 0 10 % less (see canned.cpp).
RunData jittered() {
    return canned_run({.ranks = 2, .micro_batches = 3, .jitter = 0.1});
}

TEST(Details, ShowBothSidesWhicheverIsSelected) {
    const RunData run = jittered();
    const ActionDetails of_predicted = details_of(run, find(run, Side::Predicted, b2_of_0));
    const ActionDetails of_measured = details_of(run, find(run, Side::Measured, b2_of_0));
    EXPECT_EQ(of_predicted.title, "0B2");
    EXPECT_THAT(of_predicted.subtitle, HasSubstr("rank 0, stage 0, micro-batch 2"));
    ASSERT_EQ(of_predicted.lines.size(), of_measured.lines.size());
    for (std::size_t i = 0; i < of_predicted.lines.size(); ++i) {
        EXPECT_EQ(of_predicted.lines[i].predicted, of_measured.lines[i].predicted);
        EXPECT_EQ(of_predicted.lines[i].measured, of_measured.lines[i].measured);
        EXPECT_EQ(of_predicted.lines[i].error, of_measured.lines[i].error);
    }
}

TEST(Details, HoldBeginDurationErrorAndIdleTime) {
    const RunData run = jittered();
    const Action b0{.op = Op::Backward, .stage = 0, .micro_batch = 0};
    const ActionDetails details = details_of(run, find(run, Side::Measured, b0));
    const DetailLine& duration = line(details.lines, "duration");
    EXPECT_EQ(duration.predicted, short_time(std::chrono::milliseconds(2)));
    EXPECT_EQ(duration.measured, short_time(std::chrono::microseconds(1800)));
    EXPECT_EQ(duration.error, "+11.1 %");
    EXPECT_EQ(line(details.lines, "start").predicted, "10.00 ms");
}

TEST(Details, IdleBeforeAnActionIsTheTimeSinceTheOneBefore) {
    const RunData run = canned_run();
    const ActionDetails details = details_of(run, find(run, Side::Predicted, b2_of_0));
    // Rank 0 ends 0F2 at 3 ms; 1B2 ends at 6 ms.
    EXPECT_EQ(line(details.lines, "idle before").predicted,
              short_time(std::chrono::milliseconds(3)));
}

TEST(Details, AMessageSaysHowLongItWaitedAndForWhom) {
    const RunData run = canned_run();
    const ActionDetails details = details_of(run, find(run, Side::Measured, recv_b2_of_0));
    EXPECT_EQ(line(details.lines, "wait").measured, short_time(std::chrono::milliseconds(3)));
    EXPECT_EQ(line(details.lines, "duration").measured, short_time(Duration{}));
    EXPECT_THAT(sentence_of(run, find(run, Side::Measured, recv_b2_of_0)),
                HasSubstr("waits 3.00 ms, takes 0 ns; predicted 0 ns"));
    EXPECT_EQ(details.note, "The other end is 1SEND_B2 on rank 1.");
}

TEST(Details, ASkipMessageSaysHowFarItGoes) {
    const auto run = run_with_skips();
    const Action send{.op = Op::SendForward, .stage = 0, .micro_batch = 2, .hop = 2};
    const Action receive{.op = Op::RecvForward, .stage = 2, .micro_batch = 1, .hop = 1};
    const SpanRef of_send = find(*run, Side::Predicted, send);
    const ActionDetails sent = details_of(*run, of_send);
    EXPECT_EQ(sent.title, "0SEND_F2>3");
    EXPECT_THAT(sent.subtitle,
                HasSubstr("rank 0, stage 0, micro-batch 2, to stage 3, past 2 stages"));
    EXPECT_THAT(sent.note, HasSubstr("The other end is 3RECV_F2<0 on rank 3."));
    EXPECT_THAT(sentence_of(*run, of_send), HasSubstr("to stage 3, past 2 stages"));
    const ActionDetails taken = details_of(*run, find(*run, Side::Measured, receive));
    EXPECT_THAT(taken.subtitle, HasSubstr("from stage 0, past 1 stage"));
    EXPECT_THAT(taken.subtitle, Not(HasSubstr("stages")));
}

TEST(Details, OfAMissingSideAreEmptyTexts) {
    RunData run = canned_run();
    run.twin.measured.clear();
    run.measured.reset();
    run.comparison.reset();
    const ActionDetails details = details_of(run, find(run, Side::Predicted, b2_of_0));
    for (const DetailLine& each : details.lines) {
        EXPECT_FALSE(each.predicted.empty());
        EXPECT_TRUE(each.measured.empty());
        EXPECT_TRUE(each.error.empty());
    }
}

TEST(Details, OfNothingAreEmpty) {
    const RunData run = canned_run();
    EXPECT_THAT(details_of(run, {.rank = 99}).lines, IsEmpty());
    EXPECT_THAT(sentence_of(run, {.cell = 99}), IsEmpty());
    EXPECT_THAT(details_of(RunData{}, {}).title, IsEmpty());
}

TEST(Details, NameTheMedianWhereThereAreSeveralSteps) {
    RunData run = jittered();
    run.measured->steps = 12;
    const ActionDetails details = details_of(run, find(run, Side::Predicted, b2_of_0));
    EXPECT_EQ(line(details.lines, "duration, median").predicted,
              short_time(std::chrono::milliseconds(2)));
    EXPECT_THAT(details.note, HasSubstr("12 steps"));
}

TEST(Sentence, SaysWhatAScreenReaderNeeds) {
    const RunData run = jittered();
    const Action b0{.op = Op::Backward, .stage = 0, .micro_batch = 0};
    const std::string sentence = sentence_of(run, find(run, Side::Measured, b0));
    EXPECT_THAT(sentence, HasSubstr("0B0"));
    EXPECT_THAT(sentence, HasSubstr("micro-batch 0"));
    EXPECT_THAT(sentence, HasSubstr("measured"));
    EXPECT_THAT(sentence, HasSubstr("error +11.1 %"));
}

TEST(StepLines, CompareStepAndPipelineAndBubble) {
    const RunData run = jittered();
    const std::vector<DetailLine> lines = step_lines(run, 0);
    EXPECT_EQ(line(lines, "step").predicted, short_time(run.twin.predicted.front().length));
    EXPECT_EQ(line(lines, "pipeline").measured, short_time(run.twin.measured.front().pipeline));
    // 2 ranks, 3 micro-batches: (K - 1) / (M + K - 1) = 1/4.
    EXPECT_EQ(line(lines, "bubble").predicted, "25.0 %");
}

TEST(BreakdownLines, LeaveOutWhatIsZeroOnBothSides) {
    RunData run = canned_run();
    EXPECT_THAT(breakdown_lines(run), IsEmpty());
    Breakdown predicted;
    predicted.forward = std::chrono::milliseconds(3);
    run.comparison->predicted_breakdown = predicted;
    const std::vector<DetailLine> lines = breakdown_lines(run);
    ASSERT_EQ(lines.size(), 1U);
    EXPECT_EQ(lines[0].name, "forward");
    EXPECT_EQ(lines[0].measured, "");
}

/// "By action" said that forwards were predicted 38 % too long, and "Breakdown" beside it that they
/// were predicted too short: a predicted forward includes its dispatch, and a measured one does
/// not.
TEST(OpLines, LeaveTheDispatchOutOfBothSides) {
    RunData run = jittered();
    run.predicted->dispatch = std::chrono::microseconds(250);
    run.measured->dispatch = Duration{};
    // 2 ranks with 3 forwards of 1 ms each.
    EXPECT_EQ(line(op_lines(run, 0), "forward").predicted, "4.50 ms");
    Duration measured{};
    for (const RowIndex& row : run.twin.measured.front().ranks) {
        for (int cell = 0; cell < row.size(); ++cell) {
            measured += row.op(cell) == Op::Forward ? row.end(cell) - row.ready(cell) : Duration{};
        }
    }
    EXPECT_EQ(line(op_lines(run, 0), "forward").measured, short_time(measured));
    EXPECT_THAT(op_heading(run), HasSubstr("without dispatch"));
    EXPECT_THAT(dispatch_note(run), HasSubstr("leave out 250 us of dispatch"));
    EXPECT_THAT(details_of(run, find(run, Side::Measured, b2_of_0)).note,
                HasSubstr("leave out 250 us of dispatch"));
    run.measured->dispatch = run.predicted->dispatch;  // a paced device
    EXPECT_THAT(dispatch_note(run), HasSubstr("every action includes it"));
    run.predicted->dispatch.reset();
    EXPECT_THAT(op_heading(run), HasSubstr("predicted sums may include dispatch"));
    run.predicted = {};
    run.measured->dispatch.reset();  // a trace alone: no plan says what its actions include
    EXPECT_THAT(op_heading(run), HasSubstr("measured sums may include dispatch"));
}

/// The window had 32.1 % for a step whose report says 80.5 %: it counted dispatch as work.
TEST(StepLines, CountDispatchAsWorkOnBothSidesAsTheComparisonDoes) {
    PlanParts parts = make_plan(pipetwin::testing::plain(ScheduleKind::GPipe, 2, 3)).parts();
    parts.dispatch = std::chrono::milliseconds(1);
    const Plan plan = Plan::make(std::move(parts));
    const Timeline predicted = sim::simulate(plan);
    Timeline measured = predicted;  // of a real device: dispatch is before the actions
    measured.origin = Origin::Measured;
    for (auto& row : measured.ranks) {
        for (Span& span : row) {
            if (is_compute(span.action.op)) {
                span.begin += plan->dispatch;
                span.ready = span.begin;
            }
        }
    }
    RunData run = *planned_run(plan, {measured});
    run.predicted->dispatch = plan->dispatch;
    run.measured->dispatch = Duration{};
    run.comparison->predicted_breakdown = sim::breakdown(plan, predicted);
    // 3 (F + B + 2 c) of 15 ms of work in (M + K - 1) (F + B + 2 c) = 20 ms.
    EXPECT_EQ(line(step_lines(run, 0), "bubble").predicted, "25.0 %");
    EXPECT_EQ(line(step_lines(run, 0), "bubble").measured, "25.0 %");
    run.comparison.reset();  // a prediction alone: the bubble of `simulate`, which is the same
    EXPECT_EQ(line(step_lines(run, 0), "bubble").predicted, "25.0 %");
}

/// Sums over two ranks in one table are twice the means over the ranks in the other.
TEST(OpLines, AgreeWithTheBreakdown) {
    PlanParts parts = make_plan(pipetwin::testing::plain(ScheduleKind::GPipe, 2, 2)).parts();
    parts.dispatch = std::chrono::microseconds(10);
    const Plan plan = Plan::make(std::move(parts));
    std::mt19937 random(3);
    const Timeline measured = jittered_step(plan, random);
    RunData run = *planned_run(plan, {measured});
    run.predicted->dispatch = plan->dispatch;
    run.measured->dispatch = sim::dispatch_in_actions(plan, measured);
    const Breakdown predicted_means = sim::breakdown(plan, sim::simulate(plan));
    const Breakdown measured_means = sim::breakdown(plan, measured);
    const std::vector<DetailLine> lines = op_lines(run, 0);
    EXPECT_EQ(line(lines, "forward").predicted, short_time(2 * predicted_means.forward));
    EXPECT_EQ(line(lines, "forward").measured, short_time(2 * measured_means.forward));
    EXPECT_EQ(line(lines, "backward").predicted, short_time(2 * predicted_means.backward));
    EXPECT_EQ(line(lines, "backward").measured, short_time(2 * measured_means.backward));
}

TEST(StepsWords, SayThatATraceHasTheQuietSteps) {
    RunData run = canned_run({.ranks = 2, .micro_batches = 2, .steps = 3});
    EXPECT_EQ(steps_words(run), "3 steps");
    run.measured->noise = {.dropped_steps = 37, .steps = 3};
    EXPECT_EQ(steps_words(run), "the 3 quiet steps of a run of 40");
    run.measured->noise = {.dropped_steps = 39, .steps = 1};
    run.measured->steps = 1;
    EXPECT_EQ(steps_words(run), "the 1 quiet step of a run of 40");
    run.measured->noise = {.dropped_steps = 40, .steps = 0};
    EXPECT_EQ(steps_words(run), "1 step of a run of 40, in which none was quiet");
}

/// The panel added the steps that the trace leaves out to those that it has, which is no number of
/// steps of anything: a trace has at most 31 of the quiet steps.
TEST(StepsWords, CountQuietStepsThatTheTraceDoesNotHave) {
    RunData run = canned_run({.ranks = 2, .micro_batches = 2, .steps = 31});
    run.measured->noise = {.dropped_steps = 95, .steps = 105};
    EXPECT_EQ(steps_words(run), "31 of the 105 quiet steps of a run of 200");
}

TEST(SaysNothing, WhereTheNoiseOfTheMeasuringIsTooLarge) {
    RunData run = jittered();
    EXPECT_EQ(says_nothing(run), "");  // the noise is not known
    run.comparison->noise = {.dropped_steps = 2, .steps = 3};
    EXPECT_EQ(
        says_nothing(run),
        "The run is too short to be compared: the errors say nothing about the prediction, as "
        "fewer than 11 steps were quiet (3).");
    run.comparison->noise = {.dropped_steps = 2, .steps = 0};
    EXPECT_EQ(
        says_nothing(run),
        "The run is too short to be compared: the errors say nothing about the prediction, as "
        "none of the 2 steps was quiet.");
    run.comparison->noise = {.dropped_steps = 2, .steps = 11};
    EXPECT_EQ(says_nothing(run), "");
}

TEST(PlanLine, CountsInWords) {
    EXPECT_EQ(plan_line(canned_run({.ranks = 4, .micro_batches = 8})),
              "gpipe, 4 ranks, 8 micro-batches");
    RunData imagined = canned_run({.ranks = 4, .micro_batches = 8});
    imagined.is_what_if = true;
    EXPECT_EQ(plan_line(imagined).find("What if: "), 0U);
    EXPECT_EQ(plan_line(canned_run({.ranks = 1, .micro_batches = 1})),
              "gpipe, 1 rank, 1 micro-batch");
}

/// The title of a plan of 64 devices said "1 rank".
TEST(PlanLine, CountsReplicasAndTheDevicesOfARank) {
    PlanParts parts = pipetwin::testing::uniform_plan({.ranks = 2, .micro_batches = 4}).parts();
    parts.schedule_name = "1f1b";
    parts.replicas = 16;
    parts.tensor_parallel = 4;
    EXPECT_EQ(plan_line(*planned_run(Plan::make(parts))),
              "1f1b, 2 ranks of 4 devices, 4 micro-batches, 16 replicas");
}

TEST(PlanLine, SaysHowManyReplicasThereAreAndWhichIsShown) {
    RunData run = canned_run({.ranks = 2, .micro_batches = 2});
    run.replicas = 2;
    run.replica = 1;
    EXPECT_EQ(plan_line(run), "gpipe, 2 ranks, 2 micro-batches, 2 replicas, showing replica 1");
    run.replicas = 4;
    EXPECT_EQ(plan_line(run), "gpipe, 2 ranks, 2 micro-batches, 4 replicas, showing replica 1");
}

TEST(PointsText, HasASignUnlessItIsZero) {
    EXPECT_EQ(points_text(-1.94), "-1.94 points");
    EXPECT_EQ(points_text(0.01), "+0.01 points");
    EXPECT_EQ(points_text(0.001), "0 points");
}

TEST(PercentText, LeavesOutWhatIsNoNumber) {
    EXPECT_EQ(percent_text(2.84), "+2.84 %");
    EXPECT_EQ(percent_text(-0.04), "-0.04 %");
    EXPECT_EQ(percent_text(-0.004), "0 %");
    EXPECT_EQ(percent_text(157.84), "+158 %");
    EXPECT_EQ(percent_text(std::numeric_limits<double>::infinity()), "");
}

}  // namespace action_details_test
}  // namespace pipetwin::gui
