// SPDX-License-Identifier: Apache-2.0
#include "gui/view/run/run_data.h"

#include <fstream>

#include <QTemporaryDir>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/artifacts/chrome_trace.h"
#include "core/schedule/generators/generate.h"
#include "core/schedule/schedule_csv.h"
#include "core/schedule/validate.h"
#include "gui/view/analysis/step_analysis.h"
#include "gui/view/analysis/wait_words.h"
#include "gui/view/what_if/what_if.h"
#include "sim/simulate/simulate.h"
#include "tests/gui/canned.h"

namespace pipetwin::gui {
namespace run_data_test {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

/// GPipe on four ranks, eight micro-batches, F 10 ms, B 20 ms, as both engines would write it.
class RunFolder : public ::testing::Test {
  protected:
    static Plan plan(ScheduleKind schedule = ScheduleKind::GPipe, int micro_batches = 8) {
        PlainCosts costs;
        costs.schedule = schedule;
        costs.shape = {.ranks = 4, .micro_batches = micro_batches};
        costs.forward.assign(4, std::chrono::milliseconds(10));
        costs.backward.assign(4, std::chrono::milliseconds(20));
        return make_plan(costs);
    }

    static Trace trace(Origin origin, std::vector<Timeline> steps, const Plan& the_plan = plan()) {
        Trace result;
        result.plan_hash = the_plan.hash();
        result.schedule_name = "gpipe";
        result.schedule = the_plan->schedule;
        for (Timeline& step : steps) {
            step.origin = origin;
        }
        result.timelines.steps = std::move(steps);
        return result;
    }

    /// The step with every time `percent` longer, and begun `late`.
    static Timeline slower(Timeline step, int percent, Duration late) {
        for (std::vector<Span>& row : step.ranks) {
            for (Span& span : row) {
                for (Duration* const time : {&span.begin, &span.ready, &span.end}) {
                    *time += *time * percent / 100 + late;
                }
            }
        }
        step.links.clear();
        return step;
    }

    std::filesystem::path write(const char* name, const std::string& content) const {
        const std::filesystem::path path = folder() / name;
        std::ofstream(path) << content;
        return path;
    }

    void write_both() const {
        const Timeline step = sim::simulate(plan());
        write("predicted.trace.json", print_chrome_trace(trace(Origin::Predicted, {step})));
        const Duration late = std::chrono::milliseconds(3);
        write("measured.trace.json",
              print_chrome_trace(
                  trace(Origin::Measured,
                        {slower(step, 30, late), slower(step, 10, late), slower(step, 5, late)})));
    }

    std::filesystem::path folder() const { return folder_.path().toStdString(); }

