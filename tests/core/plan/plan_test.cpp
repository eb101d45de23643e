// SPDX-License-Identifier: Apache-2.0
#include "core/plan/plan.h"

#include <algorithm>
#include <numeric>
#include <optional>

#include <gmock/gmock.h>

#include "core/base/error.h"
#include "core/plan/plain_plan.h"
#include "core/schedule/generators/generate.h"
#include "core/schedule/lower.h"
#include "core/schedule/validate.h"
#include "tests/support/builders.h"
#include "tests/support/error_of.h"

namespace pipetwin {
namespace plan_test {

using ::testing::ElementsAre;
using testing::error_of;
using ::testing::HasSubstr;
using testing::lowered;
using testing::row_text;
using testing::schedule_of;
using testing::staged_costs;
using testing::uniform_costs;
using testing::uniform_plan;
using Ms = std::chrono::milliseconds;

// --- Micro-batches. ---

TEST(MicroBatchSizes, DifferByOneAtMostNumberMinOfBatchAndMAndSumToTheBatch) {
    for (int batch = 1; batch <= 40; ++batch) {
        for (int m = 1; m <= 40; ++m) {
            const std::vector<int> sizes = micro_batch_sizes(batch, m);
            EXPECT_EQ(sizes.size(), static_cast<std::size_t>(std::min(batch, m)));
            EXPECT_EQ(std::accumulate(sizes.begin(), sizes.end(), 0), batch);
            EXPECT_TRUE(std::ranges::is_sorted(sizes, std::ranges::greater{}));
            EXPECT_LE(sizes.front() - sizes.back(), 1);
            EXPECT_GE(sizes.back(), 1);
        }
    }
}

TEST(MicroBatchSizes, PutTheLargerOnesFirst) {
    EXPECT_THAT(micro_batch_sizes(10, 4), ElementsAre(3, 3, 2, 2));
    EXPECT_THAT(micro_batch_sizes(8, 4), ElementsAre(2, 2, 2, 2));
}

TEST(MicroBatchSizes, ABatchSmallerThanMIsLegal) {
    EXPECT_THAT(micro_batch_sizes(3, 8), ElementsAre(1, 1, 1));
}

TEST(MicroBatchSizes, EmptyBatchesAndMBelowOneAreRefusedNamingTheValue) {
    EXPECT_THAT(error_of([] { micro_batch_sizes(0, 4); }).text(), HasSubstr("batch = 0"));
    EXPECT_THAT(error_of([] { micro_batch_sizes(4, 0); }).text(), HasSubstr("micro_batches = 0"));
    EXPECT_THAT(error_of([] { micro_batch_sizes(4, -3); }).text(), HasSubstr("micro_batches = -3"));
    EXPECT_EQ(error_of([] { micro_batch_sizes(4, -3); }).kind(), ErrorKind::BadInput);
}

TEST(MicroBatchSizes, TooManyAreRefusedBeforeTheyAreAllocated) {
    EXPECT_THAT(error_of([] { micro_batch_sizes(2'000'000'000, 2'000'000'000); }).text(),
                HasSubstr("micro_batches = 2000000000 is out of range"));
}

// --- Plans from plain numbers. ---

TEST(PlainPlan, IsTheLoweredScheduleWithoutAnUpdate) {
    const Plan plan = uniform_plan({.kind = ScheduleKind::GPipe,
                                    .ranks = 2,
                                    .micro_batches = 2,
                                    .recompute = Recompute::ExceptLast});
    EXPECT_EQ(row_text(plan->schedule, 0),
              "0F0 0SEND_F0 0F1 0SEND_F1 0RECV_B1 0B1 0R0 0RECV_B0 0B0");
    EXPECT_EQ(plan->schedule_name, "gpipe");
    EXPECT_EQ(plan->recompute, Recompute::ExceptLast);
    EXPECT_EQ(plan.samples(), std::nullopt);
}

TEST(PlainPlan, EveryShapeIsLegalAlsoFewerMicroBatchesThanStages) {
    for (const ScheduleKind kind : {ScheduleKind::GPipe, ScheduleKind::OneFOneB}) {
        for (int ranks = 1; ranks <= 6; ++ranks) {
            for (int m = 1; m <= 12; ++m) {
                const Plan plan = uniform_plan(kind, ranks, m, Ms(1), Ms(2));
                EXPECT_EQ(plan.rank_count(), ranks);
                EXPECT_EQ(plan.stage_count(), ranks);
                EXPECT_EQ(plan.micro_batches(), m);
            }
        }
    }
}

TEST(PlainPlan, OfOneStageExchangesNothing) {
    EXPECT_EQ(row_text(uniform_plan(ScheduleKind::OneFOneB, 1, 2, Ms(1), Ms(2))->schedule, 0),
              "0F0 0B0 0F1 0B1");
}

TEST(PlainPlan, TakesOneCostPerStage) {
    const Plan plan =
        make_plan(testing::staged_costs(ScheduleKind::GPipe, 3, {Ms(1), Ms(2)}, {Ms(3), Ms(4)}));
    EXPECT_EQ(plan.duration({.op = Op::Forward, .stage = 1, .micro_batch = 2}), Ms(2));
    EXPECT_EQ(plan.duration({.op = Op::Backward, .stage = 0, .micro_batch = 2}), Ms(3));
}

TEST(PlainPlan, RecomputeCostsAForwardUnlessSaidOtherwise) {
    const Action recompute{.op = Op::Recompute};
    EXPECT_EQ(uniform_plan({.forward = Ms(7), .recompute = Recompute::Always}).duration(recompute),
              Ms(7));
    EXPECT_EQ(
        uniform_plan({.recompute_cost = Ms(5), .recompute = Recompute::Always}).duration(recompute),
        Ms(5));
}

TEST(PlainPlan, AFullBackwardIsSplitInHalvesThatSumToIt) {
    PlainCosts costs = uniform_costs({.backward = Duration(7)});
    const StageCost cost = make_plan(costs).cost(0, 0);
    EXPECT_EQ(cost.backward_input, Duration(3));
    EXPECT_EQ(cost.backward_weight, Duration(4));
}

TEST(PlainPlan, ASplitBackwardSumsToTheFullOne) {
    PlainCosts costs = uniform_costs({});
    costs.backward.clear();
    costs.backward_input = {Ms(3)};
    costs.backward_weight = {Ms(5)};
    EXPECT_EQ(make_plan(costs).cost(0, 0).backward, Ms(8));
}

TEST(PlainPlan, RefusesAWrongNumberOfCostsNamingBoth) {
    PlainCosts costs = uniform_costs({.ranks = 4, .micro_batches = 2});
    costs.forward.resize(3);
    const Error error = error_of([&] { make_plan(costs); });
    EXPECT_EQ(error.kind(), ErrorKind::BadInput);
    EXPECT_EQ(error.text(), "forward: 3 numbers for 4 stages");
    costs = uniform_costs({.ranks = 4, .micro_batches = 2});
    costs.backward.clear();
    EXPECT_EQ(error_of([&] { make_plan(costs); }).text(), "backward: 0 numbers for 4 stages");
    costs.backward_input.assign(4, Ms(1));
    EXPECT_EQ(error_of([&] { make_plan(costs); }).text(),
              "backward-weight: 0 numbers for 4 stages");
}

TEST(PlainPlan, RefusesNegativeCosts) {
    EXPECT_THAT(error_of([] { uniform_plan(ScheduleKind::GPipe, 1, 1, Ms(-1), Ms(1)); }).text(),
                HasSubstr("is negative"));
}

TEST(PlainPlan, RefusesHugeShapesBeforeAllocating) {
    PlainCosts costs = uniform_costs({});
    costs.shape = {.ranks = 4096, .micro_batches = 65536};
    EXPECT_EQ(error_of([&] { make_plan(costs); }).kind(), ErrorKind::BadInput);
}

TEST(PlainPlan, LowersAFileThatHoldsComputeOnly) {
    PlainCosts costs = uniform_costs({.ranks = 2, .recompute = Recompute::Always});
    costs.schedule_from_file = schedule_of({"0F0 0F1 0B0 0B1", "1F0 1B0 1F1 1B1"});
    const Plan plan = make_plan(costs);
    EXPECT_EQ(row_text(plan->schedule, 1),
              "1RECV_F0 1F0 1R0 1B0 1SEND_B0 1RECV_F1 1F1 1R1 1B1 1SEND_B1");
    EXPECT_EQ(plan->recompute, Recompute::Always);
    EXPECT_EQ(plan.micro_batches(), 2);
}

TEST(PlainPlan, LeavesAFileWithCommunicationAsItStands) {
    PlainCosts costs = uniform_costs({.ranks = 3});
    costs.schedule_from_file = lowered(ScheduleKind::OneFOneB,
                                       {.ranks = 3, .micro_batches = 4},
                                       Recompute::ExceptLast,
                                       RecomputeTiming::Lazy);
    const Plan plan = make_plan(costs);
    EXPECT_EQ(plan->schedule, *costs.schedule_from_file);
    EXPECT_EQ(plan->recompute, Recompute::ExceptLast);
}

TEST(PlainPlan, CountsTheChunksOfAFile) {
    PlainCosts costs = uniform_costs({.ranks = 4});
    costs.schedule_from_file = schedule_of({"0F0 2F0 2B0 0B0", "1F0 3F0 3B0 1B0"});
    EXPECT_EQ(make_plan(costs)->chunks, 2);
}

TEST(PlainPlan, ReportsWhatIsWrongWithAFileByItsOwnCells) {
    PlainCosts costs = uniform_costs({.ranks = 2});
    costs.schedule_name = "x.csv";
    costs.schedule_from_file = schedule_of({"0F0 0B0", "1F0 1B0 1B0"});
    const Error error = error_of([&] { make_plan(costs); });
    EXPECT_EQ(error.kind(), ErrorKind::Infeasible);
    EXPECT_EQ(error.place(), "x.csv");
    EXPECT_THAT(error.text(), HasSubstr("rank 1, cell 2: 1B0 is in cells 1 and 2;"));
}

TEST(PlainPlan, RefusesAFileThatRecomputesHereAndThere) {
    PlainCosts costs = uniform_costs({});
    costs.schedule_from_file = schedule_of({"0F0 0F1 0F2 0R1 0B1 0B0 0B2"});
    EXPECT_THAT(error_of([&] { make_plan(costs); }).text(), HasSubstr("others are not"));
}

TEST(PlainPlan, BoundariesLieBetweenStagesOnly) {
    const Plan plan = uniform_plan({.ranks = 3, .micro_batches = 2, .boundary = Bytes{100}});
    EXPECT_EQ(plan.cost(0, 0).input, Bytes{0});
    EXPECT_EQ(plan.cost(0, 0).output, Bytes{100});
    EXPECT_EQ(plan.cost(2, 0).input, Bytes{100});
    EXPECT_EQ(plan.cost(2, 0).output, Bytes{0});
    EXPECT_EQ(plan->links.size(), 2U);
}

// --- Plans themselves. ---

TEST(Plan, DispatchIsAddedToEveryComputeActionAndToTheUpdateOnly) {
    PlanParts parts = uniform_plan({.ranks = 2,
                                    .micro_batches = 1,
                                    .forward = Ms(10),
                                    .backward = Ms(20),
                                    .recompute = Recompute::Always})
                          .parts();
    parts.dispatch = Ms(1);
    parts.states[1].optimizer = Ms(5);
    parts.schedule = add_optimizer(parts.schedule);
    const Plan plan = Plan::make(parts);
    EXPECT_EQ(plan.duration({.op = Op::Forward}), Ms(11));
    EXPECT_EQ(plan.duration({.op = Op::Recompute}), Ms(11));
    EXPECT_EQ(plan.duration({.op = Op::Backward}), Ms(21));
    EXPECT_EQ(plan.duration({.op = Op::BackwardInput}), Ms(11));
    EXPECT_EQ(plan.duration({.op = Op::BackwardWeight}), Ms(11));
    EXPECT_EQ(plan.duration({.op = Op::Optimizer, .stage = 1}), Ms(6));
    EXPECT_EQ(plan.duration({.op = Op::SendForward}), Ms(0));
    EXPECT_EQ(plan.duration({.op = Op::RecvBackward}), Ms(0));
}

TEST(Plan, RefusesARuleThatIsBrokenWithThePicture) {
    PlanParts parts = uniform_plan(ScheduleKind::GPipe, 2, 2, Ms(1), Ms(2)).parts();
    std::swap(parts.schedule.ranks[1][0], parts.schedule.ranks[1][1]);
    const Error error = error_of([&] { Plan::make(parts); });
    EXPECT_EQ(error.kind(), ErrorKind::Infeasible);
    EXPECT_EQ(error.place(), "gpipe");
    EXPECT_THAT(error.text(), HasSubstr("rank 1, cell 0: 1F0 comes before 1RECV_F0"));
}

// What RowsFrom::Generator leaves out has to hold for all that `generate` and `lower` can make.
TEST(Plan, RowsOfOurGeneratorsKeepEveryRuleHoweverTheyAreLowered) {
    int made = 0;
    for (const ScheduleName& known : known_schedules()) {
        for (int number = 0; number < 4 * 3 * 6 * 48; ++number) {
            const ScheduleShape shape{.ranks = 1 + number % 4,
                                      .chunks = 1 + number / 4 % 3,
                                      .micro_batches = 1 + 2 * (number / 12 % 6)};
            const int way = number / (4 * 3 * 6);
            Schedule grid;
            try {
                grid = generate(known.kind, shape);
            } catch (const Error&) {
                continue;  // its rules forbid the shape
            }
            const bool replicas = way / 12 % 2 == 1;
            grid.tied_ends =
                way / 24 == 1 && !weight_sharing_stage(grid, 0) && model_stage_count(grid) > 1;
            const Schedule rows =
                lower(std::move(grid),
                      {.recompute = static_cast<Recompute>(way % 3),
                       .timing = way / 3 % 2 == 1 ? RecomputeTiming::Lazy : RecomputeTiming::Eager,
                       .messages = way / 6 % 2 == 1 ? MessageOrder::LowerRankFirst
                                                    : MessageOrder::AsScheduled,
                       .updates = way % 4 != 0,
                       .replicas = replicas,
                       .norms = way % 4 == 1},
                      "");
            ASSERT_THAT(validate(rows), ::testing::IsEmpty())
                << known.name << " p " << shape.ranks << " v " << shape.chunks << " m "
                << shape.micro_batches << " way " << way;
            ASSERT_TRUE(find_deadlock(rows, shape.micro_batches * 2).deadlock_free) << known.name;
            ++made;
        }
    }
    EXPECT_GT(made, 10'000);
}

TEST(Plan, IsTheSameWhetherItsGeneratedRowsAreLookedAtOrNot) {
    for (const ScheduleName& known : known_schedules()) {
        for (const int chunks : {1, 2}) {
            PlainCosts costs = uniform_costs({.kind = known.kind, .ranks = 3, .micro_batches = 6});
            costs.shape.chunks = chunks;
            for (std::vector<Duration>* const list : {&costs.forward, &costs.backward}) {
                list->resize(static_cast<std::size_t>(3 * chunks), Duration{Ms(1)});
            }
            std::optional<Plan> checked;
            try {
                checked = make_plan(costs);
            } catch (const Error& error) {
                EXPECT_EQ(error_of([&] { make_plan(costs, RowsFrom::Generator); }).text(),
                          error.text());
                continue;
            }
            const Plan plan = make_plan(costs, RowsFrom::Generator);
            EXPECT_EQ(plan->schedule, (*checked)->schedule) << known.name;
            EXPECT_EQ(plan->recompute, (*checked)->recompute) << known.name;
        }
    }
}

TEST(Plan, RowsOfAFileAreLookedAtWhoeverSaysTheyAreGenerated) {
    PlainCosts costs = uniform_costs({.kind = ScheduleKind::GPipe, .ranks = 2, .micro_batches = 2});
    Schedule rows = generate(ScheduleKind::GPipe, costs.shape);
    std::swap(rows.ranks[0].front(), rows.ranks[0].back());
    costs.schedule_from_file = rows;
    EXPECT_EQ(error_of([&] { make_plan(costs, RowsFrom::Generator); }).kind(),
              ErrorKind::Infeasible);
}

TEST(Plan, RefusesADeadlockAtAStatedCapacityOfGeneratedRows) {
    const PlainCosts costs = uniform_costs(
        {.kind = ScheduleKind::OneFOneB, .ranks = 2, .micro_batches = 2, .capacity = 0});
    EXPECT_THAT(error_of([&] { make_plan(costs, RowsFrom::Generator); }).text(),
                HasSubstr("deadlock with channel capacity 0"));
}

TEST(Plan, CopiesDoNotSeeTheCapacityOfOneAnother) {
    const Plan plan = uniform_plan(ScheduleKind::GPipe, 2, 4, Ms(1), Ms(2));
    const Plan copy = plan;
    const Plan other = Plan(copy).with_capacity(3);
    EXPECT_FALSE(plan->channel_capacity);
    EXPECT_FALSE(copy->channel_capacity);
    EXPECT_EQ(other->channel_capacity, 3);
    EXPECT_EQ(Plan(other).with_capacity(4)->channel_capacity, 4);
    EXPECT_EQ(other->channel_capacity, 3);
}

TEST(Plan, RefusesADeadlockAtItsCapacityAndNamesTheSmallest) {
    const PlainCosts costs = uniform_costs(
        {.kind = ScheduleKind::OneFOneB, .ranks = 2, .micro_batches = 2, .capacity = 0});
    const Error error = error_of([&] { make_plan(costs); });
    EXPECT_EQ(error.kind(), ErrorKind::Infeasible);
    EXPECT_THAT(error.text(), HasSubstr("deadlock with channel capacity 0"));
    EXPECT_THAT(error.hint(), HasSubstr("works is 1"));
}

TEST(Plan, WithAnotherCapacityIsCheckedAgain) {
    const Plan plan = uniform_plan(ScheduleKind::OneFOneB, 2, 2, Ms(1), Ms(2));
    EXPECT_EQ(plan->channel_capacity, std::nullopt);
    EXPECT_EQ(plan.with_capacity(1)->channel_capacity, 1);
    EXPECT_THROW(plan.with_capacity(0), Error);
}

TEST(Plan, WithOtherCostsKeepsItsRows) {
    const Plan plan = uniform_plan(ScheduleKind::GPipe, 2, 2, Ms(1), Ms(2));
    const Plan slower = plan.with_costs({{StageCost{.forward = Ms(9)}, StageCost{}}}, plan->links);
    EXPECT_EQ(slower.duration({.op = Op::Forward}), Ms(9));
    EXPECT_EQ(slower.hash(), plan.hash());
    EXPECT_THROW(plan.with_costs({{StageCost{}}}, plan->links), InternalError);
}

TEST(Plan, RefusesTimesWhoseSumsCouldOverflow) {
    // Each action alone would do: 400 of them, 50 minutes long, exceed the million seconds.
    const PlainCosts costs = staged_costs(
        ScheduleKind::GPipe, 100, {Ms(3'000'000), Ms(3'000'000)}, {Ms(3'000'000), Ms(3'000'000)});
    const Error error = error_of([&] { make_plan(costs); });
    EXPECT_EQ(error.kind(), ErrorKind::BadInput);
    EXPECT_THAT(error.text(), HasSubstr("last 1.2e+06 s together"));
    PlainCosts slow = uniform_costs({.ranks = 2, .micro_batches = 2, .bytes_per_second = 1e-9});
    slow.boundary = Bytes{1};
    EXPECT_EQ(error_of([&] { make_plan(slow); }).kind(), ErrorKind::BadInput);
}

TEST(Plan, RefusesSizesThatDisagreeAsABug) {
    const PlanParts good = uniform_plan(ScheduleKind::GPipe, 3, 2, Ms(1), Ms(2)).parts();
    const auto refused = [&good](auto change) {
        PlanParts parts = good;
        change(parts);
        EXPECT_THROW(Plan::make(parts), InternalError);
    };
    refused([](PlanParts& p) { p.cost_class.pop_back(); });
    refused([](PlanParts& p) { p.cost_class[0] = 1; });
    refused([](PlanParts& p) { p.costs[0].pop_back(); });
    refused([](PlanParts& p) { p.states.pop_back(); });
    refused([](PlanParts& p) { p.links.pop_back(); });
    refused([](PlanParts& p) { p.micro_batch_sizes = {1}; });
    refused([](PlanParts& p) { p.partition = Partition({1, 1}, 2); });
    refused([](PlanParts& p) { p.recompute = Recompute::Always; });
}

TEST(Plan, CostsDependOnTheClassOfTheMicroBatch) {
    PlanParts parts = uniform_plan(ScheduleKind::GPipe, 1, 3, Ms(1), Ms(2)).parts();
    parts.costs.push_back({StageCost{.forward = Ms(4)}});
    parts.cost_class = {0, 0, 1};
    parts.micro_batch_sizes = {3, 3, 2};
    const Plan plan = Plan::make(parts);
    EXPECT_EQ(plan.duration({.op = Op::Forward, .micro_batch = 1}), Ms(1));
    EXPECT_EQ(plan.duration({.op = Op::Forward, .micro_batch = 2}), Ms(4));
    EXPECT_EQ(plan.samples(), 8);
}

TEST(Plan, HashesItsRowsAndNothingElse) {
    const Plan plan = uniform_plan(ScheduleKind::GPipe, 2, 3, Ms(1), Ms(2));
    EXPECT_EQ(plan.hash().size(), 16U);
    EXPECT_EQ(plan.hash(), uniform_plan(ScheduleKind::GPipe, 2, 3, Ms(7), Ms(2)).hash());
    EXPECT_NE(plan.hash(), uniform_plan(ScheduleKind::OneFOneB, 2, 3, Ms(1), Ms(2)).hash());
    EXPECT_NE(plan.hash(), uniform_plan(ScheduleKind::GPipe, 2, 4, Ms(1), Ms(2)).hash());
    EXPECT_NE(
        plan.hash(),
        uniform_plan({.ranks = 2, .micro_batches = 3, .recompute = Recompute::Always}).hash());
}

}  // namespace plan_test
}  // namespace pipetwin
