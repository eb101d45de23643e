// SPDX-License-Identifier: Apache-2.0
#include "core/schedule/validate.h"

#include <algorithm>

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "core/base/error.h"
#include "core/schedule/generators/generate.h"
#include "core/schedule/lower.h"
#include "tests/support/builders.h"

namespace pipetwin {

static void PrintTo(const Violation& v,
                    std::ostream* out) {  // NOLINT(readability-identifier-naming)
    *out << "rank " << v.rank << ", cell " << v.cell << ": " << v.action << " " << v.why;
}

namespace validate_test {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::Field;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::lowered;
using testing::schedule_of;

/// One violation: where, which action, and a part of the reason.
auto violation(int rank, int cell, const std::string& action, const std::string& why) {
    return AllOf(Field("rank", &Violation::rank, rank),
                 Field("cell", &Violation::cell, cell),
                 Field("action", &Violation::action, action),
                 Field("why", &Violation::why, HasSubstr(why)));
}

TEST(Validate, AcceptsEveryGeneratedScheduleComputeOnlyAndLowered) {
    for (const ScheduleKind kind : {ScheduleKind::GPipe, ScheduleKind::OneFOneB}) {
        for (int ranks = 1; ranks <= 6; ++ranks) {
            for (int m = 1; m <= 12; ++m) {
                const ScheduleShape shape{.ranks = ranks, .micro_batches = m};
                EXPECT_THAT(validate(generate(kind, shape)), IsEmpty());
                for (const Recompute mode :
                     {Recompute::None, Recompute::Always, Recompute::ExceptLast}) {
                    for (const RecomputeTiming timing :
                         {RecomputeTiming::Eager, RecomputeTiming::Lazy}) {
                        EXPECT_THAT(validate(lowered(kind, shape, mode, timing)), IsEmpty());
                    }
                }
            }
        }
    }
}

TEST(Validate, FindsAMissingForward) {
    EXPECT_THAT(validate(schedule_of({"0F0 0B0 0B1"})),
                ElementsAre(violation(0, -1, "0F1", "is missing: forward of micro-batch 1")));
}

TEST(Validate, FindsAMissingBackward) {
    EXPECT_THAT(validate(schedule_of({"0F0 0F1 0B1", "1F0 1F1 1B1 1B0"})),
                ElementsAre(violation(0, -1, "0B0", "is missing: backward of micro-batch 0")));
}

TEST(Validate, ReportsNeighbouringMissingMicroBatchesInOneSentence) {
    EXPECT_THAT(validate(schedule_of({"0F0 0F1 0F2 0F3 0B3 0B0"})),
                ElementsAre(violation(0, -1, "0B1", "micro-batches 1 to 2")));
}

TEST(Validate, FindsAMissingHalfOfASplitBackward) {
    EXPECT_THAT(
        validate(schedule_of({"0F0 0I0 0F1 0W1"})),
        ElementsAre(violation(0, -1, "0I1", "is missing"), violation(0, -1, "0W0", "is missing")));
}

TEST(Validate, FindsAFullBackwardBesideItsParts) {
    EXPECT_THAT(validate(schedule_of({"0F0 0B0 0W0"})),
                ElementsAre(violation(0, 2, "0W0", "is part of the full backward in cell 1")));
}

TEST(Validate, FindsADoubledAction) {
    EXPECT_THAT(validate(schedule_of({"0F0 0F0 0B0"})),
                ElementsAre(violation(0, 1, "0F0", "is in cells 0 and 1;")));
}

TEST(Validate, FindsAMicroBatchOutOfRange) {
    Schedule schedule = schedule_of({"0F0 0B0 0F1"});
    schedule.micro_batches = 1;
    EXPECT_THAT(
        validate(schedule),
        ElementsAre(violation(
            0, 2, "0F1", "is of micro-batch 1, which is out of range: the schedule has 0 to 0")));
    schedule.ranks[0][2].micro_batch = -1;
    EXPECT_THAT(validate(schedule), ElementsAre(violation(0, 2, "0F-1", "out of range")));
}

TEST(Validate, FindsAStageOutOfRange) {
    Schedule schedule = schedule_of({"0F0 0B0"});
    schedule.ranks[0].push_back({.op = Op::Forward, .stage = 7});
    EXPECT_THAT(validate(schedule),
                ElementsAre(violation(0, 2, "7F0", "is of stage 7, which is out of range")));
}

TEST(Validate, FindsAStageOnTwoRanks) {
    EXPECT_THAT(validate(schedule_of({"0F0 0B0", "1F0 1B0 0F1 0B1 1F1 1B1"})),
                ElementsAre(violation(0, -1, "0F1", "is missing"),
                            violation(0, -1, "0B1", "is missing"),
                            violation(1, 2, "0F1", "is of stage 0, which is on rank 0"),
                            violation(1, 3, "0B1", "is of stage 0, which is on rank 0")));
}

TEST(Validate, FindsAStageOnNoRankAndARankWithoutStage) {
    EXPECT_THAT(validate(schedule_of({"0F0 0B0", "2F0 2B0", ""})),
                ElementsAre(violation(-1, -1, "", "stage 1 is on no rank"),
                            violation(-1, -1, "1F0", "is missing"),
                            violation(-1, -1, "1B0", "is missing"),
                            violation(2, -1, "", "rank 2 has no stage")));
}

TEST(Validate, FindsABackwardBeforeItsForward) {
    EXPECT_THAT(validate(schedule_of({"0F0 0B1 0F1 0B0"})),
                ElementsAre(violation(0, 1, "0B1", "comes before 0F1 (cell 2)")));
}

TEST(Validate, FindsAWeightGradientBeforeItsInputGradient) {
    EXPECT_THAT(validate(schedule_of({"0F0 0W0 0I0"})),
                ElementsAre(violation(0, 1, "0W0", "comes before 0I0 (cell 2)")));
}

TEST(Validate, FindsARecomputeOutsideItsPlace) {
    EXPECT_THAT(validate(schedule_of({"0R0 0F0 0B0"})),
                ElementsAre(violation(0, 0, "0R0", "comes before 0F0")));
    EXPECT_THAT(validate(schedule_of({"0F0 0B0 0R0"})),
                ElementsAre(violation(0, 1, "0B0", "comes before 0R0")));
}

TEST(Validate, FindsAnUpdateBeforeTheLastBackward) {
    EXPECT_THAT(validate(schedule_of({"0F0 0F1 0B1 0OPT 0B0"})),
                ElementsAre(violation(0, 3, "0OPT", "before the stage's last backward (cell 4)")));
}

TEST(Validate, FindsAnUpdateThatOneStageLacks) {
    EXPECT_THAT(validate(schedule_of({"0F0 0B0 0OPT", "1F0 1B0"})),
                ElementsAre(violation(1, -1, "1OPT", "is missing")));
}

TEST(Validate, FindsANormThatOneStageLacks) {
    EXPECT_THAT(validate(schedule_of({"0F0 0B0 0NORM 0OPT", "1F0 1B0 1OPT"})),
                ElementsAre(violation(1, -1, "1NORM", "is missing")));
}

TEST(Validate, FindsANormBehindItsUpdateOrBeforeTheLastBackward) {
    EXPECT_THAT(validate(schedule_of({"0F0 0B0 0OPT 0NORM"})),
                ElementsAre(violation(0, 2, "0OPT", "")));
    EXPECT_THAT(validate(schedule_of({"0F0 0NORM 0B0 0OPT"})),
                ElementsAre(violation(0, 1, "0NORM", "before the stage's last backward (cell 2)")));
}

TEST(Validate, TiedEndsAddUpTheirGradientsBeforeTheUpdate) {
    Schedule schedule = generate(ScheduleKind::OneFOneB, {.ranks = 3, .micro_batches = 2});
    schedule.tied_ends = true;
    EXPECT_THAT(validate(add_optimizer(add_reduction(schedule), true)), IsEmpty());
    EXPECT_THAT(validate(add_optimizer(schedule)),
                ElementsAre(violation(0, -1, "0REDUCE_GRAD", "stage 2 has the tied weights"),
                            violation(2, -1, "2REDUCE_GRAD", "stage 0 has the tied weights")));
}

TEST(Validate, FindsStagesOfOneRankInTheWrongOrder) {
    EXPECT_THAT(validate(schedule_of({"1F0 0F0 0B0 1B0"})),
                ElementsAre(violation(0, 0, "1F0", "comes before 0F0 (cell 1) on the same rank"),
                            violation(0, 2, "0B0", "comes before 1B0 (cell 3) on the same rank")));
}

TEST(Validate, FindsAMissingMessage) {
    EXPECT_THAT(
        validate(schedule_of({"0F0 0SEND_F0 0RECV_B0 0B0", "1RECV_F0 1F0 1B0"})),
        ElementsAre(violation(1, -1, "1SEND_B0", "is missing: send of the input's gradient")));
}

TEST(Validate, FindsMessagesWithoutAnybodyToExchangeWith) {
    EXPECT_THAT(validate(schedule_of({"0RECV_F0 0F0 0B0"})),
                ElementsAre(violation(0, 0, "0RECV_F0", "no stage on another rank")));
    EXPECT_THAT(validate(schedule_of({"0F0 0SEND_F0 1F0 1B0 0B0"})),
                ElementsAre(violation(0, 1, "0SEND_F0", "no stage on another rank")));
}

/// C03: a stage never starts a micro-batch before the stage before it has finished it. In a row
/// that means: behind its receive.
TEST(Validate, FindsAForwardBeforeItsReceiveAndASendBeforeItsForward) {
    EXPECT_THAT(validate(schedule_of({"0SEND_F0 0F0 0RECV_B0 0B0", "1F0 1RECV_F0 1B0 1SEND_B0"})),
                ElementsAre(violation(0, 0, "0SEND_F0", "comes before 0F0 (cell 1)"),
                            violation(1, 0, "1F0", "comes before 1RECV_F0 (cell 1)")));
}

TEST(Validate, FindsABackwardBeforeItsReceiveAndASendBeforeItsBackward) {
    EXPECT_THAT(validate(schedule_of({"0F0 0SEND_F0 0B0 0RECV_B0", "1RECV_F0 1F0 1SEND_B0 1B0"})),
                ElementsAre(violation(0, 2, "0B0", "comes before 0RECV_B0 (cell 3)"),
                            violation(1, 2, "1SEND_B0", "comes before 1B0 (cell 3)")));
}

TEST(Validate, ReportsAnOrderMismatchOfAChannelApartFromDeadlock) {
    const Schedule schedule = schedule_of({"0F0 0SEND_F0 0F1 0SEND_F1 0RECV_B0 0B0 0RECV_B1 0B1",
                                           "1RECV_F1 1F1 1RECV_F0 1F0 1B0 1SEND_B0 1B1 1SEND_B1"});
    EXPECT_THAT(validate(schedule),
                ElementsAre(violation(1,
                                      0,
                                      "1RECV_F1",
                                      "causes an order mismatch: it is receive 0 of its channel, "
                                      "but send 0 is 0SEND_F0 (rank 0, cell 1)")));
    EXPECT_TRUE(find_deadlock(schedule, 1).deadlock_free);
}

TEST(Validate, FindsAPairThatIsNoPair) {
    Schedule schedule = schedule_of({"0F0 0F1 0B0 0B1"});
    schedule.ranks[0][1].with_next = true;
    EXPECT_THAT(validate(schedule), IsEmpty());
    schedule.ranks[0][0].with_next = true;
    schedule.ranks[0][3].with_next = true;
    EXPECT_THAT(validate(schedule),
                ElementsAre(violation(0, 0, "0F0", "a pair is one forward and one backward"),
                            violation(0, 3, "0B1", "a pair is one forward and one backward")));
}

TEST(Validate, FindsWeightsOfAnotherStage) {
    Schedule schedule = schedule_of({"0F0 0B0", "1F0 1B0"});
    schedule.weights_of_stage = {1, 0};
    EXPECT_THAT(validate(schedule), ElementsAre(violation(-1, -1, "", "its own weights")));
}

/// Stages 0 and 1 go down over ranks 0 and 1, stages 2 and 3 are the same pieces on ranks 1 and 0.
Schedule two_pipelines() {
    Schedule schedule = schedule_of({"0F0 3F1 3B1 0B0", "1F0 2F1 1B0 2B1"});
    schedule.weights_of_stage = {0, 1, 0, 1};
    return schedule;
}

TEST(Validate, LetsAMicroBatchTakeOneOfTwoPipelines) {
    EXPECT_THAT(validate(two_pipelines()), IsEmpty());
}

TEST(Validate, FindsAMicroBatchInBothPipelines) {
    Schedule schedule = two_pipelines();
    schedule.ranks[0].insert(schedule.ranks[0].begin(),
                             {{.op = Op::Forward, .stage = 0, .micro_batch = 1},
                              {.op = Op::Backward, .stage = 0, .micro_batch = 1}});
    EXPECT_THAT(validate(schedule),
                ::testing::Contains(violation(1, 1, "2F1", "stage 0 of the other pipeline")));
}

TEST(Validate, FindsAMicroBatchInNoPipeline) {
    Schedule schedule = two_pipelines();
    std::erase_if(schedule.ranks[0], [](const Action& action) { return action.stage == 3; });
    std::erase_if(schedule.ranks[1], [](const Action& action) { return action.stage == 2; });
    EXPECT_THAT(validate(schedule),
                ::testing::IsSupersetOf({violation(0, -1, "0F1", "is missing"),
                                         violation(1, -1, "1F1", "is missing")}));
}

TEST(Validate, AScheduleWithoutAnyBackwardIsForwardOnly) {
    EXPECT_THAT(validate(schedule_of({"0F0 0F1", "1F0 1F1"})), IsEmpty());
    EXPECT_THAT(validate(schedule_of({"0F0 0F1", "1F0"})),
                ElementsAre(violation(1, -1, "1F1", "is missing")));
}

/// The search over all interleavings found these three: they were once accepted.
TEST(Validate, FindsWhatServesABackwardWhereThereIsNone) {
    EXPECT_THAT(validate(schedule_of({"0F0 0R0 0REDUCE_GRAD 0OPT"})),
                ElementsAre(violation(0, 1, "0R0", "serves a backward, but there is none"),
                            violation(0, 2, "0REDUCE_GRAD", "serves a backward"),
                            violation(0, 3, "0OPT", "serves a backward")));
    Schedule other_pipeline = two_pipelines();
    other_pipeline.ranks[1].push_back({.op = Op::Recompute, .stage = 2, .micro_batch = 0});
    EXPECT_THAT(validate(other_pipeline),
                ElementsAre(violation(1, 4, "2R0", "serves a backward, but there is none")));
}

TEST(Validate, FindsAMessageOfAMicroBatchThatTakesTheOtherPipeline) {
    Schedule schedule = add_communication(two_pipelines(), RecomputeTiming::Eager);
    EXPECT_THAT(validate(schedule), IsEmpty());
    schedule.ranks[1].push_back({.op = Op::SendForward, .stage = 2, .micro_batch = 0});
    schedule.ranks[0].push_back({.op = Op::RecvForward, .stage = 3, .micro_batch = 0});
    EXPECT_THAT(validate(schedule),
                ElementsAre(violation(0, 8, "3RECV_F0", "a micro-batch that this stage does not"),
                            violation(1, 8, "2SEND_F0", "a micro-batch that this stage does not")));
}

TEST(Validate, FindsAnUpdateHiddenBehindAMicroBatch) {
    Schedule schedule = schedule_of({"0F0 0OPT 0B0 0F1 0B1"});
    schedule.ranks[0][1].micro_batch = 1;
    EXPECT_THAT(
        validate(schedule),
        ElementsAre(violation(0, 1, "0OPT", "the stage as a whole, but names micro-batch 1")));
}

/// DualPipe splits the backwards of some stages and micro-batches only.
TEST(Validate, AFullBackwardMayFollowASplitOneOfTheNextStageOnTheSameRank) {
    EXPECT_THAT(validate(schedule_of({"0F0 1F0 1I0 0B0 1W0"})), IsEmpty());
    EXPECT_THAT(validate(schedule_of({"0F0 1F0 0B0 1I0 1W0"})),
                ElementsAre(violation(0, 2, "0B0", "comes before 1I0")));
}

TEST(Validate, RefusesAnEmptySchedule) {
    EXPECT_THAT(validate(Schedule{}), ElementsAre(violation(-1, -1, "", "at least one of each")));
}

/// Two cells that name stage 4095 and micro-batch 7000 once took a minute to look at.
TEST(Validate, SaysOnceThatMillionsOfActionsAreMissing) {
    Schedule huge = schedule_of({"0F0 0B0"});
    huge.micro_batches = 2'000'000'000;
    EXPECT_THAT(
        validate(huge),
        ElementsAre(violation(
            -1, -1, "", "2 actions, but 1 stage x 2000000000 micro-batches need at least")));
}

/// A file that repeats one action a million times would make millions of texts.
TEST(Validate, SaysOnceThatThereAreFarTooManyActions) {
    Schedule doubled = schedule_of({"0F0 0B0"});
    doubled.ranks[0].resize(300'000, {.op = Op::Forward});
    EXPECT_THAT(validate(doubled),
                ElementsAre(violation(
                    -1, -1, "", "300000 actions, but 1 stage x 1 micro-batch have at most 10")));
}

TEST(Validate, ReportsAllViolationsAtOnceByRankAndCell) {
    EXPECT_THAT(validate(schedule_of({"0B0 0F0 0F1 0F1", "1F0 1F1 1B0"})),
                ElementsAre(violation(0, 0, "0B0", "before 0F0"),
                            violation(0, 3, "0F1", "cell 3 is where 0B1 would come"),
                            violation(1, -1, "1B1", "missing")));
}

TEST(Explain, DrawsTheGridWithArrowsAndOneLineForEach) {
    const Schedule schedule = schedule_of({"0F0 0F1 0B1 0B0", "1F0 1B1 1F1 1B0"});
    EXPECT_EQ(explain(schedule, validate(schedule)),
              "rank 0  0F0 0F1 0B1 0B0\n"
              "rank 1  1F0 1B1 1F1 1B0\n"
              "            ^^^\n"
              "rank 1, cell 1: 1B1 comes before 1F1 (cell 2), which must come first");
}

TEST(Explain, ShowsTheFirstOfManyAndCountsTheRest) {
    Schedule schedule = generate(ScheduleKind::GPipe, {.ranks = 40, .micro_batches = 40});
    for (auto& row : schedule.ranks) {
        std::ranges::reverse(row);
    }
    const std::string text = explain(schedule, validate(schedule));
    EXPECT_THAT(text, HasSubstr("and 1580 more"));
    EXPECT_LT(text.size(), 10'000U);
}

TEST(Explain, ListsAllWhereItIsAskedTo) {
    Schedule schedule = generate(ScheduleKind::GPipe, {.ranks = 4, .micro_batches = 8});
    for (auto& row : schedule.ranks) {
        std::ranges::reverse(row);
    }
    const std::vector<Violation> violations = validate(schedule);
    const std::string text = explain(schedule, violations, violations.size());
    EXPECT_EQ(violations.size(), 32U);
    for (const Violation& violation : violations) {
        EXPECT_THAT(text,
                    HasSubstr(fmt::format("rank {}, cell {}: ", violation.rank, violation.cell)));
    }
}

TEST(RequireValid, ThrowsInfeasibleWithThePlaceAndThePicture) {
    try {
        require_valid(schedule_of({"0F0 0F0 0B0"}), "x.csv");
        FAIL() << "a doubled action was accepted";
    } catch (const Error& error) {
        EXPECT_EQ(error.kind(), ErrorKind::Infeasible);
        EXPECT_EQ(error.place(), "x.csv");
        EXPECT_THAT(error.text(), HasSubstr("1 rule is broken\nrank 0  0F0 0F0 0B0\n"));
    }
}

TEST(Validate, TwoPipelinesAddUpTheirGradientsBeforeTheUpdate) {
    const Schedule schedule = generate(ScheduleKind::Chimera, {.ranks = 2, .micro_batches = 2});
    EXPECT_TRUE(validate(add_optimizer(add_reduction(schedule))).empty());
    const auto violations = validate(add_optimizer(schedule));
    ASSERT_EQ(violations.size(), 4U);
    EXPECT_EQ(violations.front().action, "0REDUCE_GRAD");
    EXPECT_THAT(violations.front().why, HasSubstr("stage 2 has the same weights"));
}

}  // namespace validate_test
}  // namespace pipetwin
