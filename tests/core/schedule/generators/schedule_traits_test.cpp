// SPDX-License-Identifier: Apache-2.0
#include "core/schedule/generators/schedule_traits.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include <gmock/gmock.h>

#include "core/base/as_index.h"
#include "core/base/error.h"
#include "core/schedule/generators/generate.h"
#include "core/schedule/schedule.h"
#include "core/timeline/footprint.h"
#include "tests/support/builders.h"
#include "tests/support/places.h"

namespace pipetwin {
namespace schedule_traits_test {

using ::testing::UnorderedElementsAre;

struct Shaped {
    const ScheduleTraits& row;
    ScheduleShape shape;
    Schedule schedule;
};

std::string text_of(const Shaped& shaped) {
    return std::string(shaped.row.name) + ", p " + std::to_string(shaped.shape.ranks) + ", v " +
           std::to_string(shaped.shape.chunks) + ", m " +
           std::to_string(shaped.shape.micro_batches);
}

/// Every schedule in every small shape that it has.
template <class Check>
void for_each_schedule(Check check) {
    for (const ScheduleName& known : known_schedules()) {
        const ScheduleTraits& row = schedule_traits(known.kind);
        for (const int chunks : {1, 2, 3, 4}) {
            for (int ranks = 1; ranks <= 6; ++ranks) {
                for (int micro_batches = 1; micro_batches <= 14; ++micro_batches) {
                    const ScheduleShape shape{
                        .ranks = ranks, .chunks = chunks, .micro_batches = micro_batches};
                    try {
                        check(Shaped{row, shape, generate(known.kind, shape)});
                    } catch (const Error&) {
                        continue;  // its rules forbid this shape
                    }
                }
            }
        }
    }
}

int count_of(const Schedule& schedule, Op op) {
    int count = 0;
    for (const auto& row : schedule.ranks) {
        count += static_cast<int>(std::ranges::count(row, op, &Action::op));
    }
    return count;
}

bool passes_gradient_on(const Action& action) {
    return action.op == Op::Backward || action.op == Op::BackwardInput;
}

/// How many forwards of a rank have no backward yet, at most.
int most_in_flight(const std::vector<Action>& row) {
    int in_flight = 0;
    int most = 0;
    for (const Action& action : row) {
        if (action.op == Op::Forward) {
            most = std::max(most, ++in_flight);
        } else if (passes_gradient_on(action)) {
            --in_flight;
        }
    }
    return most;
}

/// Where stages lie, as the row says.
std::vector<int> expected_ranks(const Shaped& shaped) {
    const int p = shaped.shape.ranks;
    std::vector<int> ranks;
    for (int stage = 0; stage < shaped.schedule.stage_count(); ++stage) {
        const bool turned = stage >= p && (shaped.row.placement == StagePlacement::V ||
                                           shaped.row.placement == StagePlacement::BothWays);
        ranks.push_back(turned ? 2 * p - 1 - stage : stage % p);
    }
    return ranks;
}

TEST(ScheduleTraits, NumbersOfChunksAreThoseThatTheGeneratorTakes) {
    for (const ScheduleName& known : known_schedules()) {
        std::vector<int> taken;
        for_each_schedule([&](const Shaped& shaped) {
            if (shaped.row.name == known.name &&
                std::ranges::find(taken, shaped.shape.chunks) == taken.end()) {
                taken.push_back(shaped.shape.chunks);
            }
        });
        switch (schedule_traits(known.kind).chunks) {
            case ChunkCounts::One:
                EXPECT_THAT(taken, UnorderedElementsAre(1)) << known.name;
                break;
            case ChunkCounts::Two:
                EXPECT_THAT(taken, UnorderedElementsAre(2)) << known.name;
                break;
            case ChunkCounts::Several:
                EXPECT_THAT(taken, UnorderedElementsAre(1, 2, 3, 4)) << known.name;
                break;
        }
    }
}

TEST(ScheduleTraits, StagesLieWhereTheRowSays) {
    for_each_schedule([](const Shaped& shaped) {
        const int copies = shaped.row.placement == StagePlacement::BothWays ? 2 : 1;
        ASSERT_NE(shaped.row.placement, StagePlacement::Unknown) << text_of(shaped);
        ASSERT_EQ(shaped.schedule.rank_of_stage, expected_ranks(shaped)) << text_of(shaped);
        ASSERT_EQ(shaped.schedule.stage_count(), copies * model_stage_count(shaped.schedule))
            << text_of(shaped);
    });
}

/// So a gradient that I adds, as that of a normalization's gain, has the bits of one that W adds.
TEST(ScheduleTraits, WeightHalvesTakeTheMicroBatchesInTheOrderOfInputHalves) {
    for_each_schedule([](const Shaped& shaped) {
        ASSERT_TRUE(testing::weights_follow_inputs(shaped.schedule)) << text_of(shaped);
    });
}

/// 1: the backwards of every stage take the micro-batches in ascending order, -1: descending, 0:
/// neither, or there are too few to tell.
int backward_direction(const Schedule& schedule) {
    bool ascends = true;
    bool descends = true;
    std::vector<int> last(as_index(schedule.stage_count()), -1);
    std::vector<int> last_weight = last;
    const auto next = [&](int& before, int micro_batch) {
        ascends = ascends && (before < 0 || before < micro_batch);
        descends = descends && (before < 0 || before > micro_batch);
        before = micro_batch;
    };
    for (const std::vector<Action>& row : schedule.ranks) {
        for (const Action& action : row) {
            if (passes_gradient_on(action)) {
                next(last[as_index(action.stage)], action.micro_batch);
            } else if (action.op == Op::BackwardWeight) {
                next(last_weight[as_index(action.stage)], action.micro_batch);
            }
        }
    }
    return static_cast<int>(ascends) - static_cast<int>(descends);
}

/// Gradients are summed in the order of the backwards, so the order must not depend on the shape:
/// a training has the same bits on any number of ranks.
TEST(ScheduleTraits, BackwardsOfAStageAscendOrDescendWhateverTheShape) {
    for (const ScheduleName& known : known_schedules()) {
        std::vector<int> directions;
        for_each_schedule([&](const Shaped& shaped) {
            if (shaped.row.name != known.name || !shaped.row.trains ||
                shaped.shape.micro_batches <
                    (shaped.row.placement == StagePlacement::BothWays ? 4 : 2)) {
                return;
            }
            const int direction = backward_direction(shaped.schedule);
            EXPECT_NE(direction, 0) << text_of(shaped);
            directions.push_back(direction);
        });
        EXPECT_EQ(std::ranges::count(directions, 1) * std::ranges::count(directions, -1), 0)
            << known.name;
    }
}

TEST(ScheduleTraits, ThePictureOfEveryScheduleIsInTheDocs) {
    const std::filesystem::path docs = std::filesystem::path(places::source_folder()) / "docs";
    std::ifstream stream(docs / "schedules.md");
    const std::string text(std::istreambuf_iterator<char>(stream), {});
    for (const ScheduleName& known : known_schedules()) {
        const std::string name(known.name);
        EXPECT_NE(text.find("](schedules/" + name + ".svg)"), std::string::npos) << name;
        EXPECT_TRUE(std::filesystem::exists(docs / "schedules" / (name + ".svg")))
            << name << ": run scripts/schedule-pictures";
    }
}

TEST(ScheduleTraits, BackwardsAreSplitOrNotAsTheRowSays) {
    for_each_schedule([](const Shaped& shaped) {
        const int whole = count_of(shaped.schedule, Op::Backward);
        const int halves = count_of(shaped.schedule, Op::BackwardInput);
        ASSERT_EQ(shaped.row.trains, whole + halves > 0) << text_of(shaped);
        ASSERT_TRUE(shaped.row.split != BackwardSplit::Never || halves == 0) << text_of(shaped);
        ASSERT_TRUE(shaped.row.split != BackwardSplit::Always || whole == 0) << text_of(shaped);
    });
}

TEST(ScheduleTraits, ForwardsComeFirstWhereTheRowSaysSo) {
    for_each_schedule([](const Shaped& shaped) {
        if (shaped.row.forwards_first) {
            for (const auto& row : shaped.schedule.ranks) {
                ASSERT_TRUE(std::ranges::is_partitioned(
                    row, [](Op op) { return op == Op::Forward; }, &Action::op))
                    << text_of(shaped);
            }
        }
    });
}

/// What bounds of memory take for granted.
TEST(ScheduleTraits, ARankHoldsAsManyStashesAsTheRowSays) {
    int compared = 0;
    for_each_schedule([&](const Shaped& shaped) {
        if (!shaped.row.stashes) {
            return;
        }
        const std::vector<int> live = peak_live_activations(shaped.schedule);
        for (int rank = 0; rank < shaped.shape.ranks; ++rank) {
            const LiveStashes least = shaped.row.stashes(shaped.shape, rank);
            const int in_flight = most_in_flight(shaped.schedule.ranks[as_index(rank)]);
            ++compared;
            ASSERT_LE(least.all, live[as_index(rank)]) << text_of(shaped) << " rank " << rank;
            ASSERT_GE(least.pending, 0) << text_of(shaped) << " rank " << rank;
            if (least.pending > 0) {
                ASSERT_GE(least.all - least.pending, std::min(least.all, in_flight))
                    << text_of(shaped) << " rank " << rank;
            }
        }
    });
    EXPECT_GT(compared, 1000);
}

/// What bounds of time take for granted.
TEST(ScheduleTraits, NoMoreAreInFlightThanTheRowSays) {
    int compared = 0;
    for_each_schedule([&](const Shaped& shaped) {
        if (!shaped.row.in_flight || shaped.shape.chunks > 1) {
            return;
        }
        for (int rank = 0; rank < shaped.shape.ranks; ++rank) {
            ++compared;
            ASSERT_LE(most_in_flight(shaped.schedule.ranks[as_index(rank)]),
                      shaped.row.in_flight(shaped.shape, rank))
                << text_of(shaped) << " rank " << rank;
        }
    });
    EXPECT_GT(compared, 500);
}

TEST(ScheduleTraits, OneScheduleAloneIsTriedOnOneRank) {
    std::vector<std::string_view> first;
    for (const ScheduleName& known : known_schedules()) {
        if (schedule_traits(known.kind).searched == Searched::First) {
            first.push_back(known.name);
        }
    }
    EXPECT_THAT(first, UnorderedElementsAre("1f1b"));
}

/// GPipe (section 2.3) recomputes before the gradient is there; Megatron-LM's and PyTorch's
/// checkpoints are computed again within the backward.
TEST(ScheduleTraits, OnlyGPipeRecomputesBeforeTheGradientHasArrived) {
    for (const ScheduleName& known : known_schedules()) {
        EXPECT_EQ(schedule_traits(known.kind).recompute_timing,
                  known.name == "gpipe" ? RecomputeTiming::Eager : RecomputeTiming::Lazy)
            << known.name;
    }
    EXPECT_EQ(schedule_traits("mine.csv").recompute_timing, RecomputeTiming::Lazy);
}

TEST(ScheduleTraits, OfAFileClaimNothing) {
    const ScheduleTraits& row = schedule_traits("mine.csv");
    EXPECT_EQ(&row, &schedule_traits(ScheduleKind::FromFile));
    EXPECT_EQ(row.placement, StagePlacement::Unknown);
    EXPECT_EQ(row.split, BackwardSplit::Sometimes);
    EXPECT_FALSE(row.generate);
    EXPECT_FALSE(row.stashes);
    EXPECT_FALSE(row.in_flight);
}

}  // namespace schedule_traits_test
}  // namespace pipetwin
