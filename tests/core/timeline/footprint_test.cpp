// SPDX-License-Identifier: Apache-2.0
#include "core/timeline/footprint.h"

#include <algorithm>
#include <string>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/base/error.h"
#include "core/plan/plain_plan.h"
#include "core/schedule/generators/generate.h"
#include "core/timeline/memory_limits.h"
#include "tests/support/error_of.h"
#include "tests/support/plain_plan.h"

namespace pipetwin {
namespace footprint_test {

using testing::plain;

/// Two stages with sizes that tell every term apart by its digits.
///
///     stage   input  output  saved  during F drop  during B    weights  gradients  optimizer
///     workspace 0           1      20    300            350       380       1000       1000 2000 7
///     1          20       0    400            440       460       3000       3000       6000 9
Plan two_stages(ScheduleKind kind, int micro_batches, const RecomputeRules& recompute) {
    PlainCosts costs = plain(kind, 2, micro_batches);
    costs.recompute = recompute;
    PlanParts parts = make_plan(costs).parts();
    for (auto& stages : parts.costs) {
        stages[0].input = {1};
        stages[0].output = {20};
        stages[0].saved = {300};
        stages[0].forward_drop_peak = {350};
        stages[0].backward_peak = {380};
        stages[1].input = {20};
        stages[1].output = {0};
        stages[1].saved = {400};
        stages[1].forward_drop_peak = {440};
        stages[1].backward_peak = {460};
    }
    parts.states = {
        {.weights = {1000}, .gradients = {1000}, .optimizer_state = {2000}, .workspace = {7}},
        {.weights = {3000}, .gradients = {3000}, .optimizer_state = {6000}, .workspace = {9}}};
    return Plan::make(std::move(parts));
}

constexpr std::int64_t resident_0 = 4007;
constexpr std::int64_t resident_1 = 12009;

std::vector<std::int64_t> totals(const std::vector<MemoryUse>& peaks) {
    std::vector<std::int64_t> result;
    for (const MemoryUse& peak : peaks) {
        result.push_back(peak.total().count);
    }
    return result;
}

/// Every action of a row lasts 10 ns: a curve needs times, the peak does not.
Timeline instant(const Plan& plan) {
    Timeline timeline;
    for (const auto& row : plan->schedule.ranks) {
        auto& spans = timeline.ranks.emplace_back();
        for (const Action& action : row) {
            const Duration begin{static_cast<std::int64_t>(spans.size()) * 10};
            spans.push_back(
                {.action = action, .begin = begin, .ready = begin, .end = begin + Duration{10}});
        }
    }
    return timeline;
}

TEST(Footprint, KeepsEverythingOfEveryMicroBatchWithoutRecompute) {
    const Plan plan = two_stages(ScheduleKind::GPipe, 3, Recompute::None);
    // Rank 0: three stashes; B of the first has the gradient of its output (20) beside them: 380
    // instead of 300 + 20. Rank 1: three stashes, and during B 60 more; the gradient of the input
    // stays until it is sent.
    EXPECT_EQ(totals(peak_memory(plan)),
              (std::vector<std::int64_t>{resident_0 + 2 * 300 + 380, resident_1 + 2 * 400 + 460}));
}

TEST(Footprint, KeepsInputsAndOneMicroBatchInFullWithRecompute) {
    const Plan plan = two_stages(ScheduleKind::GPipe, 3, Recompute::Always);
    EXPECT_EQ(totals(peak_memory(plan)),
              (std::vector<std::int64_t>{resident_0 + 2 * 1 + 380, resident_1 + 2 * 20 + 460}));
}

/// What R has made: all that a stage saves, but its input. A plan that keeps everything has none.
TEST(Footprint, SaysWhatOfAPeakIsComputedAgain) {
    const auto recomputed = [](const Plan& plan) {
        std::vector<std::int64_t> bytes;
        for (const MemoryPeak& peak : memory_peaks(plan)) {
            bytes.push_back(peak.recomputed.count);
        }
        return bytes;
    };
    EXPECT_EQ(recomputed(two_stages(ScheduleKind::GPipe, 3, Recompute::Always)),
              (std::vector<std::int64_t>{300 - 1, 400 - 20}));
    EXPECT_EQ(recomputed(two_stages(ScheduleKind::OneFOneB, 3, Recompute::Always)),
              (std::vector<std::int64_t>{300 - 1, 400 - 20}));
    EXPECT_EQ(recomputed(two_stages(ScheduleKind::GPipe, 3, Recompute::None)),
              (std::vector<std::int64_t>{0, 0}));
}

/// Blocks that B computes again, 60 bytes of 80 that are there during B alone.
TEST(Footprint, SaysWhatOfAPeakABackwardComputesAgain) {
    PlanParts parts = two_stages(ScheduleKind::OneFOneB, 4, Recompute::None).parts();
    parts.layer_recompute = LayerRecompute::Block;
    for (auto& stages : parts.costs) {
        stages[0].backward_again = {60};
    }
    const Plan plan = Plan::make(std::move(parts));
    const MemoryPeak peak = memory_peaks(plan).front();
    EXPECT_EQ(plan->schedule.ranks[0][as_index(peak.cell)].op, Op::Backward);
    EXPECT_EQ(peak.use.total(), Bytes{resident_0 + 300 + 380});
    EXPECT_EQ(peak.recomputed, Bytes{60});
}

TEST(Footprint, ExceptLastKeepsTheLastMicroBatchAtOnce) {
    const Plan plan = two_stages(ScheduleKind::GPipe, 3, Recompute::ExceptLast);
    EXPECT_EQ(totals(peak_memory(plan)),
              (std::vector<std::int64_t>{resident_0 + 2 * 1 + 380, resident_1 + 2 * 20 + 460}));
}

TEST(Footprint, OneFOneBKeepsOnlyWhatIsInFlight) {
    const Plan plan = two_stages(ScheduleKind::OneFOneB, 8, Recompute::None);
    EXPECT_EQ(totals(peak_memory(plan)),
              (std::vector<std::int64_t>{resident_0 + 300 + 380, resident_1 + 460}));
}

TEST(Footprint, EachStageKeepsWhatItsOwnModeSays) {
    const RecomputeRules first({Recompute::Always, Recompute::None});
    // Rank 0 has two alive: an input (1), and the whole of the one in its backward (380). Rank 1
    // has one.
    EXPECT_EQ(totals(peak_memory(two_stages(ScheduleKind::OneFOneB, 3, first))),
              (std::vector<std::int64_t>{resident_0 + 1 + 380, resident_1 + 460}));
    EXPECT_EQ(totals(peak_memory(two_stages(ScheduleKind::GPipe, 3, first))),
              (std::vector<std::int64_t>{resident_0 + 2 * 1 + 380, resident_1 + 2 * 400 + 460}));
    const RecomputeRules last({Recompute::None, Recompute::Always});
    EXPECT_EQ(totals(peak_memory(two_stages(ScheduleKind::GPipe, 3, last))),
              (std::vector<std::int64_t>{resident_0 + 2 * 300 + 380, resident_1 + 2 * 20 + 460}));
}

TEST(Footprint, EverythingIsFreedAtTheEndOfTheStep) {
    for (const Recompute recompute : {Recompute::None, Recompute::Always, Recompute::ExceptLast}) {
        const Plan plan = two_stages(ScheduleKind::GPipe, 3, recompute);
        const auto curves = footprint(plan, instant(plan));
        EXPECT_EQ(curves[0].back().use, resident_memory(plan, 0));
        EXPECT_EQ(curves[1].back().use, resident_memory(plan, 1));
    }
}

TEST(Footprint, CurveAndTableOfPeaksAgree) {
    for (const ScheduleKind kind : {ScheduleKind::GPipe, ScheduleKind::OneFOneB}) {
        for (const Recompute recompute :
             {Recompute::None, Recompute::Always, Recompute::ExceptLast}) {
            const Plan plan = two_stages(kind, 5, recompute);
            const auto curves = footprint(plan, instant(plan));
            const auto peaks = memory_peaks(plan);
            const Timeline timeline = instant(plan);
            for (std::size_t rank = 0; rank < curves.size(); ++rank) {
                const auto highest = std::ranges::max_element(
                    curves[rank], {}, [](const auto& point) { return point.use.total(); });
                EXPECT_EQ(highest->use, peaks[rank].use);
                EXPECT_EQ(highest->time, time_of(peaks[rank], timeline.ranks[rank]));
            }
        }
    }
}

/// The action that reaches the peak of a rank, and whether by its end.
std::pair<std::string, bool> peak_of(const Plan& plan, std::size_t rank) {
    const MemoryPeak peak = memory_peaks(plan).at(rank);
    return {to_string(plan->schedule.ranks[rank].at(static_cast<std::size_t>(peak.cell))),
            peak.after};
}

TEST(Footprint, GPipePeaksInTheFirstBackwardIfThatNeedsMoreThanItFinds) {
    // Rank 0: during 0F3 3 * 300 + 300 + 20, during 0B3 3 * 300 + 380. Rank 1: 4 * 400 + 60.
    const Plan plan = two_stages(ScheduleKind::GPipe, 4, Recompute::None);
    EXPECT_EQ(peak_of(plan, 0), std::pair(std::string("0B3"), false));
    EXPECT_EQ(peak_of(plan, 1), std::pair(std::string("1B3"), false));
}

TEST(Footprint, GPipePeaksInTheLastForwardIfTheBackwardNeedsNoMore) {
    PlanParts parts = two_stages(ScheduleKind::GPipe, 4, Recompute::None).parts();
    for (auto& stages : parts.costs) {
        stages[0].backward_peak = {320};  // what is saved, and the gradient that has arrived
    }
    EXPECT_EQ(peak_of(Plan::make(parts), 0), std::pair(std::string("0F3"), false));
}

TEST(Footprint, OneFOneBPeaksInItsFirstBackward) {
    // Each backward finds as much on its rank as the first: 300 + 380, and 460.
    const Plan plan = two_stages(ScheduleKind::OneFOneB, 8, Recompute::None);
    EXPECT_EQ(peak_of(plan, 0), std::pair(std::string("0B0"), false));
    EXPECT_EQ(peak_of(plan, 1), std::pair(std::string("1B0"), false));
}

TEST(Footprint, AReceiveReachesThePeakAtItsEnd) {
    PlanParts parts = two_stages(ScheduleKind::GPipe, 1, Recompute::None).parts();
    for (auto& stages : parts.costs) {
        stages[1] = {.input = {50}};  // all that rank 1 ever holds is its input, and a gradient
    }
    const Plan plan = Plan::make(parts);
    EXPECT_EQ(peak_of(plan, 1), std::pair(std::string("1RECV_F0"), true));
    const Timeline timeline = instant(plan);
    EXPECT_EQ(time_of(memory_peaks(plan)[1], timeline.ranks[1]), Duration{10});
}

TEST(Footprint, WithoutMessagesAndStashTheStartIsThePeak) {
    PlanParts parts = two_stages(ScheduleKind::GPipe, 2, Recompute::None).parts();
    for (auto& stages : parts.costs) {
        stages = {StageCost{}, StageCost{}};
    }
    const Plan plan = Plan::make(parts);
    const MemoryPeak peak = memory_peaks(plan)[0];
    EXPECT_EQ(peak.cell, -1);
    EXPECT_EQ(peak.use.total(), Bytes{resident_0});
    EXPECT_EQ(time_of(peak, instant(plan).ranks[0]), Duration{});
}

TEST(Footprint, AMessageIsHeldFromItsReceiveAndUntilItsSend) {
    const Plan plan = two_stages(ScheduleKind::GPipe, 1, Recompute::None);
    const auto of = [&plan](Op op, int stage) {
        return memory_change(plan, {.op = op, .stage = stage}).after[MemoryKind::Boundary].count;
    };
    EXPECT_EQ(of(Op::Forward, 0), 20);
    EXPECT_EQ(of(Op::SendForward, 0), -20);
    EXPECT_EQ(of(Op::RecvForward, 1), 20);
    EXPECT_EQ(of(Op::Forward, 1), -20);
    EXPECT_EQ(of(Op::Backward, 1), 20);
    EXPECT_EQ(of(Op::SendBackward, 1), -20);
    EXPECT_EQ(of(Op::RecvBackward, 0), 20);
    EXPECT_EQ(of(Op::Backward, 0), -20);
}

TEST(Footprint, SplitBackwardFreesTheStashWithItsWeightPart) {
    const Plan plan = two_stages(ScheduleKind::GPipe, 1, Recompute::None);
    const MemoryChange input = memory_change(plan, {.op = Op::BackwardInput, .stage = 1});
    EXPECT_EQ(input.after[MemoryKind::Stash], Bytes{0});
    EXPECT_EQ(input.after[MemoryKind::Boundary], Bytes{20});
    const MemoryChange weight = memory_change(plan, {.op = Op::BackwardWeight, .stage = 0});
    EXPECT_EQ(weight.after[MemoryKind::Stash], Bytes{-300});
    EXPECT_EQ(weight.after[MemoryKind::Boundary], Bytes{-20});
}

/// What W does not read goes with I.
TEST(Footprint, SplitBackwardFreesWhatOnlyTheInputNeedsAtOnce) {
    PlanParts parts = two_stages(ScheduleKind::GPipe, 1, Recompute::None).parts();
    for (auto& stages : parts.costs) {
        stages[1].input_saved = {150};
        stages[1].split = {30};
    }
    const Plan plan = Plan::make(parts);
    const MemoryChange input = memory_change(plan, {.op = Op::BackwardInput, .stage = 1});
    EXPECT_EQ(input.during[MemoryKind::Stash], Bytes{30});
    EXPECT_EQ(input.after[MemoryKind::Stash], Bytes{30 - 150});
    const MemoryChange weight = memory_change(plan, {.op = Op::BackwardWeight, .stage = 1});
    EXPECT_EQ(weight.during[MemoryKind::Stash], Bytes{0});
    EXPECT_EQ(weight.after[MemoryKind::Stash], Bytes{-(400 - 150) - 30});
    // The whole backward frees all of it.
    EXPECT_EQ(memory_change(plan, {.op = Op::Backward, .stage = 1}).after[MemoryKind::Stash],
              Bytes{-400});
}

/// I holds what its layers have at most, and gives back the gradient that W does not read.
TEST(Footprint, AnInputHalfReachesItsPeakAndFreesTheGradientThatWDoesNotRead) {
    PlanParts parts = two_stages(ScheduleKind::GPipe, 1, Recompute::None).parts();
    for (auto& stages : parts.costs) {
        stages[0].split = {30};
        stages[0].unread_gradient = {20};
        stages[0].backward_input_peak = {390};
    }
    const Plan plan = Plan::make(parts);
    const MemoryChange input = memory_change(plan, {.op = Op::BackwardInput, .stage = 0});
    EXPECT_EQ(input.during.total(), Bytes{390 - 300 - 20});
    EXPECT_EQ(input.after[MemoryKind::Stash], Bytes{30});
    EXPECT_EQ(input.after[MemoryKind::Boundary], Bytes{-20});
    const MemoryChange weight = memory_change(plan, {.op = Op::BackwardWeight, .stage = 0});
    EXPECT_EQ(weight.after[MemoryKind::Stash], Bytes{-330});
    EXPECT_EQ(weight.after[MemoryKind::Boundary], Bytes{0});
}

/// A forward whose layers drop what they compute again has the largest of them for a moment.
TEST(Footprint, AForwardReachesItsPeakAndKeepsWhatIsSaved) {
    PlanParts parts = two_stages(ScheduleKind::GPipe, 1, Recompute::None).parts();
    for (auto& stages : parts.costs) {
        stages[0].forward_peak = {1320};
    }
    const MemoryChange change = memory_change(Plan::make(parts), {.op = Op::Forward, .stage = 0});
    EXPECT_EQ(change.during[MemoryKind::Stash] + change.during[MemoryKind::Boundary], Bytes{1320});
    EXPECT_EQ(change.after[MemoryKind::Stash], Bytes{300});
}

TEST(Footprint, ACapacityReservesRoomForEveryIncomingBoundary) {
    const Plan plan = two_stages(ScheduleKind::GPipe, 3, Recompute::None).with_capacity(2);
    EXPECT_EQ(resident_memory(plan, 0)[MemoryKind::Boundary], Bytes{2 * 20});
    EXPECT_EQ(resident_memory(plan, 1)[MemoryKind::Boundary], Bytes{2 * 20});
    EXPECT_EQ(resident_memory(plan, 0).total(), Bytes{resident_0 + 40});
}

TEST(Footprint, LiveActivationsCountFromForwardToBackward) {
    EXPECT_EQ(
        peak_live_activations(two_stages(ScheduleKind::GPipe, 5, Recompute::Always)->schedule),
        (std::vector<int>{5, 5}));
    EXPECT_EQ(
        peak_live_activations(two_stages(ScheduleKind::OneFOneB, 5, Recompute::None)->schedule),
        (std::vector<int>{2, 1}));
}

TEST(Footprint, TheContextOfADeviceIsThereBeforeTheFirstAction) {
    PlanParts parts = two_stages(ScheduleKind::GPipe, 3, Recompute::None).parts();
    const Bytes before = peak_memory(Plan::make(parts))[1].total();
    parts.context = {Bytes{0}, Bytes{1000}};
    const Plan plan = Plan::make(parts);
    EXPECT_EQ(resident_memory(plan, 0)[MemoryKind::Context], Bytes{0});
    EXPECT_EQ(resident_memory(plan, 1)[MemoryKind::Context], Bytes{1000});
    EXPECT_EQ(peak_memory(plan)[1].total(), before + Bytes{1000});
}

TEST(CheckMemory, EveryRankHasItsOwnLimitWhereTheyDiffer) {
    PlanParts parts = two_stages(ScheduleKind::GPipe, 3, Recompute::None).parts();
    parts.memory_limit = Bytes{1};  // does not count beside limits of ranks
    parts.memory_limits = {Bytes{1'000'000}, Bytes{13269}};
    EXPECT_NO_THROW(check_memory(Plan::make(parts)));
    parts.memory_limits = {Bytes{1'000'000}, Bytes{13268}};
    const Error error = testing::error_of([&] { check_memory(Plan::make(parts)); });
    EXPECT_THAT(error.what(), ::testing::HasSubstr("rank 1 peaks at 12.96 KiB (13269 bytes)"));
    EXPECT_THAT(error.what(), ::testing::HasSubstr("over the limit of 12.96 KiB"));
}

TEST(CheckMemory, RefusesAPlanAboveTheLimitWithThePredictedBytes) {
    PlanParts parts = two_stages(ScheduleKind::GPipe, 3, Recompute::None).parts();
    parts.memory_limit = Bytes{13268};
    const Error error = testing::error_of([&] { check_memory(Plan::make(parts)); });
    EXPECT_EQ(error.kind(), ErrorKind::Infeasible);
    const std::string text = error.what();
    EXPECT_THAT(text, ::testing::HasSubstr("1 of 2 ranks needs more than the limit of 12.96 KiB"));
    EXPECT_THAT(text, ::testing::HasSubstr("rank 1 peaks at 12.96 KiB (13269 bytes)"));
    EXPECT_THAT(text, ::testing::HasSubstr("over the limit"));
    EXPECT_THAT(error.hint(), ::testing::HasSubstr("recompute"));
    PlanParts recomputed = two_stages(ScheduleKind::GPipe, 3, Recompute::Always).parts();
    recomputed.memory_limit = Bytes{1};
    EXPECT_THAT(testing::error_of([&] { check_memory(Plan::make(recomputed)); }).hint(),
                ::testing::Not(::testing::HasSubstr("recompute")));
    // More micro-batches than samples, and more stages than layers, cannot be.
    parts.micro_batch_sizes.assign(parts.cost_class.size(), 1);
    EXPECT_EQ(testing::error_of([&] { check_memory(Plan::make(parts)); }).hint(),
              "recompute = \"always\" or more stages need less memory per rank");
    parts.partition = Partition({1, 1}, 2);
    EXPECT_EQ(testing::error_of([&] { check_memory(Plan::make(parts)); }).hint(),
              "recompute = \"always\" needs less memory per rank");
    recomputed.micro_batch_sizes = parts.micro_batch_sizes;
    recomputed.partition = parts.partition;
    EXPECT_EQ(testing::error_of([&] { check_memory(Plan::make(recomputed)); }).hint(),
              "use devices with more memory, or a smaller model");
    for (const bool largest_recomputes : {false, true}) {  // rank 1 needs more than rank 0
        PlanParts mixed =
            two_stages(ScheduleKind::GPipe,
                       3,
                       largest_recomputes ? RecomputeRules({Recompute::None, Recompute::Always})
                                          : RecomputeRules({Recompute::Always, Recompute::None}))
                .parts();
        mixed.memory_limit = Bytes{1};
        const Error of_mixed = testing::error_of([&] { check_memory(Plan::make(mixed)); });
        EXPECT_NE(of_mixed.hint().find("recompute") != std::string::npos, largest_recomputes);
    }
    parts.memory_limit = Bytes{13269};
    EXPECT_NO_THROW(check_memory(Plan::make(parts)));
    parts.memory_limit.reset();
    EXPECT_NO_THROW(check_memory(Plan::make(parts)));
}

}  // namespace footprint_test
}  // namespace pipetwin
