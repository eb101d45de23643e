// SPDX-License-Identifier: Apache-2.0
#include "gui/view/analysis/step_analysis.h"

#include <random>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/plan/plain_plan.h"
#include "core/schedule/generators/generate.h"
#include "sim/engine/conditions.h"
#include "sim/explain/waits.h"
#include "sim/simulate/simulate.h"
#include "tests/gui/canned.h"
#include "tests/gui/planned.h"
#include "tests/support/plain_plan.h"

namespace pipetwin::gui {
namespace step_analysis_test {

using pipetwin::testing::plain;
using pipetwin::testing::random_costs;
using std::chrono::microseconds;
using std::chrono::milliseconds;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::size_t at(int number) {
    return static_cast<std::size_t>(number);
}

SpanRef ref_of(const RunData& run, Side side, const char* text) {
    for (int rank = 0; rank < run.twin.rank_count(); ++rank) {
        const RowIndex& row = *run.twin.row(side, 0, rank);
        for (int cell = 0; cell < row.size(); ++cell) {
            if (to_string(row.action(cell)) == text) {
                return {.side = side, .step = 0, .rank = rank, .cell = cell};
            }
        }
    }
    ADD_FAILURE() << text;
    return {};
}

/// Every span of a side, messages too, and the place after each row.
std::vector<SpanRef> all_places(const RunData& run, Side side) {
    std::vector<SpanRef> refs;
    for (int rank = 0; rank < run.twin.rank_count(); ++rank) {
        for (int cell = 0; cell <= run.twin.row(side, 0, rank)->size(); ++cell) {
            refs.push_back({.side = side, .step = 0, .rank = rank, .cell = cell});
        }
    }
    return refs;
}

/// Small plans of several schedules with costs of their own; every third has little room.
std::vector<Plan> random_plans() {
    std::mt19937 random(7);
    std::vector<Plan> plans;
    for (const ScheduleKind schedule : {ScheduleKind::GPipe, ScheduleKind::OneFOneB}) {
        for (int ranks = 1; ranks <= 4; ++ranks) {
            for (const int micro_batches : {1, 3, 6}) {
                PlainCosts costs = random_costs(schedule, ranks, micro_batches, random);
                if (plans.size() % 3 == 2) {
                    costs.channel_capacity = 1;
                }
                plans.push_back(make_plan(costs));
            }
        }
    }
    return plans;
}

TEST(StepAnalysis, OfGPipeHasTheIdleTimeOfTheClosedForm) {
    for (int ranks = 1; ranks <= 5; ++ranks) {
        for (int micro_batches = 1; micro_batches <= 6; ++micro_batches) {
            const auto run =
                planned_run(make_plan(plain(ScheduleKind::GPipe, ranks, micro_batches)));
            const StepAnalysis analysis(run, Side::Predicted, 0);
            // Each of K ranks idles (K - 1) (F + B), and nothing of it is the link's.
            const Duration idle = ranks * (ranks - 1) * milliseconds(3);
            EXPECT_EQ(analysis.idle().wait, idle);
            EXPECT_EQ(analysis.idle()[WaitPart::Compute] + analysis.idle()[WaitPart::RankBusy],
                      idle);
        }
    }
}

TEST(StepAnalysis, PartsOfAWaitSumToIt) {
    std::mt19937 random(3);
    for (const Plan& plan : random_plans()) {
        const auto run = planned_run(plan, {jittered_step(plan, random)});
        for (const Side side : {Side::Predicted, Side::Measured}) {
            const StepAnalysis analysis(run, side, 0);
            ASSERT_TRUE(analysis.has_causes()) << analysis.note();
            for (const SpanRef& ref : all_places(*run, side)) {
                const WaitSplit split = analysis.split_of(ref);
                Duration sum{};
                for (const Duration part : split.parts) {
                    sum += part;
                }
                EXPECT_EQ(sum, split.wait);
                EXPECT_EQ(split.wait, analysis.wait_of(ref));
                // The measured step is one of the rules.
                EXPECT_EQ(split[WaitPart::Unexplained], Duration{});
            }
        }
    }
}

TEST(StepAnalysis, WaitsOfAPredictedStepAreThoseOfTheSimulator) {
    for (const Plan& plan : random_plans()) {
        const auto run = planned_run(plan);
        const StepAnalysis analysis(run, Side::Predicted, 0);
        Duration sum{};
        for (const sim::Wait& wait : sim::waits_of(sim::simulate(plan))) {
            sum += wait.end - wait.begin;
        }
        EXPECT_EQ(analysis.idle().wait, sum);
        Duration listed{};
        for (const IdleTime& idle : analysis.idle_times()) {
            listed += idle.wait;
        }
        EXPECT_EQ(listed, sum);
    }
}

TEST(StepAnalysis, WaitsAndActionsFillTheStep) {
    std::mt19937 random(5);
    for (const Plan& plan : random_plans()) {
        const auto run = planned_run(plan, {jittered_step(plan, random)});
        const StepAnalysis analysis(run, Side::Measured, 0);
        std::vector<Duration> filled(at(run->twin.rank_count()));
        for (const IdleTime& idle : analysis.idle_times()) {
            filled[at(idle.ref.rank)] += idle.wait;
        }
        for (const SpanRef& ref : all_places(*run, Side::Measured)) {
            const auto span = run->twin.span(ref);
            if (span && !is_send(span->action.op) && !is_receive(span->action.op)) {
                filled[at(ref.rank)] += span->end - span->ready;
            }
        }
        for (const Duration time : filled) {
            EXPECT_EQ(time, analysis.length());
        }
    }
}

/// The simulator with one action a nanosecond longer.
Timeline with_longer(const Plan& plan, const SpanRef& longer) {
    sim::Conditions conditions = sim::with_planned_durations(plan);
    conditions.durations[at(longer.rank)][at(longer.cell)] += Duration{1};
    return sim::replay(plan, conditions);
}

TEST(StepAnalysis, WhoBlocksAnActionDelaysItByBeingLonger) {
    for (const Plan& plan : random_plans()) {
        const auto run = planned_run(plan);
        const StepAnalysis analysis(run, Side::Predicted, 0);
        for (const SpanRef& ref : all_places(*run, Side::Predicted)) {
            const auto span = run->twin.span(ref);
            if (!span) {
                continue;
            }
            const auto blocker = analysis.blocker_of(ref);
            ASSERT_EQ(blocker.has_value(), span->ready > Duration{});
            if (blocker) {
                const Timeline later = with_longer(plan, *blocker);
                EXPECT_EQ(later.ranks[at(ref.rank)][at(ref.cell)].ready, span->ready + Duration{1})
                    << to_string(span->action);
            }
        }
    }
}

TEST(StepAnalysis, WhatAnActionUnblocksIsBlockedByIt) {
    int found = 0;
    for (const Plan& plan : random_plans()) {
        const auto run = planned_run(plan);
        const StepAnalysis analysis(run, Side::Predicted, 0);
        for (const SpanRef& ref : all_places(*run, Side::Predicted)) {
            const auto span = run->twin.span(ref);
            const bool message = span && (is_send(span->action.op) || is_receive(span->action.op));
            const auto next = analysis.unblocked_by(ref);
            if (next && !message) {
                EXPECT_EQ(analysis.blocker_of(*next), ref);
                ++found;
            }
        }
    }
    EXPECT_GT(found, 0);
}

TEST(StepAnalysis, TheCriticalPathHasNoGapsAndDecidesTheStep) {
    for (const Plan& plan : random_plans()) {
        const auto run = planned_run(plan);
        const StepAnalysis analysis(run, Side::Predicted, 0);
        Duration end{};
        for (const PathPiece& piece : analysis.critical_path()) {
            EXPECT_EQ(piece.begin, end);
            end = piece.end;
            EXPECT_EQ(run->twin.span(piece.ref)->action, piece.action);
            EXPECT_TRUE(analysis.on_critical_path(piece.ref));
            if (!is_send(piece.action.op)) {
                EXPECT_EQ(step_time(with_longer(plan, piece.ref)), analysis.length() + Duration{1});
                EXPECT_EQ(analysis.slack_of(piece.ref), Duration{});
            }
        }
        EXPECT_EQ(end, analysis.length());
    }
}

TEST(StepAnalysis, TheChainLeadsBackToTheStart) {
    for (const Plan& plan : random_plans()) {
        const auto run = planned_run(plan);
        const StepAnalysis analysis(run, Side::Predicted, 0);
        for (const SpanRef& ref : all_places(*run, Side::Predicted)) {
            Duration end{};
            for (const WaitPiece& piece : analysis.chain_of(ref)) {
                EXPECT_EQ(piece.begin, end);
                end = piece.end;
            }
            const auto span = run->twin.span(ref);
            EXPECT_EQ(end, span ? span->ready : analysis.length());
        }
    }
}

/// F 1 ms, B 2 ms, two ranks, a message takes 0.25 ms.
Plan with_links() {
    PlainCosts costs = plain(ScheduleKind::GPipe, 2, 2);
    costs.link.latency = microseconds(250);
    return make_plan(costs);
}

TEST(StepAnalysis, NamesWhatAnActionWaitedFor) {
    const auto run = planned_run(with_links());
    const StepAnalysis analysis(run, Side::Predicted, 0);
    // Rank 1: 1.25 to 3.25 F, then its first B until 5.25; it is on rank 0 at 5.5.
    const RowIndex& row = *run->twin.row(Side::Predicted, 0, 1);
    SpanRef first_backward{.side = Side::Predicted, .rank = 0};
    std::string name;
    for (int cell = 0; cell < row.size() && name.empty(); ++cell) {
        if (row.action(cell).op == Op::Backward) {
            name = fmt::format("B{}", row.action(cell).micro_batch);
        }
    }
    first_backward = ref_of(*run, Side::Predicted, ("0" + name).c_str());
    const WaitSplit split = analysis.split_of(first_backward);
    EXPECT_EQ(split.wait, microseconds(3500));
    EXPECT_EQ(split[WaitPart::Link], microseconds(250));
    EXPECT_EQ(split.wait - split[WaitPart::Link],
              split[WaitPart::Compute] + split[WaitPart::RankBusy]);
    const auto blocker = analysis.blocker_of(first_backward);
    ASSERT_TRUE(blocker);
    EXPECT_EQ(to_string(run->twin.span(*blocker)->action), "1" + name);
    EXPECT_EQ(analysis.unblocked_by(ref_of(*run, Side::Predicted, "0F0")),
              ref_of(*run, Side::Predicted, "1F0"));
}

TEST(StepAnalysis, TimeOfTheHostBeforeAnActionIsUnexplained) {
    const Plan plan = with_links();
    Timeline late = sim::simulate(plan);
    late.origin = Origin::Measured;
    late.links.clear();
    for (auto& row : late.ranks) {
        Duration shift{};
        for (Span& span : row) {
            // The whole of rank 1 is a millisecond late from its first forward on.
            shift = row.front().action.stage == 1 && span.action.op == Op::Forward ? milliseconds(1)
                                                                                   : shift;
            span = {.action = span.action,
                    .begin = span.begin + shift,
                    .ready = span.ready + shift,
                    .end = span.end + shift};
        }
    }
    const auto run = planned_run(plan, {late});
    const StepAnalysis analysis(run, Side::Measured, 0);
    const WaitSplit split = analysis.split_of(ref_of(*run, Side::Measured, "1F0"));
    EXPECT_EQ(split.wait, microseconds(2250));
    EXPECT_EQ(split[WaitPart::Unexplained], milliseconds(1));
    EXPECT_EQ(split[WaitPart::Link], microseconds(250));
}

TEST(StepAnalysis, EveryWaitOfAMessageIsPartOfOneInTheList) {
    const Plan plan = make_plan(plain(ScheduleKind::OneFOneB, 3, 5));
    const auto run = planned_run(plan);
    const StepAnalysis analysis(run, Side::Predicted, 0);
    int messages = 0;
    for (int rank = 0; rank < run->twin.rank_count(); ++rank) {
        const RowIndex& row = *run->twin.row(Side::Predicted, 0, rank);
        for (int cell = 0; cell < row.size(); ++cell) {
            const SpanRef ref{.side = Side::Predicted, .step = 0, .rank = rank, .cell = cell};
            const SpanRef whose = analysis.whose_wait(ref);
            const bool waits =
                is_receive(row.action(cell).op) && analysis.wait_of(ref) > Duration{};
            if (!waits) {
                EXPECT_EQ(whose, ref);
                continue;
            }
            ++messages;
            EXPECT_TRUE(std::ranges::any_of(analysis.idle_times(), [&](const IdleTime& idle) {
                return idle.ref == whose && idle.wait >= analysis.wait_of(ref);
            }));
        }
    }
    EXPECT_GT(messages, 0);
}

TEST(StepAnalysis, WithoutAPlanKnowsWaitsAndMessages) {
    const auto run = std::make_shared<const RunData>(canned_run());
    const StepAnalysis analysis(run, Side::Measured, 0);
    EXPECT_FALSE(analysis.has_causes());
    EXPECT_THAT(analysis.note(), HasSubstr("which rank computes which stage"));
    const SpanRef b2 = ref_of(*run, Side::Measured, "0B2");
    EXPECT_EQ(analysis.wait_of(b2), milliseconds(3));  // see canned.h
    EXPECT_EQ(analysis.split_of(b2)[WaitPart::Unexplained], milliseconds(3));
    EXPECT_EQ(analysis.blocker_of(b2), ref_of(*run, Side::Measured, "1B2"));
    EXPECT_EQ(analysis.unblocked_by(ref_of(*run, Side::Measured, "1B2")), b2);
    EXPECT_EQ(analysis.blocker_of(ref_of(*run, Side::Measured, "0F1")),
              ref_of(*run, Side::Measured, "0F0"));
    EXPECT_EQ(analysis.blocker_of(ref_of(*run, Side::Measured, "0F0")), std::nullopt);
    EXPECT_EQ(analysis.slack_of(b2), std::nullopt);
    EXPECT_THAT(analysis.critical_path(), IsEmpty());
}

TEST(StepAnalysis, OfAnotherPlanTakesThatOfTheStepItself) {
    RunData run = canned_run();
    run.planned = planned_run(with_links())->planned;
    const Plan own = make_plan(plain(ScheduleKind::GPipe, 2, 3));
    EXPECT_FALSE(
        StepAnalysis(std::make_shared<const RunData>(run), Side::Predicted, 0).has_causes());
    for (auto* const side : {&run.predicted, &run.measured}) {
        (*side)->form = form_of(own->schedule);
    }
    const auto shared = std::make_shared<const RunData>(run);
    for (const Side side : {Side::Predicted, Side::Measured}) {
        const StepAnalysis analysis(shared, side, 0);
        ASSERT_TRUE(analysis.has_causes()) << analysis.note();
        const SpanRef b2 = ref_of(*shared, side, "0B2");
        EXPECT_EQ(analysis.split_of(b2)[WaitPart::Unexplained], Duration{});
        EXPECT_EQ(analysis.blocker_of(b2), ref_of(*shared, side, "1B2"));
        EXPECT_EQ(analysis.slack_of(b2).has_value(), side == Side::Predicted);
    }
}

TEST(StepAnalysis, OfNothingIsNothing) {
    const auto run = planned_run(with_links());
    const StepAnalysis analysis(run, Side::Predicted, 0);
    for (const SpanRef& ref : {SpanRef{.side = Side::Measured},
                               SpanRef{.rank = 9},
                               SpanRef{.cell = 999},
                               SpanRef{.rank = -1, .cell = -1}}) {
        EXPECT_EQ(analysis.wait_of(ref), Duration{});
        EXPECT_THAT(analysis.pieces_of(ref), IsEmpty());
        EXPECT_THAT(analysis.chain_of(ref), IsEmpty());
        EXPECT_EQ(analysis.blocker_of(ref), std::nullopt);
        EXPECT_EQ(analysis.unblocked_by(ref), std::nullopt);
        EXPECT_EQ(analysis.slack_of(ref), std::nullopt);
        EXPECT_FALSE(analysis.on_critical_path(ref));
    }
}

TEST(AnalysisOf, IsMadeOnceForThoseWhoHoldIt) {
    const Plan plan = with_links();
    std::mt19937 random(1);
    const auto run = planned_run(plan, {jittered_step(plan, random), jittered_step(plan, random)});
    const auto first = analysis_of(run, Side::Predicted, 0);
    EXPECT_EQ(analysis_of(run, Side::Predicted, 1), first);  // stands for every step
    EXPECT_NE(analysis_of(run, Side::Measured, 0), analysis_of(run, Side::Measured, 1));
    EXPECT_EQ(analysis_of(run, Side::Measured, 7), nullptr);
    EXPECT_EQ(analysis_of(nullptr, Side::Measured, 0), nullptr);
}

}  // namespace step_analysis_test
}  // namespace pipetwin::gui