    QTemporaryDir folder_;
};

/// What torch.profiler writes of a rank: F 1 ms, B 2 ms, one after the other.
std::string torch_trace(int rank, const std::vector<const char*>& actions, int begin_us) {
    std::string events;
    for (const char* const action : actions) {
        const int length = std::string(action).find('B') == std::string::npos ? 1000 : 2000;
        events += (events.empty() ? "" : ",\n") +
                  (R"({"ph":"X","cat":"user_annotation","name":"PP:)" + std::string(action)) +
                  R"(","pid":7,"tid":7,"ts":)" + std::to_string(begin_us) + R"(,"dur":)" +
                  std::to_string(length) + "}";
        begin_us += length;
    }
    return R"({"schemaVersion":1,"distributedInfo":{"rank":)" + std::to_string(rank) +
           R"(},"traceEvents":[)" + events + "]}";
}

TEST_F(RunFolder, GivesBothSidesAlignedAndCompared) {
    write_both();
    const RunData run = load_run(folder());
    EXPECT_THAT(run.problems, IsEmpty());
    ASSERT_TRUE(run.predicted && run.measured && run.comparison);
    EXPECT_EQ(run.schedule_name, "gpipe");
    EXPECT_EQ(run.micro_batches, 8);
    EXPECT_EQ(run.twin.rank_count(), 4);
    EXPECT_EQ(run.predicted->step, std::chrono::milliseconds(330));  // (8 + 3) * 30
    EXPECT_EQ(run.twin.span({.side = Side::Measured})->begin, Duration{0});
}

TEST_F(RunFolder, AScheduleOfOnesOwnHasNoWhatIfs) {
    const auto run = std::make_shared<const RunData>(
        load_run(write("two.csv", "0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n")));
    EXPECT_EQ(WhatIfSource(run).why_not(),
              "What-ifs and the heat map need a built-in schedule; two.csv is not one.");
    EXPECT_THAT(run->notes, ElementsAre(HasSubstr("A schedule file contains no times.")));
    EXPECT_EQ(cost_source(*run), "unit costs");
}

TEST_F(RunFolder, KnowsTheDispatchInItsActionsWhereThePlanIsKnown) {
    const RunData run = load_run(write("two.csv", "0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n"));
    EXPECT_EQ(run.predicted->dispatch, Duration{});  // unit costs
    write_both();
    EXPECT_FALSE(load_run(folder()).predicted->dispatch.has_value());
}

/// The window said "error -3.19 %" of a run of which `pipetwin run` says that its error says
/// nothing.
TEST_F(RunFolder, NotesThatTheErrorsOfANoisyRunSayNothing) {
    const Timeline step = sim::simulate(plan());
    write("predicted.trace.json", print_chrome_trace(trace(Origin::Predicted, {step})));
    Trace measured = trace(Origin::Measured, {slower(step, 5, {}), slower(step, 6, {})});
    measured.timelines.noise = {.dropped_steps = 38, .steps = 2};
    write("measured.trace.json", print_chrome_trace(measured));
    const RunData run = load_run(folder());
    EXPECT_THAT(run.notes, ElementsAre(HasSubstr("the errors say nothing about the prediction")));
    EXPECT_EQ(run.measured->left_out(), 38);
}

TEST_F(RunFolder, DrawsTheStepNearestTheMedian) {
    write_both();
    const RunData run = load_run(folder());
    EXPECT_EQ(run.measured->steps, 3);
    EXPECT_EQ(run.measured->step, std::chrono::milliseconds(363));  // 10 % slower
}

TEST_F(RunFolder, HasTheUtilisationOfTheClosedForm) {
    write_both();
    const RunData run = load_run(folder());
    for (const RankSummary& rank : run.predicted->ranks) {
        EXPECT_DOUBLE_EQ(rank.utilisation, 8.0 / 11);  // M / (M + K - 1)
    }
}

TEST_F(RunFolder, WithOneTraceHasOneSide) {
    write_both();
    std::filesystem::remove(folder() / "predicted.trace.json");
    const RunData run = load_run(folder());
    EXPECT_THAT(run.problems, IsEmpty());
    EXPECT_FALSE(run.predicted);
    EXPECT_TRUE(run.measured);
    EXPECT_FALSE(run.comparison);
}

TEST_F(RunFolder, WithOneBrokenTraceShowsTheOtherAndSaysWhatIsWrong) {
    write_both();
    write("measured.trace.json", "{\"traceEvents\": [");
    const RunData run = load_run(folder());
    EXPECT_TRUE(run.predicted);
    EXPECT_FALSE(run.measured);
    EXPECT_THAT(run.problems, ElementsAre(HasSubstr("measured.trace.json")));
}

TEST_F(RunFolder, OfTwoDifferentPlansIsShownButNotCompared) {
    write_both();
    const Plan other = plan(ScheduleKind::OneFOneB);
    Timeline step = sim::simulate(other);
    step.links.clear();
    write("measured.trace.json", print_chrome_trace(trace(Origin::Measured, {step}, other)));
    const RunData run = load_run(folder());
    EXPECT_TRUE(run.predicted && run.measured);
    EXPECT_FALSE(run.comparison);
    EXPECT_THAT(run.problems, ElementsAre(HasSubstr("cannot be compared")));
}

TEST_F(RunFolder, NamesTheActionsThatOnlyOneSideHas) {
    write_both();
    const Plan longer = plan(ScheduleKind::GPipe, 9);
    Timeline step = sim::simulate(longer);
    step.links.clear();
    write("measured.trace.json", print_chrome_trace(trace(Origin::Measured, {step}, longer)));
    const RunData run = load_run(folder());
    // F8 and B8 of four ranks.
    EXPECT_THAT(run.problems,
                Contains(AllOf(HasSubstr("8 compute actions on one side only"),
                               HasSubstr("0F8 of rank 0 in step 0 (measured only)"))));
    EXPECT_EQ(alone(run.twin, 0).size(), 8U);
}

TEST_F(RunFolder, WithoutTracesSaysWhatWasExpected) {
    const RunData run = load_run(folder());
    EXPECT_TRUE(run.empty());
    EXPECT_THAT(run.problems, ElementsAre(HasSubstr("pipetwin run")));
}

TEST_F(RunFolder, ATraceFileOpensAsTheSideItIsOf) {
    write_both();
    EXPECT_TRUE(load_run(folder() / "predicted.trace.json").predicted);
    EXPECT_TRUE(load_run(folder() / "measured.trace.json").measured);
}

TEST_F(RunFolder, AnEmulatedTraceSaysSo) {
    const auto file =
        write("x.json", print_chrome_trace(trace(Origin::Emulated, {sim::simulate(plan())})));
    const RunData run = load_run(file);
    EXPECT_EQ(side_name(run, Side::Measured), "emulated");
    EXPECT_EQ(side_name(run, Side::Predicted), "");
}

TEST_F(RunFolder, NothingThatLiesThereThrows) {
    write_both();
    std::ifstream whole_file(folder() / "predicted.trace.json");
    const std::string whole{std::istreambuf_iterator<char>(whole_file), {}};
    const std::size_t step = whole.size() / 40;
    for (std::size_t size = 0; size < whole.size() - 2; size += step) {
        const RunData run = load_run(write("cut.json", whole.substr(0, size)));
        EXPECT_FALSE(run.problems.empty()) << size;
    }
    EXPECT_FALSE(load_run("/dev/null").problems.empty());
    EXPECT_FALSE(load_run("").problems.empty());
}

TEST_F(RunFolder, OfARunThatStillWritesShowsTheWholeStepsAndNamesTheByte) {
    write_both();
    std::ifstream whole_file(folder() / "measured.trace.json");
    const std::string whole{std::istreambuf_iterator<char>(whole_file), {}};
    write("measured.trace.json", whole.substr(0, whole.rfind("\"step\":2")));
    const RunData run = load_run(folder());
    ASSERT_TRUE(run.predicted && run.measured && run.comparison);
    EXPECT_EQ(run.measured->steps, 2);
    EXPECT_THAT(
        run.problems,
        ElementsAre(::testing::AllOf(HasSubstr("only 2 of 3 steps"), HasSubstr("at byte"))));
}

// The head of a trace says where the median of all its steps went: a step that may not be there.
TEST_F(RunFolder, WhatIsLeftOfATraceHasNotTheBreakdownOfTheWhole) {
    write_both();
    const Timeline step = slower(sim::simulate(plan()), 10, {});
    Trace measured = trace(Origin::Measured, {step, step, step});
    measured.timelines.breakdown = Breakdown{.forward = std::chrono::milliseconds(7)};
    const std::string whole = print_chrome_trace(measured);
    write("measured.trace.json", whole);
    EXPECT_TRUE(load_run(folder()).comparison->measured_breakdown);
    write("measured.trace.json", whole.substr(0, whole.rfind("\"step\":2")));
    const RunData run = load_run(folder());
    EXPECT_EQ(run.measured->steps, 2);
    EXPECT_FALSE(run.comparison->measured_breakdown);
}

TEST_F(RunFolder, ATraceWhoseTimesCannotBeSaysWhichAndIsNotDrawn) {
    Timeline step = sim::simulate(plan());
    std::swap(step.ranks[1][4].begin, step.ranks[1][5].begin);
    step.ranks[1][5].ready = step.ranks[1][5].begin;
    const RunData run =
        load_run(write("x.json", print_chrome_trace(trace(Origin::Measured, {step}))));
    EXPECT_TRUE(run.empty());
    EXPECT_THAT(run.problems, ElementsAre(HasSubstr("step 0, rank 1, ")));
}

TEST_F(RunFolder, HasTheRowsOfTheReplicaThatIsAskedFor) {
    write_both();
    const Timeline step = sim::simulate(plan());
    Timeline measured = slower(step, 10, {});
    measured.replicas = {slower(step, 30, std::chrono::milliseconds(1)).ranks,
                         slower(step, 50, {}).ranks};
    write("measured.trace.json", print_chrome_trace(trace(Origin::Measured, {measured})));
    const auto step_of = [&](int replica) {
        const RunData run = load_run(folder(), replica);
        EXPECT_THAT(run.problems, IsEmpty());
        EXPECT_EQ(run.replicas, 3);
        EXPECT_EQ(run.replica, replica);
        EXPECT_EQ(run.comparison->step.measured, run.measured->step);
        return run.measured->step;
    };
    EXPECT_EQ(step_of(0), std::chrono::milliseconds(363));  // 1.1 * 330
    EXPECT_EQ(step_of(1), std::chrono::milliseconds(429));
    EXPECT_EQ(step_of(2), std::chrono::milliseconds(495));
    const RunData none = load_run(folder(), 3);
    EXPECT_EQ(none.replica, 0);
    EXPECT_EQ(none.measured->step, std::chrono::milliseconds(363));
    EXPECT_THAT(none.problems, ElementsAre("--replica: there is no replica 3, expected 0 to 2"));
}

TEST_F(RunFolder, ABrokenScheduleFileNamesTheRanksThatAreToBlameAndNoOthers) {
    const auto file = write("gap.csv", "0F0,0B0\n2F0,2B0\n");
    const RunData run = load_run(file);
    EXPECT_TRUE(run.empty());
    EXPECT_THAT(
        run.problems,
        Contains(file.string() + ": stage 1 is on no rank; stages count from 0 without gaps"));
    EXPECT_THAT(run.problems, Not(Contains(HasSubstr("rank -1"))));
    const RunData slip = load_run(write("slip.csv", "0F0,0B0\n1B0,1F0\n"));
    EXPECT_THAT(slip.problems, Contains(HasSubstr("slip.csv: rank 1, cell ")));
}

TEST_F(RunFolder, OfManyProblemsOfAScheduleFileTheFirstAreListedAndTheRestIsCounted) {
    const auto file = write("gap.csv", "0F0,0B0\n13F0,13B0\n");
    const std::size_t broken = validate(read_schedule_csv(file)).size();
    ASSERT_GT(broken, 12U) << "stages 1 to 12 are on no rank";
    const RunData run = load_run(file);
    ASSERT_EQ(run.problems.size(), 11U);
    EXPECT_THAT(run.problems.back(),
                HasSubstr("gap.csv: and " + std::to_string(broken - 10) + " more"));
}

/// A prediction has the rows of replica 0 alone: another replica is refused.
TEST_F(RunFolder, OfWhatWasNotMeasuredThereIsReplica0Only) {
    const auto file = write("two.csv", "0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n");
    EXPECT_THAT(load_run(file, 0).problems, IsEmpty());
    const RunData run = load_run(file, 3);
    EXPECT_TRUE(run.predicted) << "it is shown nevertheless";
    EXPECT_EQ(run.replica, 0);
    EXPECT_THAT(run.problems,
                ElementsAre("--replica 3: a prediction is the same for every replica, expected 0"));
}

/// A file of another ending is read as a trace: "expected JSON", said the window of a scenario.
TEST_F(RunFolder, AFileThatIsCalledTomlIsReadAsAScenario) {
    const RunData run = load_run(write("only.toml", "x = 1\n"));
    ASSERT_EQ(run.problems.size(), 1U);
    EXPECT_THAT(run.problems.front(), AllOf(HasSubstr("only.toml"), HasSubstr("'x'")));
    EXPECT_THAT(run.problems.front(), Not(HasSubstr("JSON")));
}

TEST_F(RunFolder, AScheduleFileIsSimulatedAtUnitCosts) {
    const RunData run = load_run(write("two.csv", "0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n"));
    EXPECT_THAT(run.problems, IsEmpty());
    ASSERT_TRUE(run.predicted);
    EXPECT_EQ(run.schedule_name, "two");
    EXPECT_EQ(run.micro_batches, 2);
    EXPECT_EQ(run.predicted->pipeline, std::chrono::milliseconds(9));  // (2 + 1) * (1 + 2)
}

/// 1f1b on two ranks, F 1 ms, B 2 ms; one column per millisecond:
///
///     rank 0  01.aa.bb.      rank 1  .0aa1bb..
TEST_F(RunFolder, AScheduleFileSaysWhatItsRanksWaitFor) {
    const auto run = std::make_shared<const RunData>(
        load_run(write("two.csv", "0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n")));
    const StepAnalysis analysis(run, Side::Predicted, 0);
    ASSERT_TRUE(analysis.has_causes()) << analysis.note();
    EXPECT_EQ(analysis.note(), "");
    EXPECT_TRUE(analysis.as_planned());
    const SpanRef b0 = find(*run, Side::Predicted, {.op = Op::Backward});
    EXPECT_EQ(
        wait_sentence(analysis, b0),
        "0B0 waited 2.00 ms: 2.00 ms for 1B0 on rank 1 (compute). 0B0 could take 1.00 ms longer "
        "without delaying the step.");
    const SpanRef end{
        .side = Side::Predicted, .rank = 1, .cell = run->twin.row(Side::Predicted, 0, 1)->size()};
    EXPECT_EQ(wait_sentence(analysis, end),
              "Rank 1 had no work left and waited 2.00 ms: 2.00 ms for 0B1 on rank 0 (compute).");
}

/// A trace that was written by `simulate`, without the folder that it was planned from.
TEST_F(RunFolder, ASimulatedTraceAloneSaysWhatItsRanksWaitFor) {
    const Timeline step = sim::simulate(plan());
    const auto run = std::make_shared<const RunData>(
        load_run(write("alone.trace.json", print_chrome_trace(trace(Origin::Predicted, {step})))));
    const StepAnalysis analysis(run, Side::Predicted, 0);
    ASSERT_TRUE(analysis.has_causes()) << analysis.note();
    EXPECT_TRUE(analysis.as_planned());
    EXPECT_EQ(analysis.note(), "");
    // GPipe: each of 4 ranks waits 3 x (10 + 20) ms, and none of it is unexplained.
    EXPECT_EQ(analysis.idle().wait, 4 * 3 * std::chrono::milliseconds(30));
    EXPECT_EQ(analysis.idle()[WaitPart::Unexplained], Duration{});
}

TEST_F(RunFolder, AMeasuredTraceAloneSaysHowItsLinksAreKnown) {
    const Timeline step = slower(sim::simulate(plan()), 10, {});
    const auto run = std::make_shared<const RunData>(
        load_run(write("alone.trace.json", print_chrome_trace(trace(Origin::Measured, {step})))));
    const StepAnalysis analysis(run, Side::Measured, 0);
    ASSERT_TRUE(analysis.has_causes()) << analysis.note();
    EXPECT_THAT(analysis.note(), HasSubstr("shortest time"));
    EXPECT_EQ(analysis.idle().wait, 4 * 3 * std::chrono::milliseconds(33));
    EXPECT_EQ(analysis.idle()[WaitPart::Unexplained], Duration{});
}

TEST_F(RunFolder, ABrokenScheduleFileSaysWhatIsWrong) {
    const RunData invalid = load_run(write("x.csv", "0F0,0B0\n1F0\n"));
    EXPECT_TRUE(invalid.empty());
    EXPECT_THAT(invalid.problems, ::testing::Contains(HasSubstr("x.csv: rank")));
    const RunData stuck = load_run(write("y.csv", "0F0,0B0,0F1,0B1\n1F1,1B1,1F0,1B0\n"));
    EXPECT_TRUE(stuck.empty());
    EXPECT_FALSE(stuck.problems.empty());
    EXPECT_THAT(load_run(write("z.csv", "0Q0\n")).problems, ElementsAre(HasSubstr("z.csv:1:")));
}

TEST_F(RunFolder, FilesAreLaidOverEachOther) {
    write_both();
    const RunData run =
        load_runs({folder() / "measured.trace.json", folder() / "predicted.trace.json"});
    EXPECT_THAT(run.problems, IsEmpty());
    EXPECT_TRUE(run.predicted && run.measured && run.comparison);
    EXPECT_TRUE(load_runs({}).empty());
}

/// The first of two scenarios, or of two runs, vanished without a word.
TEST_F(RunFolder, TwoOfTheSameSideAreNotLaidOverEachOther) {
    write_both();
    const auto schedule = write("two.csv", "0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n");
    const auto predicted = folder() / "predicted.trace.json";
    const auto measured = folder() / "measured.trace.json";
    const Trace other = trace(Origin::Emulated, {slower(sim::simulate(plan()), 50, {})});
    const auto emulated = write("other.json", print_chrome_trace(other));
    const auto torch = write("torch.json", torch_trace(0, {"0F0", "0F1", "0B0", "0B1"}, 0));
    const auto same_rank = write("again.json", torch_trace(0, {"0F0", "0F1", "0B0", "0B1"}, 0));
    using Paths = std::vector<std::filesystem::path>;
    for (const Paths& paths : {Paths{schedule, predicted},
                               Paths{predicted, schedule},
                               Paths{folder(), emulated},
                               Paths{schedule, folder()},
                               Paths{measured, emulated},
                               Paths{measured, torch},
                               Paths{torch, measured},
                               Paths{torch, schedule, same_rank},
                               Paths{folder(), folder()}}) {
        const RunData run = load_runs(paths);
        EXPECT_TRUE(run.hide_each_other) << paths.front() << " and " << paths.back();
        EXPECT_TRUE(run.empty());
        EXPECT_THAT(run.problems, IsEmpty());
    }
    for (const Paths& paths :
         {Paths{schedule, measured}, Paths{torch, schedule}, Paths{predicted, emulated}}) {
        const RunData run = load_runs(paths);
        EXPECT_FALSE(run.hide_each_other) << paths.front() << " and " << paths.back();
        EXPECT_TRUE(run.predicted && run.measured);
    }
}

TEST_F(RunFolder, TracesOfPyTorchsProfilerAreMergedByRank) {
    write("b.json", torch_trace(0, {"0F0", "0F1", "0B0", "0B1", "0F0", "0F1", "0B0", "0B1"}, 5000));
    write("a.json", torch_trace(1, {"1F0", "1B0", "1F1", "1B1", "1F0", "1B0", "1F1", "1B1"}, 6000));
    const RunData run = load_run(folder());
    EXPECT_THAT(run.problems, IsEmpty());
    ASSERT_TRUE(run.measured);
    EXPECT_EQ(run.measured->steps, 2);
    EXPECT_EQ(run.twin.rank_count(), 2);
    const auto span = run.twin.span({.side = Side::Measured, .step = 0, .rank = 1, .cell = 1});
    EXPECT_EQ(to_string(span->action), "1B0");
    EXPECT_EQ(span->begin, std::chrono::milliseconds(2));  // 6 + 1 - 5
}

TEST_F(RunFolder, ATraceOfPyTorchIsBroughtIntoThePlansRowsByName) {
    const auto plan = write("two.csv", "0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n");
    const auto first = write("0.json", torch_trace(0, {"0F0", "0F1", "0B0", "0B1"}, 0));
    const auto second = write("1.json", torch_trace(1, {"1F0", "1B0", "1F1", "1B7"}, 1000));
    const RunData run = load_runs({first, plan, second});
    ASSERT_TRUE(run.predicted && run.measured && run.comparison);
    const SpanRef last{.side = Side::Predicted, .step = 0, .rank = 0, .cell = 3};
    EXPECT_EQ(run.twin.span(*twin_of(run.twin, last))->action, run.twin.span(last)->action);
    EXPECT_THAT(
        run.problems,
        ::testing::IsSupersetOf({HasSubstr("rank 1: the trace contains 1B7, the plan does not"),
                                 HasSubstr("rank 1: the plan contains ")}));
}

TEST_F(RunFolder, ATraceOfPyTorchInAnotherOrderIsShownBesideThePlan) {
    const auto plan = write("two.csv", "0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n");
    const auto first = write("0.json", torch_trace(0, {"0F0", "0F1", "0B1", "0B0"}, 0));
    const RunData run = load_runs({plan, first});
    EXPECT_TRUE(run.predicted && run.measured);
    EXPECT_FALSE(run.comparison);
    EXPECT_THAT(run.problems, ::testing::Contains(HasSubstr("rank 0 ran 0B1 before 0B0")));
}

TEST_F(RunFolder, WhatIsNoTraceIsNamed) {
    for (const char* const text :
         {"", "[]", "{}", "{\"traceEvents\":[]}", "{\"pipetwin\":7,\"traceEvents\":[]}", "nan"}) {
        EXPECT_THAT(load_run(write("x.json", text)).problems, ElementsAre(HasSubstr("x.json")))
            << text;
    }
    EXPECT_FALSE(load_run(write("x.json", std::string(1'000'000, '['))).problems.empty());
    EXPECT_FALSE(load_run(write("x.json", std::string(1'000'000, '{'))).problems.empty());
    EXPECT_THAT(load_run("/dev/zero").problems,
                ElementsAre(HasSubstr("a device, expected a regular file")));
}

TEST(Summary, OfATimelineWithoutTimeIsZero) {
    TimelineSet timelines;
    timelines.steps.emplace_back().ranks.resize(2);
    const SideData data = drawn_side(timelines).data;
    EXPECT_EQ(data.step, Duration{0});
    ASSERT_EQ(data.ranks.size(), 2U);
    EXPECT_EQ(data.ranks[0].utilisation, 0);
}

}  // namespace run_data_test
}  // namespace pipetwin::gui
