// SPDX-License-Identifier: Apache-2.0
#include "core/schedule/schedule.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <string_view>
#include <utility>
#include <vector>

#include <gmock/gmock.h>

#include "core/base/error.h"
#include "core/schedule/generators/generate.h"
#include "core/schedule/generators/schedule_traits.h"
#include "core/schedule/lower.h"
#include "core/schedule/validate.h"
#include "tests/support/builders.h"
#include "tests/support/error_of.h"

namespace pipetwin {
namespace schedule_test {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::row_text;

/// Every shape that the properties run over.
template <class Check>
void for_every_shape(Check check) {
    for (int ranks = 1; ranks <= 6; ++ranks) {
        for (int micro_batches = 1; micro_batches <= 12; ++micro_batches) {
            SCOPED_TRACE(::testing::Message() << "K=" << ranks << " M=" << micro_batches);
            check(ScheduleShape{.ranks = ranks, .micro_batches = micro_batches});
        }
    }
}

std::vector<int> micro_batches_of(const std::vector<Action>& row, Op op) {
    std::vector<int> result;
    for (const Action& action : row) {
        if (action.op == op) {
            result.push_back(action.micro_batch);
        }
    }
    return result;
}

std::vector<int> counting(int count) {
    std::vector<int> numbers(static_cast<std::size_t>(count));
    std::iota(numbers.begin(), numbers.end(), 0);
    return numbers;
}

TEST(GPipe, RunsAllForwardsThenAllBackwardsDescending) {
    const Schedule schedule = generate(ScheduleKind::GPipe, {.ranks = 2, .micro_batches = 3});
    EXPECT_EQ(row_text(schedule, 0), "0F0 0F1 0F2 0B2 0B1 0B0");
    EXPECT_EQ(row_text(schedule, 1), "1F0 1F1 1F2 1B2 1B1 1B0");
}

TEST(GPipe, MayRunBackwardsAscending) {
    const Schedule schedule = generate(ScheduleKind::GPipe,
                                       {.ranks = 1, .micro_batches = 3},
                                       {.gpipe_order = BackwardOrder::Ascending});
    EXPECT_EQ(row_text(schedule, 0), "0F0 0F1 0F2 0B0 0B1 0B2");
}

/// The forward of (i, j) needs the rank, i.e. (i - 1, j), and its input, i.e. (i, j - 1). With
/// every forward lasting one tick the longest path to it gives the tick in which it runs.
TEST(GPipe, ForwardTickKHoldsExactlyThePairsThatSumToK) {
    for (int stages = 1; stages <= 8; ++stages) {
        for (int micro_batches = 1; micro_batches <= 16; ++micro_batches) {
            const Schedule schedule =
                generate(ScheduleKind::GPipe, {.ranks = stages, .micro_batches = micro_batches});
            std::vector<int> input_ready(static_cast<std::size_t>(micro_batches), 0);
            int ticks = 0;
            for (const auto& row : schedule.ranks) {
                int rank_ready = 0;
                for (const Action& action : row) {
                    if (action.op != Op::Forward) {
                        continue;
                    }
                    int& ready = input_ready[static_cast<std::size_t>(action.micro_batch)];
                    const int tick = std::max(rank_ready, ready);
                    EXPECT_EQ(tick, action.micro_batch + action.stage);
                    rank_ready = ready = tick + 1;
                    ticks = std::max(ticks, tick + 1);
                }
            }
            EXPECT_EQ(ticks, micro_batches + stages - 1);
        }
    }
}

TEST(GPipe, EachStageRunsForwardsAscendingOnceThenBackwardsDescendingOnceAndNothingElse) {
    for_every_shape([](const ScheduleShape& shape) {
        const Schedule schedule = generate(ScheduleKind::GPipe, shape);
        std::vector<int> descending = counting(shape.micro_batches);
        std::ranges::reverse(descending);
        for (int stage = 0; stage < shape.ranks; ++stage) {
            const auto& row = schedule.ranks[static_cast<std::size_t>(stage)];
            EXPECT_EQ(row.size(), 2 * static_cast<std::size_t>(shape.micro_batches));
            EXPECT_EQ(micro_batches_of(row, Op::Forward), counting(shape.micro_batches));
            EXPECT_EQ(micro_batches_of(row, Op::Backward), descending);
            EXPECT_TRUE(std::ranges::is_sorted(row, {}, [](const Action& a) { return a.op; }));
            EXPECT_TRUE(
                std::ranges::all_of(row, [&](const Action& a) { return a.stage == stage; }));
        }
    });
}

TEST(GPipe, OneMicroBatchEqualsNaiveModelParallelism) {
    for (int ranks = 1; ranks <= 8; ++ranks) {
        const ScheduleShape shape{.ranks = ranks, .micro_batches = 1};
        EXPECT_EQ(generate(ScheduleKind::GPipe, shape), generate(ScheduleKind::Naive, shape));
    }
}

TEST(Naive, RefusesMoreThanOneMicroBatch) {
    const Error error =
        testing::error_of([] { generate(ScheduleKind::Naive, {.ranks = 2, .micro_batches = 4}); });
    EXPECT_EQ(error.kind(), ErrorKind::Infeasible);
    EXPECT_EQ(error.place(), "naive");
    EXPECT_EQ(error.text(), "needs one micro-batch, got 4");
}

TEST(OneFOneB, RanksWarmUpWithOneForwardPerRankBehindThem) {
    const Schedule schedule = generate(ScheduleKind::OneFOneB, {.ranks = 3, .micro_batches = 4});
    EXPECT_EQ(row_text(schedule, 0), "0F0 0F1 0F2 0B0 0F3 0B1 0B2 0B3");
    EXPECT_EQ(row_text(schedule, 1), "1F0 1F1 1B0 1F2 1B1 1F3 1B2 1B3");
    EXPECT_EQ(row_text(schedule, 2), "2F0 2B0 2F1 2B1 2F2 2B2 2F3 2B3");
}

TEST(OneFOneB, RunsEveryMicroBatchOnceInAscendingOrder) {
    for_every_shape([](const ScheduleShape& shape) {
        const Schedule schedule = generate(ScheduleKind::OneFOneB, shape);
        for (const auto& row : schedule.ranks) {
            EXPECT_EQ(micro_batches_of(row, Op::Forward), counting(shape.micro_batches));
            EXPECT_EQ(micro_batches_of(row, Op::Backward), counting(shape.micro_batches));
        }
    });
}

/// Huang's GPipe keeps m alive; the point of 1F1B is that rank r keeps min(m, p - r).
TEST(OneFOneB, RankRKeepsNoMoreThanPMinusRMicroBatchesAlive) {
    for_every_shape([](const ScheduleShape& shape) {
        const Schedule schedule = generate(ScheduleKind::OneFOneB, shape);
        for (int rank = 0; rank < shape.ranks; ++rank) {
            int alive = 0;
            int most = 0;
            for (const Action& action : schedule.ranks[static_cast<std::size_t>(rank)]) {
                alive += action.op == Op::Forward ? 1 : -1;
                most = std::max(most, alive);
            }
            EXPECT_EQ(most, std::min(shape.micro_batches, shape.ranks - rank));
        }
    });
}

TEST(Generate, PlacesEveryStageOnItsOwnRankWithItsOwnWeights) {
    const Schedule schedule = generate(ScheduleKind::OneFOneB, {.ranks = 3, .micro_batches = 2});
    EXPECT_EQ(schedule.micro_batches, 2);
    EXPECT_EQ(schedule.rank_of_stage, counting(3));
    EXPECT_EQ(schedule.weights_of_stage, counting(3));
}

/// A generator is total: a valid schedule that runs with enough room, or an error naming the rule.
TEST(Generate, EveryShapeGivesAValidScheduleOrAnErrorThatNamesTheRule) {
    for (const ScheduleName& known : known_schedules()) {
        int valid = 0;
        for (int ranks = 1; ranks <= 8; ++ranks) {
            for (int chunks = 1; chunks <= 4; ++chunks) {
                for (int micro_batches = 1; micro_batches <= 32; ++micro_batches) {
                    const ScheduleShape shape{
                        .ranks = ranks, .chunks = chunks, .micro_batches = micro_batches};
                    try {
                        const Schedule schedule = generate(known.kind, shape);
                        ++valid;
                        ASSERT_THAT(validate(schedule), IsEmpty())
                            << known.name << " p" << ranks << " v" << chunks << " m"
                            << micro_batches;
                        const Schedule lowered =
                            add_communication(schedule, RecomputeTiming::Eager);
                        ASSERT_THAT(validate(lowered), IsEmpty()) << known.name;
                        ASSERT_GE(smallest_capacity(lowered), 0)
                            << known.name << " p" << ranks << " v" << chunks << " m"
                            << micro_batches;
                    } catch (const Error& error) {
                        ASSERT_EQ(error.kind(), ErrorKind::Infeasible) << known.name;
                        ASSERT_THAT(error.what(), HasSubstr(std::string(known.name)));
                    }
                }
            }
        }
        EXPECT_GE(valid, 4) << known.name;
    }
}

/// The smallest group that fills all ranks in every round. Where m / (m div p) micro-batches make
/// equal rounds, it is that number, as in PyTorch.
TEST(Interleaved1F1B, TakesTheSmallestGroupsThatFillAllRanks) {
    const auto rows = [](int p, int m, int group) {
        return generate(ScheduleKind::Interleaved1F1B,
                        {.ranks = p, .chunks = 2, .micro_batches = m},
                        {.group_size = group});
    };
    for (const auto& [p, m, group] : std::vector<std::array<int, 3>>{
             {4, 8, 4}, {4, 6, 6}, {4, 10, 5}, {4, 9, 5}, {3, 7, 4}, {4, 7, 7}, {5, 24, 6}}) {
        EXPECT_EQ(rows(p, m, 0), rows(p, m, group)) << p << " ranks, " << m << " micro-batches";
    }
    for (int p = 1; p <= 6; ++p) {
        for (int m = p; m <= 30; ++m) {
            if (m % (m / p) == 0) {
                EXPECT_EQ(rows(p, m, 0), rows(p, m, m / (m / p))) << p << " " << m;
            }
        }
    }
    for (int group = 3; group <= 5; ++group) {
        EXPECT_EQ(rows(4, 3, 0), rows(4, 3, group)) << group;
    }
    EXPECT_THROW(rows(4, 3, 2), Error);
    EXPECT_THROW(rows(4, 6, 4), Error);
}

/// The rows that PyTorch 2.14.1 makes. They were refused once.
TEST(Interleaved1F1B, FewerMicroBatchesThanRanksAreOneGroup) {
    const Schedule rows =
        generate(ScheduleKind::Interleaved1F1B, {.ranks = 4, .chunks = 2, .micro_batches = 3});
    EXPECT_EQ(testing::row_text(rows, 0), "0F0 0F1 0F2 4F0 4F1 4F2 4B0 4B1 4B2 0B0 0B1 0B2");
    EXPECT_EQ(testing::row_text(rows, 1), "1F0 1F1 1F2 5F0 5F1 5F2 5B0 5B1 5B2 1B0 1B1 1B2");
    EXPECT_EQ(testing::row_text(rows, 2), "2F0 2F1 2F2 6F0 6F1 6F2 6B0 6B1 6B2 2B0 2B1 2B2");
    EXPECT_EQ(testing::row_text(rows, 3), "3F0 3F1 3F2 7F0 7B0 7F1 7B1 7F2 7B2 3B0 3B1 3B2");
}

TEST(Generate, RefusesAScheduleFromAFile) {
    EXPECT_THROW(generate(ScheduleKind::FromFile, {}), InternalError);
}

TEST(CheckShape, NamesTheValueThatIsOutOfRange) {
    const auto text_of = [](const ScheduleShape& shape) {
        try {
            check_shape(shape);
        } catch (const Error& error) {
            EXPECT_EQ(error.kind(), ErrorKind::BadInput);
            return error.text();
        }
        return std::string("accepted");
    };
    EXPECT_EQ(text_of({.ranks = 0}), "stages = 0 is out of range");
    EXPECT_EQ(text_of({.ranks = 4097}), "stages = 4097 is out of range");
    EXPECT_EQ(text_of({.chunks = -1}), "chunks = -1 is out of range");
    EXPECT_EQ(text_of({.micro_batches = 0}), "micro_batches = 0 is out of range");
    EXPECT_EQ(text_of({.micro_batches = 65537}), "micro_batches = 65537 is out of range");
    EXPECT_EQ(text_of({.ranks = 8, .micro_batches = 65536}), "accepted");
}

TEST(CheckShape, RefusesMoreActionsThanFitIntoMemoryBeforeAllocatingThem) {
    EXPECT_THROW(
        generate(ScheduleKind::GPipe, {.ranks = 4096, .chunks = 1, .micro_batches = 65536}), Error);
    EXPECT_THROW(check_shape({.ranks = 4096, .chunks = 64, .micro_batches = 65536}), Error);
}

TEST(ScheduleKindName, IsReadInAnyCaseAndInPyTorchsSpelling) {
    EXPECT_EQ(schedule_kind("gpipe"), ScheduleKind::GPipe);
    EXPECT_EQ(schedule_kind("GPipe"), ScheduleKind::GPipe);
    EXPECT_EQ(schedule_kind("ScheduleGPipe"), ScheduleKind::GPipe);
    EXPECT_EQ(schedule_kind("1f1b"), ScheduleKind::OneFOneB);
    EXPECT_EQ(schedule_kind("Schedule1F1B"), ScheduleKind::OneFOneB);
    EXPECT_EQ(schedule_kind("NAIVE"), ScheduleKind::Naive);
}

TEST(ScheduleKindName, GoesToTextAndBack) {
    for (const ScheduleName& known : known_schedules()) {
        EXPECT_EQ(to_string(known.kind), known.name);
        EXPECT_EQ(schedule_kind(known.name), known.kind);
    }
    EXPECT_EQ(to_string(ScheduleKind::FromFile), "file");
}

/// A name in code is a place in the list.
TEST(ScheduleKindName, IsThatOfItsRow) {
    const std::vector<std::pair<ScheduleKind, std::string_view>> names{
        {ScheduleKind::Naive, "naive"},
        {ScheduleKind::GPipe, "gpipe"},
        {ScheduleKind::OneFOneB, "1f1b"},
        {ScheduleKind::Interleaved1F1B, "interleaved-1f1b"},
        {ScheduleKind::LoopedBfs, "looped-bfs"},
        {ScheduleKind::ZbH1, "zb-h1"},
        {ScheduleKind::ZbH2, "zb-h2"},
        {ScheduleKind::ZbAuto, "zb-auto"},
        {ScheduleKind::ZbV, "zb-v"},
        {ScheduleKind::InterleavedZb, "interleaved-zb"},
        {ScheduleKind::DualPipeV, "dualpipe-v"},
        {ScheduleKind::Chimera, "chimera"},
        {ScheduleKind::Hanayo, "hanayo"},
        {ScheduleKind::ForwardOnly, "forward-only"},
        {ScheduleKind::PipeDream, "pipedream"},
        {ScheduleKind::PipeDream2Bw, "pipedream-2bw"}};
    for (const auto& [kind, name] : names) {
        EXPECT_EQ(to_string(kind), name);
    }
    EXPECT_THROW(schedule_traits(static_cast<ScheduleKind>(1000)), InternalError);
    EXPECT_NO_THROW(schedule_kind(default_schedule));
}

TEST(ScheduleKindName, UnknownOnesAreRefusedWithTheNearest) {
    const Error error = testing::error_of([] { schedule_kind("gpie"); });
    EXPECT_EQ(error.kind(), ErrorKind::BadInput);
    EXPECT_THAT(error.text(), HasSubstr("'gpie'"));
    EXPECT_THAT(error.hint(), HasSubstr("gpipe"));
    EXPECT_THROW(schedule_kind(""), Error);
    EXPECT_THROW(schedule_kind("schedule"), Error);
}

}  // namespace schedule_test
}  // namespace pipetwin
