// SPDX-License-Identifier: Apache-2.0
#include "core/schedule/lower.h"

#include <algorithm>

#include <gtest/gtest.h>

#include "core/base/error.h"
#include "core/schedule/generators/generate.h"
#include "core/schedule/validate.h"
#include "tests/support/builders.h"
#include "tests/support/error_of.h"

namespace pipetwin {
namespace lower_test {

using testing::lowered;
using testing::row_text;
using testing::schedule_of;

const Schedule two_by_two = generate(ScheduleKind::GPipe, {.ranks = 2, .micro_batches = 2});

TEST(AddRecompute, PutsItDirectlyBeforeEachBackward) {
    const Schedule schedule = add_recompute(two_by_two, Recompute::Always);
    EXPECT_EQ(row_text(schedule, 0), "0F0 0F1 0R1 0B1 0R0 0B0");
    EXPECT_EQ(row_text(schedule, 1), "1F0 1F1 1R1 1B1 1R0 1B0");
}

TEST(AddRecompute, PutsItBeforeTheInputGradientOfASplitBackward) {
    const Schedule schedule = add_recompute(schedule_of({"0F0 0I0 0W0"}), Recompute::Always);
    EXPECT_EQ(row_text(schedule, 0), "0F0 0R0 0I0 0W0");
}

TEST(AddRecompute, NeverTearsAnOverlappedPairApart) {
    Schedule schedule = schedule_of({"0F0 0F1 0B0 0B1"});
    schedule.ranks[0][1].with_next = true;
    EXPECT_EQ(row_text(add_recompute(schedule, Recompute::Always), 0), "0F0 0R0 0F1 0B0 0R1 0B1");
}

int recomputes_in(const std::vector<Action>& row) {
    return static_cast<int>(
        std::ranges::count_if(row, [](const Action& a) { return a.op == Op::Recompute; }));
}

TEST(AddRecompute, AlwaysMPerStageExceptLastMMinusOneNoneZero) {
    for (const ScheduleKind kind : {ScheduleKind::GPipe, ScheduleKind::OneFOneB}) {
        for (int m = 1; m <= 12; ++m) {
            const Schedule schedule = generate(kind, {.ranks = 3, .micro_batches = m});
            for (std::size_t stage = 0; stage < 3; ++stage) {
                const auto count = [&](Recompute mode) {
                    return recomputes_in(add_recompute(schedule, mode).ranks[stage]);
                };
                EXPECT_EQ(count(Recompute::Always), m);
                EXPECT_EQ(count(Recompute::ExceptLast), m - 1);
                EXPECT_EQ(count(Recompute::None), 0);
            }
        }
    }
}

TEST(AddRecompute, ExceptLastLeavesOutExactlyTheLastMicroBatchOnEveryStage) {
    const Schedule schedule = add_recompute(
        generate(ScheduleKind::OneFOneB, {.ranks = 3, .micro_batches = 4}), Recompute::ExceptLast);
    for (int stage = 0; stage < 3; ++stage) {
        const auto& row = schedule.ranks[static_cast<std::size_t>(stage)];
        for (int k = 0; k < 4; ++k) {
            const Action recompute{.op = Op::Recompute, .stage = stage, .micro_batch = k};
            EXPECT_EQ(std::ranges::count(row, recompute), k == 3 ? 0 : 1);
        }
    }
}

/// A piece of the model has one mode, on whatever stages its weights are.
TEST(AddRecompute, RecomputesPieceByPiece) {
    const Schedule schedule =
        add_recompute(two_by_two, RecomputeRules({Recompute::ExceptLast, Recompute::None}));
    EXPECT_EQ(row_text(schedule, 0), "0F0 0F1 0B1 0R0 0B0");
    EXPECT_EQ(row_text(schedule, 1), "1F0 1F1 1B1 1B0");
    const Schedule chimera =
        add_recompute(generate(ScheduleKind::Chimera, {.ranks = 2, .micro_batches = 2}),
                      RecomputeRules({Recompute::Always, Recompute::None}));
    EXPECT_EQ(row_text(chimera, 0), "0F0 3F1 3B1 0R0 0B0");  // stages 0 and 2 hold the first piece
    EXPECT_EQ(row_text(chimera, 1), "2F1 1F0 1B0 2R1 2B1");
}

TEST(AddRecompute, EachPieceIsThatOfItsOwnModeForAll) {
    for (const Recompute first : {Recompute::None, Recompute::Always, Recompute::ExceptLast}) {
        for (const Recompute second : {Recompute::None, Recompute::Always, Recompute::ExceptLast}) {
            const Schedule both = lowered(ScheduleKind::OneFOneB,
                                          {.ranks = 2, .micro_batches = 4},
                                          RecomputeRules({first, second}));
            const auto row = [](Recompute mode, std::size_t rank) {
                return lowered(ScheduleKind::OneFOneB, {.ranks = 2, .micro_batches = 4}, mode)
                    .ranks[rank];
            };
            EXPECT_EQ(both.ranks[0], row(first, 0));
            EXPECT_EQ(both.ranks[1], row(second, 1));
        }
    }
}

TEST(RecomputeOf, FindsTheModeOfARow) {
    for (const Recompute mode : {Recompute::None, Recompute::Always, Recompute::ExceptLast}) {
        EXPECT_EQ(recompute_of(add_recompute(two_by_two, mode)), mode) << to_string(mode);
    }
    EXPECT_EQ(recompute_of(schedule_of({"0F0 0F1 0R1 0B1 0B0", "1F0 1F1 1B1 1B0"})), std::nullopt);
}

/// Of two pipelines every micro-batch takes one; counting both once made a recomputing chimera a
/// bug.
TEST(RecomputeOf, FindsTheModeOfTwoPipelines) {
    const Schedule chimera = generate(ScheduleKind::Chimera, {.ranks = 4, .micro_batches = 4});
    for (const Recompute mode : {Recompute::None, Recompute::Always, Recompute::ExceptLast}) {
        EXPECT_EQ(recompute_of(add_recompute(chimera, mode)), mode) << to_string(mode);
    }
}

TEST(RecomputeOf, FindsTheModeOfEveryPiece) {
    const RecomputeRules rules(
        {Recompute::Always, Recompute::None, Recompute::ExceptLast, Recompute::None});
    for (const ScheduleKind kind : {ScheduleKind::OneFOneB, ScheduleKind::Chimera}) {
        EXPECT_EQ(
            recompute_of(add_recompute(generate(kind, {.ranks = 4, .micro_batches = 4}), rules)),
            rules);
    }
    EXPECT_EQ(recompute_of(schedule_of({"0F0 0F1 0B1 0R0 0B0", "1F0 1F1 1R1 1B1 1R0 1B0"})),
              RecomputeRules({Recompute::ExceptLast, Recompute::Always}));
}

TEST(Lower, KeepsRowsThatRecomputeStageByStageAndRefusesOthers) {
    const Schedule schedule = schedule_of({"0F0 0F1 0B1 0R0 0B0", "1F0 1F1 1R1 1B1 1R0 1B0"});
    const RecomputeRules own({Recompute::ExceptLast, Recompute::Always});
    EXPECT_EQ(recompute_of(lower(schedule, {}, "rows")), own);
    EXPECT_EQ(recompute_of(lower(schedule, {.recompute = own}, "rows")), own);
    const Error other =
        testing::error_of([&] { lower(schedule, {.recompute = Recompute::Always}, "rows"); });
    EXPECT_EQ(other.kind(), ErrorKind::Infeasible);
    EXPECT_EQ(other.text(),
              "the rows recompute already: except-last on stage 0, always on stage 1, not always");
    const Error none =
        testing::error_of([&] { lower(schedule_of({"0F0 0F1 0R1 0B1 0B0"}), {}, "rows"); });
    EXPECT_EQ(none.text(), "some micro-batches of a stage are recomputed and others are not");
}

TEST(RecomputeRules, AreOneModeWhereAllAreAlike) {
    const RecomputeRules alike({Recompute::Always, Recompute::Always});
    EXPECT_EQ(alike, Recompute::Always);
    EXPECT_EQ(alike.everywhere(), Recompute::Always);
    EXPECT_EQ(alike.of(7), Recompute::Always);
    EXPECT_TRUE(alike.fits(7));
    EXPECT_EQ(RecomputeRules(), Recompute::None);
}

TEST(RecomputeRules, DifferFromPieceToPiece) {
    const RecomputeRules rules({Recompute::Always, Recompute::Always, Recompute::None});
    EXPECT_EQ(rules.everywhere(), std::nullopt);
    EXPECT_EQ(rules.of(1), Recompute::Always);
    EXPECT_EQ(rules.of(2), Recompute::None);
    EXPECT_TRUE(rules.fits(3));
    EXPECT_FALSE(rules.fits(2));
    EXPECT_EQ(to_string(rules), "always on stages 0-1, none on stage 2");
}

TEST(RecomputeRules, OfOneMicroBatchKeepTheLastOnesAllOfIt) {
    const RecomputeRules rules({Recompute::ExceptLast, Recompute::Always});
    EXPECT_EQ(rules.at(2), rules);
    EXPECT_EQ(rules.at(1), RecomputeRules({Recompute::None, Recompute::Always}));
    EXPECT_EQ(RecomputeRules(Recompute::ExceptLast).at(1), Recompute::None);
}

TEST(AddCommunication, ReceivesDirectlyBeforeTheUseAndSendsDirectlyAfterTheProduction) {
    const Schedule schedule = add_communication(
        generate(ScheduleKind::GPipe, {.ranks = 3, .micro_batches = 1}), RecomputeTiming::Eager);
    EXPECT_EQ(row_text(schedule, 0), "0F0 0SEND_F0 0RECV_B0 0B0");
    EXPECT_EQ(row_text(schedule, 1), "1RECV_F0 1F0 1SEND_F0 1RECV_B0 1B0 1SEND_B0");
    EXPECT_EQ(row_text(schedule, 2), "2RECV_F0 2F0 2B0 2SEND_B0");
}

/// Behaviour 4: R of micro-batch i comes after B of i + 1 (so one recomputed set is alive), and
/// where it is eager it may run before the gradient of i has arrived.
TEST(AddCommunication, EagerRecomputeStandsAfterTheBackwardBeforeItAndBeforeItsOwnGradient) {
    const Schedule eager =
        add_communication(add_recompute(two_by_two, Recompute::Always), RecomputeTiming::Eager);
    EXPECT_EQ(row_text(eager, 0), "0F0 0SEND_F0 0F1 0SEND_F1 0R1 0RECV_B1 0B1 0R0 0RECV_B0 0B0");
    EXPECT_EQ(row_text(eager, 1), "1RECV_F0 1F0 1RECV_F1 1F1 1R1 1B1 1SEND_B1 1R0 1B0 1SEND_B0");
}

TEST(AddCommunication, HoldsForEveryShape) {
    const auto cell_of = [](const std::vector<Action>& row, Op op, int stage, int micro_batch) {
        const Action action{.op = op, .stage = stage, .micro_batch = micro_batch};
        return std::ranges::find(row, action) - row.begin();
    };
    for (int ranks = 1; ranks <= 6; ++ranks) {
        for (int m = 1; m <= 12; ++m) {
            const Schedule schedule = lowered(
                ScheduleKind::GPipe, {.ranks = ranks, .micro_batches = m}, Recompute::Always);
            for (int stage = 0; stage < ranks; ++stage) {
                const auto& row = schedule.ranks[static_cast<std::size_t>(stage)];
                for (int k = 0; k < m; ++k) {
                    const auto recompute = cell_of(row, Op::Recompute, stage, k);
                    if (k + 1 < m) {
                        EXPECT_GT(recompute, cell_of(row, Op::Backward, stage, k + 1));
                    }
                    if (stage + 1 < ranks) {
                        EXPECT_EQ(recompute + 1, cell_of(row, Op::RecvBackward, stage, k));
                    }
                }
            }
        }
    }
}

TEST(AddCommunication, LazyRecomputeWaitsForTheGradient) {
    const Schedule lazy =
        add_communication(add_recompute(two_by_two, Recompute::Always), RecomputeTiming::Lazy);
    EXPECT_EQ(row_text(lazy, 0), "0F0 0SEND_F0 0F1 0SEND_F1 0RECV_B1 0R1 0B1 0RECV_B0 0R0 0B0");
}

TEST(AddCommunication, LazyTimingChangesNothingWhereNothingIsRecomputed) {
    EXPECT_EQ(add_communication(two_by_two, RecomputeTiming::Lazy),
              add_communication(two_by_two, RecomputeTiming::Eager));
}

TEST(AddCommunication, StagesOnOneRankExchangeNothing) {
    const Schedule schedule =
        add_communication(schedule_of({"0F0 1F0 1B0 0B0", "2F0 2B0"}), RecomputeTiming::Eager);
    EXPECT_EQ(row_text(schedule, 0), "0F0 1F0 1SEND_F0 1RECV_B0 1B0 0B0");
    EXPECT_EQ(row_text(schedule, 1), "2RECV_F0 2F0 2B0 2SEND_B0");
}

TEST(AddCommunication, TakesAnOverlappedPairAsOne) {
    Schedule schedule = schedule_of({"0F0 0F1 0B0 0B1", "1F0 1B0 1F1 1B1"});
    schedule.ranks[0][1].with_next = true;
    schedule = add_communication(schedule, RecomputeTiming::Eager);
    EXPECT_EQ(row_text(schedule, 0), "0F0 0SEND_F0 0RECV_B0 0F1 0B0 0SEND_F1 0RECV_B1 0B1");
    EXPECT_EQ(validate(schedule), std::vector<Violation>{});
}

TEST(AddOptimizer, UpdatesEveryStageAtTheEndOfItsRow) {
    const Schedule schedule = add_optimizer(schedule_of({"0F0 1F0 1B0 0B0", "2F0 2B0"}));
    EXPECT_EQ(row_text(schedule, 0), "0F0 1F0 1B0 0B0 0OPT 1OPT");
    EXPECT_EQ(row_text(schedule, 1), "2F0 2B0 2OPT");
}

TEST(AddOptimizer, LeavesAScheduleWithoutABackwardAsItIs) {
    const Schedule forward_only = schedule_of({"0F0 0F1", "1F0 1F1"});
    EXPECT_EQ(add_optimizer(forward_only), forward_only);
}

TEST(AddOptimizer, PutsNormsOfAllStagesOfARankBeforeItsUpdates) {
    const Schedule schedule = add_optimizer(schedule_of({"0F0 1F0 1B0 0B0", "2F0 2B0"}), true);
    EXPECT_EQ(row_text(schedule, 0), "0F0 1F0 1B0 0B0 0NORM 1NORM 0OPT 1OPT");
    EXPECT_EQ(row_text(schedule, 1), "2F0 2B0 2NORM 2OPT");
    EXPECT_TRUE(has_gradient_norms(schedule));
    EXPECT_FALSE(has_gradient_norms(two_by_two));
}

TEST(AddReduction, StandsBehindTheLastBackwardOfBothTiedEnds) {
    Schedule schedule = generate(ScheduleKind::OneFOneB, {.ranks = 3, .micro_batches = 2});
    schedule.tied_ends = true;
    schedule = add_reduction(std::move(schedule));
    EXPECT_EQ(row_text(schedule, 0), "0F0 0F1 0B0 0B1 0REDUCE_GRAD");
    EXPECT_EQ(row_text(schedule, 1), "1F0 1F1 1B0 1B1");
    EXPECT_EQ(row_text(schedule, 2), "2F0 2B0 2F1 2B1 2REDUCE_GRAD");
    EXPECT_EQ(gradient_source(schedule, 0), 2);
    EXPECT_EQ(gradient_source(schedule, 1), std::nullopt);
    EXPECT_EQ(gradient_source(schedule, 2), 0);
}

TEST(ComputeOnly, IsTheReverseOfAllPasses) {
    for (const ScheduleKind kind : {ScheduleKind::GPipe, ScheduleKind::OneFOneB}) {
        for (const RecomputeTiming timing : {RecomputeTiming::Eager, RecomputeTiming::Lazy}) {
            for (int ranks = 1; ranks <= 6; ++ranks) {
                for (int m = 1; m <= 12; ++m) {
                    const ScheduleShape shape{.ranks = ranks, .micro_batches = m};
                    EXPECT_EQ(compute_only(lowered(kind, shape, Recompute::ExceptLast, timing)),
                              generate(kind, shape));
                }
            }
        }
    }
}

TEST(HasCommunication, IsTrueOnceSendsOrReceivesAreThere) {
    EXPECT_FALSE(has_communication(two_by_two));
    EXPECT_TRUE(has_communication(add_communication(two_by_two, RecomputeTiming::Eager)));
}

TEST(AddReduction, StandsBehindTheLastBackwardOfEveryStageThatSharesItsWeights) {
    const Schedule schedule =
        add_reduction(generate(ScheduleKind::Chimera, {.ranks = 2, .micro_batches = 2}));
    EXPECT_EQ(row_text(schedule, 0), "0F0 3F1 3B1 3REDUCE_GRAD 0B0 0REDUCE_GRAD");
    EXPECT_EQ(row_text(schedule, 1), "2F1 1F0 1B0 1REDUCE_GRAD 2B1 2REDUCE_GRAD");
}

TEST(Lower, LetsTheMessagesGoBeforeTheReduction) {
    const Schedule schedule = lowered(ScheduleKind::Chimera, {.ranks = 2, .micro_batches = 2});
    EXPECT_EQ(row_text(schedule, 0),
              "0F0 0SEND_F0 3RECV_F1 3F1 3B1 3SEND_B1 3REDUCE_GRAD 0RECV_B0 0B0 0REDUCE_GRAD 0OPT "
              "3OPT");
}

TEST(AddReduction, ChangesNothingWhereEveryStageHasItsOwnWeights) {
    EXPECT_EQ(add_reduction(two_by_two), two_by_two);
}

TEST(AddReduction, WithReplicasEveryStageReducesDirectlyBehindItsLastBackward) {
    const Schedule schedule = schedule_of({"0F0 0F1 0B1 0B0", "1F0 1F1 1B1 1I0 1W0"});
    const Schedule reduced = add_reduction(schedule, true);
    EXPECT_EQ(row_text(reduced, 0), "0F0 0F1 0B1 0B0 0REDUCE_GRAD");
    EXPECT_EQ(row_text(reduced, 1), "1F0 1F1 1B1 1I0 1W0 1REDUCE_GRAD");
}

TEST(SplitBackward, PutsEachWeightGradientBehindItsInputGradient) {
    const Schedule schedule = schedule_of({"0F0 0F1 0B0 0B1"});
    EXPECT_EQ(row_text(split_backward(schedule), 0), "0F0 0F1 0I0 0W0 0I1 0W1");
}

TEST(SplitBackward, LeavesAnOverlappedPairAsItIs) {
    Schedule schedule = schedule_of({"0F0 0F1 0B0 0B1"});
    schedule.ranks[0][1].with_next = true;
    EXPECT_EQ(row_text(split_backward(schedule), 0), "0F0 0F1 0B0 0I1 0W1");
}

TEST(SplitBackward, OfEveryScheduleIsValid) {
    for (const ScheduleName& known : known_schedules()) {
        const int chunks = known.kind == ScheduleKind::ZbV ||
                                   known.kind == ScheduleKind::DualPipeV ||
                                   known.kind == ScheduleKind::Hanayo
                               ? 2
                               : 1;
        const int micro_batches = known.kind == ScheduleKind::Naive ? 1 : 4;
        const int ranks =
            known.kind == ScheduleKind::Chimera || known.kind == ScheduleKind::Hanayo ? 4 : 2;
        const Schedule schedule = generate(
            known.kind, {.ranks = ranks, .chunks = chunks, .micro_batches = micro_batches});
        EXPECT_TRUE(validate(split_backward(schedule)).empty()) << known.name;
    }
}

TEST(LowerRankReceivesFirst, SwapsOnlyWhereTheOtherEndFacesIt) {
    const Schedule schedule = lower_rank_receives_first(
        schedule_of({"0F0 0SEND_F0 0F1 0SEND_F1 0RECV_B0 0B0 0RECV_B1 0B1",
                     "1RECV_F0 1F0 1B0 1SEND_B0 1RECV_F1 1F1 1B1 1SEND_B1"}));
    EXPECT_EQ(row_text(schedule, 0), "0F0 0SEND_F0 0F1 0RECV_B0 0SEND_F1 0B0 0RECV_B1 0B1");
    EXPECT_EQ(row_text(schedule, 1), "1RECV_F0 1F0 1B0 1SEND_B0 1RECV_F1 1F1 1B1 1SEND_B1");
}

TEST(LowerRankReceivesFirst, Makes1F1BWorkWithoutRoomInItsChannels) {
    for (int p = 2; p <= 8; ++p) {
        for (int m = 1; m <= 16; ++m) {
            const Schedule plain = add_communication(
                generate(ScheduleKind::OneFOneB, {.ranks = p, .micro_batches = m}),
                RecomputeTiming::Eager);
            EXPECT_EQ(smallest_capacity(plain), m >= 2 ? 1 : 0) << "p " << p << " m " << m;
            const Schedule swapped = lower_rank_receives_first(plain);
            EXPECT_TRUE(validate(swapped).empty());
            EXPECT_EQ(smallest_capacity(swapped), 0) << "p " << p << " m " << m;
        }
    }
}

}  // namespace lower_test
}  // namespace pipetwin
